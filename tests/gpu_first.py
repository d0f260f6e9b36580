#!/usr/bin/env python3
"""The first ten minutes on a machine with a GPU: what says most comes first, a line of JSON for each thing seen.

    python3 tests/gpu_first.py [--build build] [--output first.jsonl] [--seconds 560] [--parts LIST] [--work DIR]

    machine    driver, GPU, clocks, what the program sees; with a `doctor --gpu` also what that measures
    tests      test_gpu_on_device, a process and a line for each suite: kernels, then decoder, then engine
    passes     passes of 1 to 17 rows at contexts of 64 to 30,000, and of 1 to 128 rows; random weights, bfloat16: beside the
               rate at which the GPU reads and beside what bench/gpu_path.py predicts
    torch      the same passes by a library's kernels, where the program has `--backend torch`
    chains     a step of the draft's loop on the device, as it runs: drafts of 9 less drafts of 1 in the trace of real rounds
    kernels    microseconds and bytes of each kernel of such passes, by ncu
    prompts    time to the first token of prompts of 512, 2,048 and 8,192 tokens, beside the prediction
    texts      demo pair: float32 against the CPU; bfloat16, speculative against plain, greedy and gumbel, 64 x 512 tokens
    ranks      two and four ranks on the one GPU emit what one rank emits
    several    passes and sums over two, four and eight GPUs, and texts with a draft against plain ones there
    sanitizer  compute-sanitizer memcheck, racecheck and initcheck over the tests of kernels
    nccl       test_dist_mpi's NCCL cases, two ranks that take themselves for two hosts
    rounds, peers   only by --parts: rounds at a synthetic acceptance over prediction; transformers on the same GPU

Every line has `part`; the last of a part `status` (ok, failed, timed out, missing, not run) and `seconds`. Each part has a limit of
its own and --seconds bounds all: what hangs or fails is such a line, and the next part goes on. Needs the standard library only, and of a
build the program and its tests, which gpu_carry.py packs for a borrowed machine. With --device cpu and --short all that a CPU can do
runs in seconds, as gpu_first_test.py has it. Exit code 1 where a part failed, 77 where there is no GPU.
"""

import argparse
import csv
import io
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

import gpu_path  # noqa: E402
from gpus import SHAPES  # noqa: E402
from runs import AS_ROOT, DEMO, comma_list, texts_of  # noqa: E402

SKIPPED = 77
SEED = 1  # of random weights
MAX_FAILURES = 20  # that a suite's line names
GOLDEN = ROOT / "tests/model/golden"


class Failed(Exception):
    """One line that says what did not come about."""


class OutOfTime(Failed):
    """A part's limit was reached; the text says in what."""


class Missing(Failed):
    """Something that this needs is not here: no fault of the GPU's."""


# ---- commands that may hang ----

def children_of(pid):
    """All processes that descend from one, by /proc."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(name)] = int(pathlib.Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    found, grown = {pid}, True
    while grown:
        more = {child for child, parent in parents.items() if parent in found} - found
        found, grown = found | more, bool(more)
    return found - {pid}


def end(process):
    """Ends a process and what it has started: first asked, then killed."""
    for number, seconds in ((signal.SIGTERM, 3), (signal.SIGKILL, 10)):
        for pid in {process.pid, *children_of(process.pid)}:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        try:
            process.communicate(timeout=seconds)
            return
        except subprocess.TimeoutExpired:
            continue


class Limit:
    """What a part's commands have left."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()

    def run(self, command, *, codes=(0,), environment=None, most=None):
        """A command that has ended with one of the codes; it is ended where the limit, or `most` seconds, are up."""
        command = [str(part) for part in command]
        seconds = min(self.left(), most or self.left())
        if seconds <= 0:
            raise OutOfTime(f"no time was left for {' '.join(command)}")
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       errors="replace", env={**os.environ, **(environment or {})}, start_new_session=True)
        except OSError as error:
            raise Missing(f"{command[0]}: {error.strerror}") from None
        try:
            process.stdout_text, process.stderr_text = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            end(process)
            raise OutOfTime(f"still running after {seconds:.0f} s: {' '.join(command)}") from None
        if codes and process.returncode not in codes:
            told = [line.strip() for line in (process.stderr_text.strip() or process.stdout_text.strip()).splitlines() if line.strip("- ")]
            told = told if len(told) <= 5 else [*told[:3], "...", *told[-2:]]  # mpirun's own words come last
            raise Failed(f"exit code {process.returncode}: {' '.join(command)}: {' | '.join(told)}")
        return process


