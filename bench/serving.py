#!/usr/bin/env python3
"""Servers of OpenAI's API side by side: tokens a second and the first token, by the number of requests at a time.

    python3 bench/serving.py --input PROMPTS.jsonl --output FILE.json --target FILE.gguf --draft FILE.gguf [--llama DIR]
        [--binary build/entrodraft] [--at-a-time 1,2,4,8] [--new-tokens 96] [--threads 2]

All servers are loaded, and take turns: each answers all prompts as greedy streams of /v1/completions, the end of text
ignored, first so many at a time, then so many. Ours and llama-server (a build of llama.cpp in DIR) run with the draft and
without, and without its cache of prompts, as prompts come again. Needs nothing but Python. Figures are of one run.
FILE.json is written after each turn.
"""

import argparse
import concurrent.futures
import http.client
import json
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Server:
    def __init__(self, command, health):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*map(str, command), "--port", str(self.port)], stdout=self.log, stderr=self.log)
        for _ in range(1200):
            if self.process.poll() is not None:
                self.log.seek(0)
                sys.exit(f"a server ended: {self.log.read().decode()[-2000:]}")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", health)
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit("a server did not start")

    def stream(self, prompt, new_tokens):
        """(seconds to the first text, seconds to the end, new tokens)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        begun, first, n = time.monotonic(), None, 0
        body = {"prompt": prompt, "max_tokens": new_tokens, "temperature": 0, "stream": True, "ignore_eos": True,
                "stream_options": {"include_usage": True}}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            sys.exit(f"a request was refused: {answer.read().decode()}")
        for line in answer:
            data = line.decode().removeprefix("data: ").strip()
            if not data or data == "[DONE]":
                continue
            chunk = json.loads(data)
            if first is None and any(choice.get("text") for choice in chunk["choices"]):
                first = time.monotonic() - begun
            n = (chunk.get("usage") or {}).get("completion_tokens", n)
        return first, time.monotonic() - begun, n

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def measured(server, prompts, new_tokens, at_a_time):
    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        begun = time.monotonic()
        answers = list(pool.map(lambda prompt: server.stream(prompt, new_tokens), prompts))
        seconds = time.monotonic() - begun
    tokens = sum(n for _, _, n in answers)
    return {"at_a_time": at_a_time, "tokens": tokens, "tokens_per_second": tokens / seconds,
            "first_token_ms": 1e3 * statistics.median(first for first, _, _ in answers)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--llama", type=pathlib.Path)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/entrodraft")
    parser.add_argument("--at-a-time", default="1,2,4,8")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    numbers = [int(n) for n in options.at_a_time.split(",")]
    prompts = [json.loads(line)["prompt"] for line in options.input.open()]
    ours = [options.binary.resolve(), "serve", "--target", options.target, "--threads", options.threads, "--batch-size", max(numbers)]
    servers = {"entrodraft, draft": ([*ours, "--draft", options.draft], "/v1/models"), "entrodraft, plain": (ours, "/v1/models")}
    if options.llama:
        llama = [options.llama.resolve() / "llama-server", "--model", options.target, "--threads", options.threads,
                 "--parallel", max(numbers), "--ctx-size", 2048 * max(numbers), "--no-webui", "--no-cache-prompt"]
        servers["llama-server, plain"] = (llama, "/health")
        servers["llama-server, draft"] = ([*llama, "--model-draft", options.draft, "--spec-type", "draft-simple",
                                           "--spec-draft-n-max", 4, "--spec-draft-p-min", 0.5], "/health")
    result = {"processor": platform.processor() or "unknown", "prompts": len(prompts), "new_tokens": options.new_tokens, "servers": {}}
    running = {name: Server(*how) for name, how in servers.items()}
    for server in running.values():
        server.stream(prompts[0], 16)
    for n in numbers:
        for name, server in running.items():
            row = measured(server, prompts, options.new_tokens, n)
            result["servers"].setdefault(name, []).append(row)
            options.output.write_text(json.dumps(result, indent=1) + "\n")
            print(f"{n:2} at a time, {name:20} {row['tokens_per_second']:6.1f} tokens a second, first token "
                  f"{row['first_token_ms']:6.0f} ms, {row['tokens']} tokens", flush=True)
    for server in running.values():
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
