"""llama-server of an installation or a build of llama.cpp: what its options are called, and one process that answers."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

from side_by_side import SKIPPED, Answer

GREEDY = {"temperature": 0, "samplers": ["top_k"], "top_k": 1}  # its shortest chain of samplers
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
    """The options that this version's server understands: names change between versions."""

    def __init__(self, server):
        help = subprocess.run([server, "--help"], capture_output=True, text=True)
        if help.returncode != 0:
            sys.exit(f"{server} --help: ended with {help.returncode}: {help.stderr.strip().splitlines()[-1:]}")
        self.text = help.stdout
        self.names = set()
        for entry in re.split(r"\n(?=-)", self.text):
            if entry.startswith("-") and "argument has been removed" not in entry:
                self.names.update(re.findall(r"(?<![\w-])--?[a-z][\w-]*", re.split(r"\s{2,}(?![\s-])", entry)[0]))
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

    ours = stays = False

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
                self.process.kill()
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
        body = json.dumps({**GREEDY, "cache_prompt": False, "ignore_eos": True, "return_tokens": True, **request})
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
        written, read = len(answer["tokens"]), timings["prompt_n"]
        if (written, read) != (new_tokens, len(prompt)):
            self.fail(f"{written} of {new_tokens} tokens written, {read} of {len(prompt)} prompt tokens read")
        first = timings["prompt_ms"] / 1e3
        return Answer(answer["tokens"], first + timings["predicted_ms"] / 1e3, wall, first)

    def system_info(self):
        """Lists what the build can use of the processor, as the server said at its start: AVX-512, threads, BLAS, ..."""
        self.log.seek(0)
        said = re.search(r"system_info: (.*)", self.log.read())
        return " ".join(said.group(1).split()).strip("| ") if said else "not said"

    def gap(self, prompt):
        """Nats between the two best next tokens."""
        answer, _ = self.complete(prompt=prompt, n_predict=1, n_probs=2)
        best = [entry["logprob"] for entry in answer["completion_probabilities"][0]["top_logprobs"]]
        return best[0] - best[1]

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def base_command(options, known, server, target, positions):
    command = [server, "-m", target, "--host", "127.0.0.1", "-t", options.threads, "-tb", options.threads, "-np", 1,
               "-c", positions]
    for name, value in (("--cache-ram", 0), ("--no-webui", None), ("--no-ui", None)):
        if name in known.names:
            command += [name] if value is None else [name, value]
    return list(map(str, command))