# ---- what the parts share ----

class Machine:
    """The program, what it runs on, and checkpoints of random weights."""

    def __init__(self, options, work):
        self.options, self.work = options, work
        self.program, self.short = options.program, options.short
        self.device = ["--device", options.device]
        self.rates, self.kernels = gpu_path.read_gpu_path(ROOT / "bench/hardware.json")
        self._help = {}

    def gpus_seen(self, limit):
        doctor = json.loads(limit.run([self.program, "doctor", "--repetitions", 1, "--json"], codes=(0, 1)).stdout_text)
        return doctor["ranks"][0]["gpus"] or 0

    def has_option(self, limit, command, option):
        """Whether the program knows an option, by its help."""
        if command not in self._help:
            self._help[command] = limit.run([self.program, *command.split(), "--help"]).stdout_text
        return re.search(rf"^ +{option}\b", self._help[command], re.M) is not None

    def written(self, limit, shape):
        """A checkpoint of random weights, written once; in short form a tiny one."""
        if self.short:
            return GOLDEN / f"llama-{'draft' if shape.startswith('opt') else 'target'}"
        directory = self.work / shape
        if not (directory / "config.json").exists():  # written last
            limit.run([sys.executable, ROOT / "bench/random_checkpoint.py", directory, "--shape", shape])
        return directory

    def weights(self, limit, shape):
        """Options that name a target of random weights: filled on the device where the program can, else written."""
        if self.short or not self.has_option(limit, "bench latency", "--random-weights"):
            return ["--target", self.written(limit, shape)]
        directory = self.work / f"{shape}-without-weights"
        if not directory.exists():
            directory.mkdir()
            config = json.loads((ROOT / f"tests/launch/public_shapes/{shape}.json").read_text())["config"]
            (directory / "config.json").write_text(json.dumps({**config, "torch_dtype": "bfloat16"}))
            shutil.copy(DEMO / "target/tokenizer.json", directory)
        return ["--target", directory, "--random-weights", SEED]

    def predicted(self, device, target_shape):
        """(Rates, Shape) of a measurement, None where either is not known."""
        hardware = gpu_path.hardware_named(device, self.rates)
        shape = gpu_path.shape_named(*(target_shape[field] for field in ("layers", "hidden_size", "vocab_size")))
        return (self.rates[hardware], SHAPES[shape]) if hardware and shape else None

    def beside(self, known, rows, context, milliseconds, *, gpus=1, in_loop=False):
        """Fields: what is predicted, and measured over it."""
        if not known or not gpu_path.fits(known[0], known[1], gpus):
            return {}
        predicted = gpu_path.predicted_pass(known[0], self.kernels, known[1], gpus, rows, context, in_loop).total * 1e3
        return {"predicted_ms": round(predicted, 4), "measured_over_predicted": round(milliseconds / predicted, 3)}

    def generated(self, limit, name, *arguments, launcher=()):
        """Result lines of generate."""
        output = self.work / f"{name}.jsonl"
        output.unlink(missing_ok=True)
        limit.run([*launcher, self.program, "generate", *arguments, "--output", output, "--quiet"])
        return output

    def prompts(self, lengths):
        """A file of prompts of so many tokens."""
        file = self.work / f"prompts-{'-'.join(map(str, lengths))}.jsonl"
        file.write_text("".join(json.dumps({"prompt_token_ids": [2 + (7 * i + 31 * n) % 251 for i in range(length)]}) + "\n"
                                for n, length in enumerate(lengths)))
        return file

    @property
    def pair(self):
        """A target and its draft that are trained; in short form tiny ones."""
        folder = (GOLDEN / "llama-target", GOLDEN / "llama-draft") if self.short else (DEMO / "target", DEMO / "draft")
        return ["--target", folder[0], "--draft", folder[1]]

    def pair_prompts(self, count):
        """That the pair's vocabulary has."""
        if self.short:
            return self.prompts(range(3, 3 + count))
        file = self.work / f"demo-{count}.jsonl"
        file.write_text("".join((DEMO / "prompts.jsonl").read_text().splitlines(keepends=True)[:count]))
        return file


