#!/usr/bin/env python3
"""How fast is entrodraft beside llama.cpp, plain and speculative at every setting, with the same weights and text?

    python3 bench/peers/llama_cpp.py --llama DIR [--binary build/entrodraft] [--dtypes float32,float16,bfloat16,int8,int4]
        [--repetitions 5] [--limit 64] [--modes ngram] [--rule moving-average] [--json FILE] [--plain-only]

DIR is an installation or a build of llama.cpp: it holds bin/llama-server, or llama-server itself. GGUF files are
written from --target and --draft (gguf_file.py). Each mode is a server with one slot, --threads threads and no cache of
prompts; of these at most --resident run at once, and a plain one that says what is a tie. Prompts go in as token ids;
what the options are called is read from the server's --help. Both decode greedily in turns (side_by_side.py says how). Time is that of a whole sequence per new token, prefill and
decoding, by each side's own account; "wall" is seen from outside, with HTTP there and a pipe here. Texts come
first. In float32 without flash attention (KV cache in float32 too) a text may part from ours only where llama.cpp's
own two best log-probabilities lie closer than 1e-4, and in one text of 64 at most; a worse difference ends the run
with 1. Elsewhere texts that part are counted: its flash attention works on a float16 KV cache whatever the weights
are, and with 16-bit weights it rounds activations as well. int8 and int4 are its Q8_0 and Q4_0, a scale for every 32 weights,
where ours have one for every row and for every 64. Needs bench/peers/requirements.txt; exits with 77 where gguf or the
installation is missing.
"""

import argparse
import contextlib
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
import side_by_side
from side_by_side import DRAFT, LOOKUP, PLAIN, SKIPPED, Answer

TIE = 1e-4  # nats between the two best: below it, float32 rounding may choose the other token
DTYPES = ("float32", "float16", "bfloat16", "int8", "int4")
ROUNDING = "llama.cpp rounds {} to 16 bits, ours is float32"
ROUNDING_OF_INTS = "llama.cpp has a scale for every 32 weights and rounds activations to 8 bits in such blocks too"
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
    """What this version's server understands: names change between versions."""

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
        """What the build can use of the processor, as the server said at its start: AVX-512, threads, BLAS, ..."""
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


def attention(dtype, flash, of_draft=False):
    """Flash attention on or off, and the KV cache's type: llama.cpp's default, but for float32 throughout."""
    cache = "f32" if dtype == "float32" and flash == "off" else "f16"
    return ["-fa", flash, "-ctk", cache, "-ctv", cache, *(["-ctkd", cache, "-ctvd", cache] if of_draft else [])]


def rounding_of(dtype):
    def reason(name):
        if dtype in ("int8", "int4"):
            return ROUNDING_OF_INTS
        if dtype != "float32":
            return ROUNDING.format("activations and KV cache")
        exact = "flash attention off" in name or name.startswith("entrodraft")
        return None if exact else ROUNDING.format("the KV cache")

    return reason


def base_command(options, known, server, target, positions):
    command = [server, "-m", target, "--host", "127.0.0.1", "-t", options.threads, "-tb", options.threads, "-np", 1,
               "-c", positions]
    for name, value in (("--cache-ram", 0), ("--no-webui", None), ("--no-ui", None)):
        if name in known.names:
            command += [name] if value is None else [name, value]
    return list(map(str, command))


def plain_modes(known, base, dtype):
    def mode(flash, name="", *more):
        return Server(f"plain, flash attention {flash}{name}", PLAIN, base, *attention(dtype, flash), *more)

    modes = [mode("off"), mode("on")]
    if "--backend-sampling" in known.names:
        modes += [mode(flash, ", backend sampling", "--backend-sampling") for flash in ("off", "on")]
    return modes


def draft_modes(options, known, base, draft, dtype):
    most, least, sure, threads = found = [known.named(f"--spec-draft-{new}", f"--{old}") for new, old in (
        ("n-max", "draft-max"), ("n-min", "draft-min"), ("p-min", "draft-p-min"), ("threads", "threads-draft"))]
    if None in (*found, known.named("-md")):
        sys.exit("llama_cpp: this llama-server lacks -md, --draft-max, --draft-min, --draft-p-min or --threads-draft")
    base = [*base, "-md", str(draft)]
    if "--spec-type" in known.names:
        base += ["--spec-type", "draft-simple"]

    def mode(flash, k, p, n_min=0, n_threads=options.threads):
        name = f"draft {k}, p {p}, flash attention {flash}" + (f", at least {n_min}" if n_min else "")
        name += ", draft on 1 thread" if n_threads != options.threads else ""
        return Server(name, DRAFT, base, *attention(dtype, flash, of_draft=True), most, k, least, n_min, sure, p,
                      threads, n_threads)

    modes = [mode(flash, k, p) for flash in ("off", "on") for k in (1, 2, 3, 5, 8, 16) for p in (0, 0.4, 0.75)]
    modes += [mode("off", 5, p, n_min=2) for p in (0.4, 0.75)]
    if options.threads > 1:
        modes += [mode("off", k, p, n_threads=1) for k in (3, 5) for p in (0.4, 0.75)]
    for kind in sorted({"ngram-simple", "ngram-map-k"}.intersection(known.look_ups())):
        modes.append(Server(f"{kind} 3, 5 tokens, else draft 3, p 0.4, flash attention off", DRAFT, base,
                            *attention(dtype, "off", of_draft=True), most, 3, least, 0, sure, 0.4, "--spec-type",
                            f"{kind},draft-simple", f"--spec-{kind}-size-n", 3, f"--spec-{kind}-size-m", 5))
    return modes


