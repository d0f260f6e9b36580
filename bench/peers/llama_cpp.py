#!/usr/bin/env python3
"""How fast is entrodraft beside llama.cpp, plain and speculative at every setting, with the same weights and the same text?

    python bench/peers/llama_cpp.py --llama DIR [--binary build/entrodraft] [--dtypes float32,float16,bfloat16]
        [--repetitions 5] [--limit 64] [--modes ngram] [--rule moving-average] [--json FILE]

DIR is an installation or a build of llama.cpp: it holds bin/llama-server, or llama-server itself. GGUF files are written from
--target and --draft (gguf_file.py). A server runs for each mode, with one slot, --threads threads and no cache of prompts;
prompts go in as token ids, the look-up of the server's own options comes from its --help. Both decode greedily in turns
(side_by_side.py says how). Time is that of a whole sequence per new token, prefill and decoding, by each side's own account;
"wall" is seen from outside, with HTTP there and a pipe here. Texts come first. In float32 (KV cache too) a text may part from
ours only where llama.cpp's own two best log-probabilities lie closer than 1e-3, and in one text of 64 at most; a worse
difference ends the run with 1. In half precision llama.cpp rounds activations and KV cache too: texts that part are counted.
Needs bench/peers/requirements.txt; exits with 77 where gguf or the installation is missing.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

import gguf_file
from side_by_side import (DRAFT, LOOKUP, PLAIN, SKIPPED, Answer, add_options, check_options, check_texts, chosen, environment,
                          figures_of, our_contenders, print_ratios, print_table, read_prompts, save, take_turns, warn_of_load)

TIE = 1e-3  # nats between the two best: below it, float32 rounding may choose the other token
DTYPES = ("float32", "float16", "bfloat16")
KV_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "f16"}  # f16 is llama.cpp's default
ROUNDING = "llama.cpp rounds activations and KV cache to 16 bits too, ours are float32"
START_SECONDS = 60


def find_server(directory):
    """Path of llama-server; ends with 77 where there is none."""
    if directory is None:
        print("skipped: no installation of llama.cpp is given (--llama DIR)")
        sys.exit(SKIPPED)
    for place in (directory / "bin/llama-server", directory / "llama-server"):
        if os.access(place, os.X_OK):
            return place.resolve()
    print(f"skipped: {directory}: no bin/llama-server")
    sys.exit(SKIPPED)


class Options:
    """What this version's server understands: names change between versions."""

    def __init__(self, server):
        help = subprocess.run([server, "--help"], capture_output=True, text=True)
        if help.returncode != 0:
            sys.exit(f"{server} --help: ended with {help.returncode}: {help.stderr.strip().splitlines()[-1:]}")
        self.text = help.stdout
        self.names = set()
        for entry in re.split(r"\n(?=-)", self.text):
            if entry.startswith("-") and "argument has been removed" not in entry:
                self.names.update(re.findall(r"(?<![\w-])--?[a-z][\w-]*", entry.split("   ")[0].split("\n")[0]))
        if "[on|off|auto]" not in self.text:
            sys.exit("llama_cpp: this llama-server is too old: --flash-attn takes no on or off")

    def named(self, *names):
        """The first that exists; None without any."""
        return next((name for name in names if name in self.names), None)

    def look_ups(self):
        """Names of --spec-type that need no draft model."""
        shown = re.search(r"^--spec-type\s+(\S+)", self.text, re.MULTILINE)
        return [name for name in shown.group(1).split(",") if name.startswith("ngram-")] if shown else []


def version_of(server):
    shown = subprocess.run([server, "--version"], capture_output=True, text=True)
    return (shown.stdout + shown.stderr).strip().split("\n")[0].removeprefix("version: ")