# ---- the parts: each yields fields of lines ----

def machine(on, limit):
    told = limit.run([on.program, "--version"]).stdout_text.split("\n")[0]
    doctor = json.loads(limit.run([on.program, "doctor", "--repetitions", 1, "--json"], codes=(0, 1)).stdout_text)
    yield {"program": told, "gpus_seen": doctor["ranks"][0]["gpus"], "cores": doctor["ranks"][0]["cores"],
           "problems": [each["text"] for each in doctor["checks"] if each["status"] != "ok"]}
    if shutil.which("nvidia-smi"):
        fields = "name,driver_version,memory.total,memory.free,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu,mig.mode.current"
        ended = limit.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"], codes=())
        for line in ended.stdout_text.splitlines():
            yield dict(zip((field.replace(".", "_") for field in fields.split(",")), (value.strip() for value in line.split(","))))
        if len(ended.stdout_text.splitlines()) > 1:
            yield {"links": limit.run(["nvidia-smi", "topo", "-m"], codes=()).stdout_text.splitlines()}
    if on.has_option(limit, "doctor", "--gpu"):
        yield {"doctor": json.loads(limit.run([on.program, "doctor", "--gpu", "--json"], codes=(0, 1)).stdout_text)}
    else:
        yield {"missing": "doctor --gpu: the rate of reading random words, gaps of a graph, sums"}


def suites_of(on, limit):
    """Suites of the tests, those of kernels first."""
    listed = limit.run([on.options.tests, "--gtest_list_tests"]).stdout_text.splitlines()
    suites = [line.split(".")[0] for line in listed if line and not line.startswith((" ", "Running"))]
    order = ("Kernels", "VerifiedRows", "Decoder", "Families")
    suites.sort(key=lambda suite: next((i for i, name in enumerate(order) if name in suite), len(order)))
    return [suite for suite in suites if not on.options.suites or re.search(on.options.suites, suite)]


def tests(on, limit):
    failed = 0
    for suite in suites_of(on, limit):
        began = time.monotonic()
        line = {"suite": suite}
        try:
            ended = limit.run([on.options.tests, f"--gtest_filter={suite}.*", "--gtest_brief=0"], codes=(), most=limit.seconds / 2)
            lines = ended.stdout_text.splitlines()

            def named(mark, found=tuple(lines)):  # with the time, so that the list at the end does not count again
                return [each.split("] ")[1].split(" (")[0].split(",")[0] for each in found if each.startswith(mark) and " (" in each]

            line.update(passed=len(named("[       OK ]")), failed=named("[  FAILED  ]")[:MAX_FAILURES], skipped=len(named("[  SKIPPED ]")))
            if ended.returncode not in (0, 1):
                started = [each.split("] ")[1] for each in lines if each.startswith("[ RUN      ]")]
                line.update(crashed=started[-1] if started else "", code=ended.returncode,
                            told=(ended.stderr_text.strip().splitlines() or [""])[-1])
            failed += ended.returncode != 0
        except OutOfTime as error:
            line["timed_out"], failed = str(error), failed + 1
        yield {**line, "took_s": round(time.monotonic() - began, 1)}
        if limit.left() <= 0:
            break
    if failed:
        raise Failed(f"{failed} suites did not pass")