def look_up_modes(known, base, dtype):
    """The server's own look-ups: its defaults (patterns of 12 to 24 tokens, of long texts) and shorter patterns."""
    modes = []

    def add(name, kind, *settings):
        modes.extend(Server(f"{name}, flash attention {flash}", LOOKUP, base, *attention(dtype, flash),
                            "--spec-type", kind, *settings) for flash in ("off", "on"))

    for kind in known.look_ups():
        add(f"{kind}, its defaults", kind)
        size_n, size_m = f"--spec-{kind}-size-n", f"--spec-{kind}-size-m"
        if {size_n, size_m} <= known.names:
            for n, m in ((2, 3), (2, 5), (3, 5), (3, 10)):
                add(f"{kind} {n}, {m} tokens", kind, size_n, n, size_m, m)
    if "--spec-ngram-mod-n-match" in known.names:
        for n, most in ((3, 5), (4, 10)):
            add(f"ngram-mod {n}, to {most} tokens", "ngram-mod", "--spec-ngram-mod-n-match", n,
                "--spec-ngram-mod-n-min", 1, "--spec-ngram-mod-n-max", most)
    return modes


def compare(parser, options, server, known, prompts, dtype, work):
    """One dtype's table."""
    positions = max(map(len, prompts.values())) + options.new_tokens + 256  # a draft may reach beyond the text's end
    target, draft = work / f"target-{dtype}.gguf", work / f"draft-{dtype}.gguf"
    gguf_file.write(options.target, target, dtype)
    base = base_command(options, known, server, target, positions)
    modes = plain_modes(known, base, dtype)
    if not options.plain_only:
        gguf_file.write(options.draft, draft, dtype)
        modes += [*draft_modes(options, known, base, draft, dtype), *look_up_modes(known, base, dtype)]
    contenders = side_by_side.chosen(parser, options, modes) + side_by_side.our_contenders(options, dtype)
    with running(judge_of(known, base, dtype)) as verify:
        return measured(options, verify, contenders, prompts, dtype, version_of(server))


def judge_of(known, base, dtype):
    """A plain server that is not timed. It tells more of itself: newer versions keep system_info back otherwise."""
    verbosity = known.named("-lv", "--verbosity")
    return Server("verifier", PLAIN, base, *attention(dtype, "off"), *([verbosity, 4] if verbosity else []))


@contextlib.contextmanager
def running(server):
    server.start()
    try:
        yield server
    finally:
        server.stop()


def measured(options, verify, contenders, prompts, dtype, version):
    """Environment, figures and ratios. `verify` is a server beside the contenders, which says what is a tie."""
    setting = side_by_side.environment(options, dtype, prompts, llama_cpp=version, system_info=verify.system_info())
    print("\n" + ", ".join(f"{key} {value}" for key, value in setting.items()))
    side_by_side.warn_of_load("at the start")
    equal = {}

    def is_tie(name, id, tokens, at):
        gap = verify.gap(prompts[id] + tokens[:at])
        print(f"{name}: prompt {id} parts from ours at new token {at}, its two best {gap:.1e} nats apart")
        return gap < TIE

    def check(results):
        equal.update(side_by_side.check_texts(contenders, results, is_tie, rounding_of(dtype)))

    return {"environment": setting,
            **side_by_side.measure(contenders, prompts, options, check, equal, f"{dtype}, beside llama.cpp")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", type=pathlib.Path, help="installation or build of llama.cpp")
    side_by_side.add_options(parser, DTYPES, ["float32"])
    parser.add_argument("--resident", type=int, default=4, help="how many modes' servers run at once [4]")
    options = parser.parse_args()
    server = find_server(options.llama)
    side_by_side.check_options(parser, options, DTYPES)
    side_by_side.check_counts(parser, options, "resident")
    prompts, known = side_by_side.read_prompts(parser, options), Options(server)
    with tempfile.TemporaryDirectory() as work:
        try:
            tables = [compare(parser, options, server, known, prompts, dtype, pathlib.Path(work))
                      for dtype in options.dtypes]
        except (gguf_file.Refused, OSError) as error:
            sys.exit(f"llama_cpp: {error}")
    side_by_side.save(options.json, tables)


if __name__ == "__main__":
    main()