class Server:
    """A mode: one llama-server. Connections are opened before the clock starts: the server closes those that idle."""

    ours = False

    def __init__(self, name, group, base, *arguments):
        self.name, self.group, self.command = f"llama.cpp {name}", group, [*base, *map(str, arguments)]

    def start(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([*self.command, "--port", str(self.port)], stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + START_SECONDS
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.fail("did not start")
            time.sleep(0.05)

    def ready(self):
        try:
            return self.request("GET", "/health")[0] == 200
        except (ConnectionError, http.client.HTTPException):
            return False

    def request(self, method, path, body=None):
        """(status, text, seconds)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            connection.connect()
            began = time.perf_counter()
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read(), time.perf_counter() - began
        finally:
            connection.close()

    def fail(self, why):
        self.log.seek(0)
        lines = [line for line in self.log.read().splitlines() if line.strip()][-5:]
        sys.exit(" ".join(map(str, self.command)) + f"\n{why}:\n" + "\n".join(lines))

    def complete(self, **request):
        """(answer, seconds)"""
        body = json.dumps({"temperature": 0, "cache_prompt": False, "ignore_eos": True, "return_tokens": True, **request})
        try:
            status, text, seconds = self.request("POST", "/completion", body.encode())
        except (ConnectionError, http.client.HTTPException) as error:
            self.fail(f"no answer ({error})")
        if status != 200:
            self.fail(f"answered {status} {text[:200]}")
        return json.loads(text), seconds

    def ask(self, prompt, new_tokens):
        answer, wall = self.complete(prompt=prompt, n_predict=new_tokens)
        timings = answer["timings"]
        if len(answer["tokens"]) != new_tokens or timings["prompt_n"] != len(prompt):
            self.fail(f"{len(answer['tokens'])} of {new_tokens} tokens, {timings['prompt_n']} of {len(prompt)} prompt tokens read")
        return Answer(answer["tokens"], (timings["prompt_ms"] + timings["predicted_ms"]) / 1e3, wall)

    def gap(self, prompt):
        """Nats between the two best next tokens."""
        answer, _ = self.complete(prompt=prompt, n_predict=1, n_probs=2)
        best = [entry["logprob"] for entry in answer["completion_probabilities"][0]["top_logprobs"]]
        return best[0] - best[1]

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


def base_command(options, known, server, target, dtype):
    command = [server, "-m", target, "--host", "127.0.0.1", "-t", options.threads, "-tb", options.threads, "-np", 1, "-c", 4096,
               "-ctk", KV_TYPES[dtype], "-ctv", KV_TYPES[dtype]]
    for name, value in (("--cache-ram", 0), ("--no-webui", None), ("--no-ui", None)):
        if name in known.names:
            command += [name] if value is None else [name, value]
    return list(map(str, command))


def plain_modes(known, base):
    modes = [Server(f"plain, flash attention {flash}", PLAIN, base, "-fa", flash) for flash in ("on", "off")]
    if "--backend-sampling" in known.names:
        modes.append(Server("plain, flash attention on, backend sampling", PLAIN, base, "-fa", "on", "--backend-sampling"))
    return modes


def draft_modes(options, known, base, draft, dtype):
    most, least = known.named("--spec-draft-n-max", "--draft-max"), known.named("--spec-draft-n-min", "--draft-min")
    sure, threads = known.named("--spec-draft-p-min", "--draft-p-min"), known.named("--spec-draft-threads", "--threads-draft")
    if None in (most, least, sure, threads, known.named("-md")):
        sys.exit("llama_cpp: this llama-server lacks one of -md, --draft-max, --draft-min, --draft-p-min, --threads-draft")
    base = [*base, "-md", str(draft), "-ctkd", KV_TYPES[dtype], "-ctvd", KV_TYPES[dtype]]
    if "--spec-type" in known.names:
        base += ["--spec-type", "draft-simple"]

    def mode(flash, k, p, n_min=0, n_threads=options.threads):
        name = f"draft {k}, p {p}, flash attention {flash}"
        name += (f", at least {n_min}" if n_min else "") + (", draft on 1 thread" if n_threads != options.threads else "")
        return Server(name, DRAFT, base, "-fa", flash, most, k, least, n_min, sure, p, threads, n_threads)

    modes = [mode(flash, k, p) for flash in ("on", "off") for k in (3, 5, 8, 16) for p in (0, 0.4, 0.75)]
    modes += [mode("on", k, p) for k in (1, 2) for p in (0, 0.4, 0.75)]
    modes += [mode("on", 5, p, n_min=2) for p in (0.4, 0.75)]
    if options.threads > 1:
        modes += [mode("on", k, p, n_threads=1) for k in (3, 5) for p in (0.4, 0.75)]
    return modes


def look_up_modes(known, base):
    """The server's own look-ups: its defaults (patterns of 12 to 24 tokens, of long texts) and shorter patterns."""
    modes = []
    for kind in known.look_ups():
        modes.append(Server(f"{kind}, its defaults", LOOKUP, base, "-fa", "on", "--spec-type", kind))
        size_n, size_m = f"--spec-{kind}-size-n", f"--spec-{kind}-size-m"
        if {size_n, size_m} <= known.names:
            modes += [Server(f"{kind} {n}, {m} tokens", LOOKUP, base, "-fa", "on", "--spec-type", kind, size_n, n, size_m, m)
                      for n in (2, 3, 4) for m in (3, 5, 10)]
    if "--spec-ngram-mod-n-match" in known.names:
        modes += [Server(f"ngram-mod {n}, to {most} tokens", LOOKUP, base, "-fa", "on", "--spec-type", "ngram-mod",
                         "--spec-ngram-mod-n-match", n, "--spec-ngram-mod-n-min", 1, "--spec-ngram-mod-n-max", most)
                  for n in (3, 4) for most in (5, 10)]
    return modes


def compare(parser, options, server, known, prompts, dtype, work):
    """One dtype's table."""
    target, draft = work / f"target-{dtype}.gguf", work / f"draft-{dtype}.gguf"
    for directory, file in ((options.target, target), (options.draft, draft)):
        gguf_file.write(directory, file, dtype)
    base = base_command(options, known, server, target, dtype)
    modes = [*plain_modes(known, base), *draft_modes(options, known, base, draft, dtype), *look_up_modes(known, base)]
    contenders = chosen(parser, options, modes) + our_contenders(options, dtype)
    setting = environment(options, dtype, llama_cpp=version_of(server), kv_cache_there=KV_TYPES[dtype])
    print("\n" + ", ".join(f"{key} {value}" for key, value in setting.items()))
    warn_of_load("at the start")
    equal = {}

    def is_tie(name, id, tokens, at):
        gap = modes[0].gap(prompts[id] + tokens[:at])
        print(f"{name}: prompt {id} parts from ours at new token {at}, where llama.cpp's two best are {gap:.1e} nats apart")
        return gap < TIE

    def check(results):
        equal.update(check_texts(contenders, results, is_tie, None if dtype == "float32" else ROUNDING))

    figures = figures_of(contenders, take_turns(contenders, prompts, options, check), equal)
    print_table(figures, f"{dtype}, ms a new token: medians of repetitions; p50 to p99: of sequences")
    ratios = print_ratios(figures, "llama.cpp")
    return {"environment": setting, "figures": figures, "ratios": ratios}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", type=pathlib.Path, help="installation or build of llama.cpp")
    add_options(parser, DTYPES, ["float32"])
    options = parser.parse_args()
    server = find_server(options.llama)
    check_options(parser, options, DTYPES)
    prompts, known = read_prompts(parser, options), Options(server)
    with tempfile.TemporaryDirectory() as work:
        try:
            tables = [compare(parser, options, server, known, prompts, dtype, pathlib.Path(work)) for dtype in options.dtypes]
        except gguf_file.Refused as refused:
            sys.exit(f"llama_cpp: {refused}")
    save(options.json, tables)


if __name__ == "__main__":
    main()