def pass_line(on, shown, shape):
    """Of bench latency's JSON."""
    by_rows = {each["rows"]: each["median_ms"] for each in shown["target"]}
    one, known = by_rows[1], on.predicted(shown["environment"]["device"], shown["target_shape"])
    gpus = shown["tensor_parallel"]
    line = {"shape": shape, "device": shown["environment"]["device"], "dtype": shown["environment"]["dtype"], "gpus": gpus,
            "context": shown["context"], "t1_ms": one, **on.beside(known, 1, shown["context"], one, gpus=gpus)}
    for rows in (rows for rows in (2, 4, 8, 16, 17, 33, 64, 128) if rows in by_rows):
        line[f"t{rows}_over_t1"] = round(by_rows[rows] / one, 3)
    if 8 in by_rows:
        line.update({f"t8_{name}": value for name, value in on.beside(known, 8, shown["context"], by_rows[8], gpus=gpus).items()})
    if gpus > 1:
        line["sums_us"] = {each["name"].split(", ")[-1]: round(each["median_ms"] * 1e3, 2) for each in shown["collectives"]
                           if each["name"].startswith("all-reduce")}
    weights, rate = shown["weight_bytes_per_rank"], shown["read_rate_bytes_per_second"]
    return {**line, "read_rate_gb_per_s": round(rate / 1e9, 1), "share_of_read_rate": round(weights / rate / (one / 1e3), 3)}


def on_ranks(count):
    return ["mpirun", "-n", count, "--oversubscribe", "--bind-to", "none", *AS_ROOT] if count > 1 else []


def latency(on, limit, shape, context, rows, repetitions, more=(), ranks=1):
    return json.loads(limit.run([
        *on_ranks(ranks), on.program, "bench", "latency", *on.weights(limit, shape), *on.device, *more, "--dtype", "bfloat16", "--rows", rows, "--repetitions",
        repetitions, "--context", context, "--max-context", context + rows + 8, "--json"]).stdout_text)


def passes(on, limit):
    """The small model first, which loads at once, then the context that matters most; the longest, whose prompt takes its time, last."""
    settings = [("opt-125m", 1000, 17, 30), ("llama-3.1-8b", 1000, 17, 30), ("llama-3.1-8b", 4000, 17, 30), ("llama-3.1-8b", 64, 17, 30),
                ("llama-3.1-8b", 1000, 128, 3), ("opt-125m", 64, 17, 30), ("opt-6.7b", 1000, 17, 30), ("llama-3.1-8b", 30000, 17, 10)]
    for shape, context, rows, repetitions in [("opt-125m", 8, 8, 2), ("llama-3.1-8b", 8, 8, 2)] if on.short else settings:
        yield pass_line(on, latency(on, limit, shape, context, rows, repetitions), shape)


def torch(on, limit):
    """The same by a library's kernels, where the program has them."""
    if not on.has_option(limit, "bench latency", "--backend"):
        raise Missing("bench latency --backend torch: not in this program")
    for shape in ("opt-125m",) if on.short else ("opt-125m", "llama-3.1-8b"):
        yield {"backend": "torch", **pass_line(on, latency(on, limit, shape, 8 if on.short else 1000, 8, 2 if on.short else 30,
                                                           ["--backend", "torch"]), shape)}


def chains(on, limit):
    """Target and draft are one: every token is accepted, so that rounds are alike."""
    settings = [("opt-125m", 1000), ("opt-125m", 64), ("llama-3.2-1b", 1000), ("llama-3.2-1b", 30000)]
    tokens = 40 if on.short else 400
    for shape, context in [("opt-125m", 8)] if on.short else settings:
        pair = on.weights(limit, shape)
        medians = {}
        for drafted in (1, 9):
            trace = on.work / "chain-rounds.jsonl"
            trace.unlink(missing_ok=True)
            on.generated(limit, "chain", *pair, "--draft", pair[1], *on.device, "--dtype", "bfloat16", "--input", on.prompts([context]),
                         "--max-new-tokens", tokens, "--max-context", context + tokens + 16, "--ignore-eos", "--stop-rule",
                         "constant", "--num-draft-tokens", drafted, "--trace", trace)
            rounds = [json.loads(line) for line in trace.read_text().splitlines()]
            times = [each["draft_ms"] for each in rounds if len(each["drafted"]) == drafted]
            if not times:
                raise Failed(f"no round of {shape} drafted {drafted} tokens")
            medians[drafted] = statistics.median(times)
        step = (medians[9] - medians[1]) / 8
        device = latency(on, limit, shape, context, 1, 1)
        known = on.predicted(device["environment"]["device"], device["target_shape"])
        yield {"shape": shape, "context": context, "draft_of_1_ms": medians[1], "draft_of_9_ms": medians[9], "step_ms": round(step, 4),
               **on.beside(known, 1, context, step, in_loop=True)}


def kernel_lines(text):
    """Of ncu's CSV: by kernel how often it ran, median microseconds and bytes, those that took longest first."""
    begin = text.find('"ID"')
    if begin < 0:
        raise Failed(f"ncu printed no table: {text.strip().splitlines()[-1:]}")
    runs = {}
    for row in csv.DictReader(io.StringIO(text[begin:])):
        if row.get("Metric Name") in ("gpu__time_duration.sum", "dram__bytes_read.sum"):
            name = re.sub(r"\(.*", "", row["Kernel Name"])
            runs.setdefault(name, {}).setdefault(row["Metric Name"], []).append(float(row["Metric Value"].replace(",", "")))
    lines = [{"kernel": name, "launches": len(of["gpu__time_duration.sum"]),
              "median_us": round(statistics.median(of["gpu__time_duration.sum"]) / 1e3, 2),
              "total_us": round(sum(of["gpu__time_duration.sum"]) / 1e3, 1),
              "gb_per_s": round(sum(of.get("dram__bytes_read.sum", [0])) / max(sum(of["gpu__time_duration.sum"]), 1), 1)}
             for name, of in runs.items() if "gpu__time_duration.sum" in of]
    return sorted(lines, key=lambda line: -line["total_us"])


def kernels(on, limit):
    if not shutil.which("ncu"):
        raise Missing("ncu is not on the path")
    for shape, context, rows in [("opt-125m", 8, 1)] if on.short else [("opt-125m", 1000, 1), ("llama-3.1-8b", 1000, 1),
                                                                      ("llama-3.1-8b", 4000, 16)]:
        launches = (1 if on.short else 32) * 11 * 3
        ended = limit.run([
            "ncu", "--clock-control", "none", "--graph-profiling", "node", "--print-units", "base", "--csv", "--launch-count", launches,
            "--metrics", "gpu__time_duration.sum,dram__bytes_read.sum", on.program, "bench", "latency", *on.weights(limit, shape),
            *on.device, "--dtype", "bfloat16", "--rows", rows, "--repetitions", 1, "--context", context, "--max-context", context + 64])
        for line in kernel_lines(ended.stdout_text):
            yield {"shape": shape, "context": context, "rows": rows, **line}


def prompts(on, limit):
    shape, lengths = ("llama-3.1-8b", (24,)) if on.short else ("llama-3.1-8b", gpu_path.PROMPTS)
    model = on.weights(limit, shape)
    device = latency(on, limit, shape, 8, 1, 1)
    known = on.predicted(device["environment"]["device"], device["target_shape"])
    for tokens in lengths:
        output = on.generated(limit, "prompts", *model, *on.device, "--dtype", "bfloat16", "--input", on.prompts([tokens] * 3),
                              "--max-new-tokens", 1, "--max-context", tokens + 16, "--ignore-eos")
        measured = statistics.median(json.loads(line)["stats"]["ttft_ms"] for line in output.read_text().splitlines()[1:])
        line = {"shape": shape, "tokens": tokens, "ttft_ms": measured, "tokens_per_second": round(tokens / measured * 1e3)}
        if known:
            own, library = gpu_path.predicted_prompt(known[0], on.kernels, known[1], tokens)
            line.update(launches_predicted_ms=round(own * 1e3, 2), chunks_predicted_ms=round(library * 1e3, 2))
        yield line


def equal_texts(name, expected, got):
    same = sum(a == b for a, b in zip(expected, got))
    return {"texts": name, "equal": same, "of": len(expected)}, same == len(expected) == len(got)


def texts(on, limit):
    file, tokens, pair = on.pair_prompts(4 if on.short else 64), 8 if on.short else 512, on.pair
    different = []
    for name, reference, tested in (
            ("float32, greedy: the CPU's", [*pair[:2], "--device", "cpu", "--dtype", "float32"], [*pair[:2], *on.device, "--dtype", "float32"]),
            ("bfloat16, greedy: plain decoding's", [*pair[:2], *on.device, "--dtype", "bfloat16"], [*pair, *on.device, "--dtype", "bfloat16"]),
            ("bfloat16, gumbel: plain decoding's", [*pair[:2], *on.device, "--dtype", "bfloat16", "--temperature", 1, "--seed", 1],
             [*pair, *on.device, "--dtype", "bfloat16", "--temperature", 1, "--seed", 1])):
        common = ["--input", file, "--max-new-tokens", min(tokens, 64) if "CPU" in name else tokens, "--ignore-eos"]
        line, is_equal = equal_texts(name, *(texts_of(on.generated(limit, which, *arguments, *common))
                                             for which, arguments in (("reference", reference), ("tested", tested))))
        different += [] if is_equal else [name]
        yield line
    if different:
        raise Failed(f"other texts: {'; '.join(different)}")


def ranks(on, limit):
    if not shutil.which("mpirun"):
        raise Missing("mpirun is not on the path")
    common = [*on.pair, *on.device, "--dtype", "float32", "--input", on.pair_prompts(2 if on.short else 8), "--max-new-tokens",
              8 if on.short else 48]
    one, different = texts_of(on.generated(limit, "ranks", *common)), []
    for count in (2,) if on.short else (2, 4):
        line, is_equal = equal_texts(f"{count} ranks: one rank's", one,
                                     texts_of(on.generated(limit, "ranks", *common, launcher=on_ranks(count))))
        different += [] if is_equal else [count]
        yield line
    if different:
        raise Failed(f"other texts on {' and '.join(map(str, different))} ranks")


def several(on, limit):
    """A sum must not depend on the rows beside it: then texts with a draft are plain ones on any number of GPUs."""
    gpus = 2 if on.options.device == "cpu" else on.gpus_seen(limit)
    if gpus < 2:
        raise Missing("the program sees one GPU")
    if not shutil.which("mpirun"):
        raise Missing("mpirun is not on the path")
    different = []
    for count in (count for count in (2, 4, 8) if count <= gpus):
        shape = "opt-125m" if on.short else "llama-3.1-8b"
        yield pass_line(on, latency(on, limit, shape, *((8, 8, 2) if on.short else (1000, 16, 30)), ranks=count), shape)
        common = [*on.device, "--dtype", "bfloat16", "--input", on.pair_prompts(4 if on.short else 64), "--max-new-tokens",
                  8 if on.short else 128, "--ignore-eos"]
        line, is_equal = equal_texts(f"{count} ranks, bfloat16, greedy: plain decoding's", *(
            texts_of(on.generated(limit, "several", *pair, *common, launcher=on_ranks(count))) for pair in (on.pair[:2], on.pair)))
        different += [] if is_equal else [count]
        yield line
    if different:
        raise Failed(f"other texts with a draft on {' and '.join(map(str, different))} GPUs")


def sanitizer(on, limit):
    if not shutil.which("compute-sanitizer"):
        raise Missing("compute-sanitizer is not on the path")
    faulty = []
    for tool in ("memcheck", "racecheck", "initcheck"):
        ended = limit.run(["compute-sanitizer", "--tool", tool, "--error-exitcode", 9, on.options.tests, "--gtest_filter=GpuKernels.*"],
                          codes=(), most=limit.seconds / 2)
        told = [line for line in ended.stdout_text.splitlines() if line.startswith("=========")]
        yield {"tool": tool, "code": ended.returncode, "summary": told[-1] if told else "", "first": told[1:4] if ended.returncode else []}
        faulty += [tool] if ended.returncode else []
    if faulty:
        raise Failed(", ".join(faulty))


def nccl(on, limit):
    """Two ranks on one GPU are refused unless they take themselves for two hosts."""
    if not shutil.which("mpirun") or not pathlib.Path(on.options.mpi_tests).exists():
        raise Missing("mpirun or test_dist_mpi is not here")
    one = [on.options.mpi_tests, "--gtest_filter=Nccl*"]
    ended = limit.run(["mpirun", *AS_ROOT, "--oversubscribe", "--bind-to", "none", "-n", 1, "-x", "NCCL_HOSTID=first", *one, ":",
                       "-n", 1, "-x", "NCCL_HOSTID=second", *one], codes=())
    counts = {name: len(re.findall(rf"^\[ +{name} +\] Nccl.*\(", ended.stdout_text, re.M)) for name in ("OK", "FAILED", "SKIPPED")}
    yield {"ranks": 2, "code": ended.returncode, **{name.lower(): count for name, count in counts.items()}}
    if not counts["OK"] + counts["FAILED"] + ended.returncode:
        raise Missing("the tests skip themselves: no NCCL in the build, or fewer GPUs than ranks")
    if ended.returncode:
        raise Failed((ended.stderr_text.strip().splitlines() or ["exit code " + str(ended.returncode)])[-1])


def rounds(on, limit):
    """The first on random weights at a given acceptance, the second of the demo pair."""
    for name, file, arguments in (
            ("opt-6.7b and opt-125m", on.prompts([32] * 8), [
                *on.weights(limit, "opt-125m" if on.short else "opt-6.7b"), "--draft", on.weights(limit, "opt-125m")[1], "--temperatures", 0,
                "--rules", "constant:2,constant:4,constant:7", "--synthetic-acceptance", on.options.acceptance, "--max-context",
                128 if on.short else 1024]),
            ("demo pair", on.pair_prompts(8), [*on.pair, "--temperatures", "0,1", "--rules", "static,expected-gain"])):
        shown = json.loads(limit.run([
            on.program, "bench", "compare", *arguments, *on.device, "--dtype", "bfloat16", "--input", file, "--prompts", 8,
            "--max-new-tokens", 8 if on.short else 128, "--quiet", "--json"]).stdout_text)
        yield {"pair": name, "entropy_overhead": shown["entropy_overhead"]}
        for at in shown["temperatures"]:
            for setting in at["settings"]:
                yield {"pair": name, "temperature": at["temperature"], **{field: setting[field] for field in (
                    "setting", "kind", "tokens_per_second", "speedup", "predicted_speedup", "measured_over_predicted") if field in setting}}
        if on.short:
            return


def peers(on, limit):
    script = ROOT / "bench/peers/transformers.py"
    common = ["--binary", on.program, *on.device, "--dtypes", "bfloat16", "--repetitions", 3, "--limit", 4]
    for shape in ("llama-3.1-8b", "opt-6.7b", "opt-125m"):
        ended = limit.run([sys.executable, script, "--target", on.written(limit, shape), "--plain-only", *common])
        yield {"shape": shape, "table": ended.stdout_text.splitlines()}
    ended = limit.run([sys.executable, script, *common, "--modes", "constant 3", "--modes", "constant 5"])
    yield {"shape": "demo pair", "table": ended.stdout_text.splitlines()}


PARTS = {  # in the order in which they run, with seconds
    machine: 20, tests: 90, passes: 150, torch: 40, chains: 60, kernels: 60, prompts: 60, texts: 90, ranks: 40, several: 120,
    sanitizer: 90, nccl: 30,
    rounds: 300, peers: 600}
NAMES = {part.__name__: part for part in PARTS}
DEFAULT = [name for name in NAMES if name not in ("rounds", "peers")]


# ---- the command ----

def run_part(on, part, seconds, write):
    """Runs one; its status."""
    began, limit = time.monotonic(), Limit(seconds)
    ending = {"status": "ok"}
    try:
        for fields in part(on, limit):
            write({"part": part.__name__, **fields})
    except OutOfTime as error:
        ending = {"status": "timed out", "limit_s": round(seconds), "why": str(error)}
    except Missing as error:
        ending = {"status": "missing", "why": str(error)}
    except Failed as error:
        ending = {"status": "failed", "why": str(error)}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, statistics.StatisticsError) as error:
        ending = {"status": "failed", "why": f"{type(error).__name__}: {error}"}  # the other parts are worth their time
    write({"part": part.__name__, **ending, "seconds": round(time.monotonic() - began, 1)})
    return ending["status"]


def limits_of(text):
    """part=seconds,part=seconds"""
    pairs = dict(each.split("=") for each in text.split(","))
    if not set(pairs) <= set(NAMES):
        raise argparse.ArgumentTypeError(f"known are {', '.join(NAMES)}")
    return {name: float(seconds) for name, seconds in pairs.items()}


def parse():
    parser = argparse.ArgumentParser(prog="gpu_first.py", description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--program", help="[BUILD/entrodraft]")
    parser.add_argument("--tests", help="tests of GPU code [BUILD/test_gpu_on_device]")
    parser.add_argument("--mpi-tests", help="[BUILD/test_dist_mpi]")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--short", action="store_true", help="tiny models and texts: whether the parts run, not what a GPU does")
    parser.add_argument("--parts", type=comma_list(str, NAMES), default=DEFAULT, help=f"[{','.join(DEFAULT)}]")
    parser.add_argument("--suites", help="only suites of tests whose name this regular expression finds")
    parser.add_argument("--seconds", type=float, default=560, help="of all parts together [560]")
    parser.add_argument("--limits", type=limits_of, default={}, metavar="PART=SECONDS,...", help="other limits than the script's")
    parser.add_argument("--acceptance", type=float, default=0.8, help="of rounds on random weights [0.8]")
    parser.add_argument("--work", type=pathlib.Path, help="where random checkpoints go and stay [a temporary folder]")
    parser.add_argument("--output", type=pathlib.Path, help="the same lines, in a file")
    options = parser.parse_args()
    for name, file in (("program", "entrodraft"), ("tests", "test_gpu_on_device"), ("mpi_tests", "test_dist_mpi")):
        setattr(options, name, str(getattr(options, name) or options.build / file))
    return options


def has_device(options):
    """Whether the program sees what it is to compute on."""
    return options.device == "cpu" or Machine(options, None).gpus_seen(Limit(60)) > 0


def main():
    options = parse()
    try:
        if not has_device(options):
            print("skipped: no GPU that the program sees")
            return SKIPPED
    except (Failed, ValueError) as error:
        raise SystemExit(f"gpu_first.py: {error}") from None
    output = options.output.open("w", encoding="utf-8") if options.output else None

    def write(line):
        text = json.dumps(line)
        print(text, flush=True)
        if output:
            output.write(text + "\n")
            output.flush()

    total, seen = Limit(options.seconds), []
    with tempfile.TemporaryDirectory() as scratch:
        on = Machine(options, options.work or pathlib.Path(scratch))
        on.work.mkdir(parents=True, exist_ok=True)
        for name in sorted(options.parts, key=list(NAMES).index):
            seconds = min(options.limits.get(name, PARTS[NAMES[name]]), total.left())
            if seconds <= 0:
                write({"part": name, "status": "not run", "why": f"the {options.seconds:.0f} s of all parts are up", "seconds": 0})
            seen.append(run_part(on, NAMES[name], seconds, write) if seconds > 0 else "not run")
    if output:
        output.close()
    return 1 if {"failed", "timed out"} & set(seen) else 0


if __name__ == "__main__":
    sys.exit(main())
