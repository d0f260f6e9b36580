"""The parts of gpu_first.py, which says what each is: generators of fields, a line of JSON each, over a Machine under a Limit."""

import concurrent.futures
import csv
import io
import json
import os
import pathlib
import re
import shutil
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

import gpu_path  # noqa: E402
from gpus import SHAPES  # noqa: E402
from limited import Failed, Missing, OutOfTime  # noqa: E402
from runs import AS_ROOT, DEMO, texts_of  # noqa: E402

SEED = 1  # of random weights
MAX_FAILURES, MAX_TOLD = 20, 40  # failed tests that a suite's line names, lines that it repeats
MAX_JOBS = 8  # suites side by side
GOLDEN = ROOT / "tests/model/golden"
EXPERTS = "qwen3-30b-a3b-12-layers"
FAMILY_OF_EXPERTS = ROOT / "tests/model/families/qwen3-moe/target/config.json"
EXPERTS_SHAPE = {"hidden_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
                 "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "intermediate_size": 6144, "vocab_size": 151936,
                 "max_position_embeddings": 32768}


# ---- what they share ----

class Machine:
    """The program, what it runs on, and checkpoints of random weights."""

    def __init__(self, options, work):
        self.options, self.work = options, work
        self.program, self.short = options.program, options.short
        self.device = ["--device", options.device]
        self.rates, self.kernels = gpu_path.read_gpu_path(ROOT / "bench/hardware.json")

    def gpus_seen(self, limit):
        doctor = json.loads(limit.run([self.program, "doctor", "--repetitions", 1, "--json"], codes=(0, 1)).stdout_text)
        return doctor["ranks"][0]["gpus"] or 0

    def tiny(self, shape):
        if shape == EXPERTS:
            return FAMILY_OF_EXPERTS.parent
        return GOLDEN / f"llama-{'draft' if shape.startswith('opt') else 'target'}"

    def written(self, limit, shape):
        """A checkpoint of random weights, written once, for other programs; in short form a tiny one."""
        if self.short:
            return self.tiny(shape)
        directory = self.work / shape
        if not (directory / "config.json").exists():  # written last
            limit.run([sys.executable, ROOT / "bench/random_checkpoint.py", directory, "--shape", shape])
        return directory

    def weights(self, shape):
        """Options that name a target of random weights, which every rank makes up."""
        directory = self.tiny(shape) if self.short else self.work / f"{shape}-without-weights"
        if not directory.exists():
            directory.mkdir()
            config = {**json.loads(FAMILY_OF_EXPERTS.read_text()), **EXPERTS_SHAPE} if shape == EXPERTS else json.loads(
                (ROOT / f"tests/launch/public_shapes/{shape}.json").read_text())["config"]
            (directory / "config.json").write_text(json.dumps({**config, "torch_dtype": "bfloat16"}))
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


# ---- the parts ----

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
    found = json.loads(limit.run([on.program, "doctor", "--gpu", "--json"], codes=(0, 1)).stdout_text)
    yield {"gpus": found["gpus"], "failed": [each["text"] for each in found["checks"] if each["status"] == "failed"]}


def micro(on, limit):
    """A build with switches runs it once more without overlap of kernels."""
    for off in ("", "overlap") if has_switches(on) else ("",):
        ended = limit.run([on.options.tests, "--gtest_filter=GpuMicro.*"], environment={"ENTRODRAFT_GPU_OFF": off})
        yield {"off": off, **{name: float(value) for name, value in re.findall(r"^micro: (\w+) (\S+)$", ended.stdout_text, re.M)}}


def has_switches(on):
    """True where the build reads ENTRODRAFT_GPU_OFF (dist/rank/kernel_launch.cuh)."""
    files = [pathlib.Path(program) for program in (on.program, on.options.tests)]
    return all(file.is_file() and b"ENTRODRAFT_GPU_OFF" in file.read_bytes() for file in files)


def suites_of(on, limit):
    """Suites of the tests, those of kernels first; without what `micro` runs by itself."""
    listed = limit.run([on.options.tests, "--gtest_list_tests"]).stdout_text.splitlines()
    suites = [line.split(".")[0] for line in listed if line and not line.startswith((" ", "Running", "GpuMicro"))]
    order = ("Kernels", "VerifiedRows", "Decoder", "Families")
    suites.sort(key=lambda suite: next((i for i, name in enumerate(order) if name in suite), len(order)))
    return [suite for suite in suites if not on.options.suites or re.search(on.options.suites, suite)]


def suite_line(on, limit, suite):
    """Runs one suite; (fields, whether it passed)."""
    began, line = time.monotonic(), {"suite": suite}
    try:
        ended = limit.run([on.options.tests, f"--gtest_filter={suite}.*", "--gtest_brief=0"], codes=(), most=limit.seconds * 0.9)
    except OutOfTime as error:
        return {**line, "timed_out": str(error), "took_s": round(time.monotonic() - began, 1)}, False
    lines = ended.stdout_text.splitlines()

    def named(mark):  # with the time, so that the list at the end does not count again
        return [each.split("] ")[1].split(" (")[0].split(",")[0] for each in lines if each.startswith(mark) and " (" in each]

    line.update(passed=len(named("[       OK ]")), failed=named("[  FAILED  ]")[:MAX_FAILURES], skipped=len(named("[  SKIPPED ]")))
    if ended.returncode:
        line["told"] = [each for each in lines if not each.startswith("[")][-MAX_TOLD:]
    if ended.returncode not in (0, 1):
        started = [each.split("] ")[1] for each in lines if each.startswith("[ RUN      ]")]
        line.update(crashed=started[-1] if started else "", code=ended.returncode, error=ended.stderr_text.strip().splitlines()[-3:])
    return {**line, "took_s": round(time.monotonic() - began, 1)}, ended.returncode == 0


def tests(on, limit):
    """Suites side by side: their references are computed on the CPU, and nothing is timed."""
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max(1, min(MAX_JOBS, (os.cpu_count() or 1) // 2))) as pool:
        for line, passed in pool.map(lambda suite: suite_line(on, limit, suite), suites_of(on, limit)):
            failed += not passed
            yield line
    if failed:
        raise Failed(f"{failed} suites did not pass")


def pass_lines(on, shown, shape):
    """Of bench latency's JSON, a line for each context."""
    known, gpus = on.predicted(shown["environment"]["device"], shown["target_shape"]), shown["tensor_parallel"]
    for passes in shown["contexts"]:
        by_rows, context = {each["rows"]: each["median_ms"] for each in passes["target"]}, passes["context"]
        one = by_rows[1]
        line = {"shape": shape, "device": shown["environment"]["device"], "dtype": shown["environment"]["dtype"], "gpus": gpus,
                "context": context, "t1_ms": one, **on.beside(known, 1, context, one, gpus=gpus)}
        for rows in (rows for rows in (2, 4, 8, 16, 17, 33, 64, 128) if rows in by_rows):
            line[f"t{rows}_over_t1"] = round(by_rows[rows] / one, 3)
        if 8 in by_rows:
            line.update({f"t8_{name}": value for name, value in on.beside(known, 8, context, by_rows[8], gpus=gpus).items()})
        if gpus > 1:
            line["sums_us"] = {each["name"].split(", ")[-1]: round(each["median_ms"] * 1e3, 2) for each in shown["collectives"]
                               if each["name"].startswith("all-reduce")}
        weights, rate = shown["weight_bytes_per_rank"], shown["read_rate_bytes_per_second"]
        yield {**line, "read_rate_gb_per_s": round(rate / 1e9, 1), "share_of_read_rate": round(weights / rate / (one / 1e3), 3)}


def on_ranks(count):
    return ["mpirun", "-n", count, "--oversubscribe", "--bind-to", "none", *AS_ROOT] if count > 1 else []


def latency(on, limit, shape, contexts, rows, repetitions, more=(), ranks=1, environment=None):
    return json.loads(limit.run([
        *on_ranks(ranks), on.program, "bench", "latency", *on.weights(shape), *on.device, *more, "--dtype", "bfloat16", "--rows", rows, "--repetitions",
        repetitions, "--context", ",".join(map(str, contexts)), "--max-context", max(contexts) + max(rows, 9) + 8, "--json"],
        environment=environment).stdout_text)


def passes(on, limit):
    """The small model first, then the context that matters most; the longest, whose prompt takes its time, last."""
    settings = [("opt-125m", (1000, 64), 17, 30), ("llama-3.1-8b", (1000, 4000, 64), 17, 30), (EXPERTS, (1000,), 9, 30),
                ("llama-3.1-8b", (1000,), 128, 3), ("opt-6.7b", (1000,), 17, 30), ("llama-3.1-8b", (30000,), 17, 10)]
    for shape, contexts, rows, repetitions in [("opt-125m", (8, 3), 8, 2), (EXPERTS, (8,), 8, 2)] if on.short else settings:
        yield from pass_lines(on, latency(on, limit, shape, contexts, rows, repetitions), shape)


def switches(on, limit):
    """A pass of one row without one of the things that are to make it faster."""
    if not has_switches(on):
        raise Missing("a build with -DENTRODRAFT_GPU_SWITCHES=ON")
    for shape, context in [("opt-125m", 8)] if on.short else [("llama-3.1-8b", 1000), ("opt-125m", 1000)]:
        with_all = None
        for off in ("", "overlap", "carve-out"):
            shown = latency(on, limit, shape, [context], 1, 2 if on.short else 30, environment={"ENTRODRAFT_GPU_OFF": off})
            one, layers = shown["contexts"][0]["target"][0]["median_ms"], shown["target_shape"]["layers"]
            with_all = with_all or one
            yield {"shape": shape, "context": context, "off": off, "t1_ms": one, "us_a_layer": round((one - with_all) / layers * 1e3, 3)}


def torch(on, limit):
    """The same by a library's kernels, where the program was built with them."""
    for shape in ("opt-125m",) if on.short else ("opt-125m", "llama-3.1-8b"):
        try:
            passes = latency(on, limit, shape, [8 if on.short else 1000], 8, 2 if on.short else 30, ["--backend", "torch"])
        except Failed as failed:
            if "-DENTRODRAFT_TORCH=ON" in str(failed):
                raise Missing("a build with -DENTRODRAFT_TORCH=ON") from failed
            raise
        beside = {name: passes["target"][0][name] for name in ("native_ms", "over_native")}
        yield from ({"backend": "torch", **beside, **line} for line in pass_lines(on, passes, shape))


def chains(on, limit):
    """A step of the draft's loop on the device: a draft of nine tokens less one of one, over eight."""
    settings = [("opt-125m", (1000, 64)), ("llama-3.2-1b", (1000, 30000))]
    for shape, contexts in [("opt-125m", (8,))] if on.short else settings:
        shown = latency(on, limit, shape, contexts, 1, 2 if on.short else 30, ["--draft", on.weights(shape)[1]])
        known = on.predicted(shown["environment"]["device"], shown["target_shape"])
        for passes in shown["contexts"]:
            step, context = passes["draft"]["median_ms"], passes["context"]
            yield {"shape": shape, "context": context, "draft_of_1_ms": passes["first_draft"]["median_ms"], "step_ms": round(step, 4),
                   **on.beside(known, 1, context, step, in_loop=True)}


METRICS = {  # of ncu, by the field that shows them: microseconds, bytes, warps that wait for code and for memory, issue slots in use
    "us": "gpu__time_duration.sum", "bytes": "dram__bytes_read.sum",
    "no_instruction": "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio",
    "long_scoreboard": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "issue_percent": "sm__inst_issued.avg.pct_of_peak_sustained_active", "waves": "launch__waves_per_multiprocessor"}
OF_A_LAYER = "multiply_tensor|multiply_heads|multiply_experts|attend_tiles|attend_latents|add_and_norm|place_"


def kernel_lines(text):
    """Of ncu's CSV: by kernel how often it ran, medians of the metrics, those that took longest first."""
    begin = text.find('"ID"')
    if begin < 0:
        raise Failed(f"ncu printed no table: {text.strip().splitlines()[-1:]}")
    fields, runs = {metric: field for field, metric in METRICS.items()}, {}
    for row in csv.DictReader(io.StringIO(text[begin:])):
        if row.get("Metric Name") in fields:
            name = re.sub(r"\(.*", "", row["Kernel Name"])
            runs.setdefault(name, {}).setdefault(fields[row["Metric Name"]], []).append(float(row["Metric Value"].replace(",", "")))
    lines = [{"kernel": name, "launches": len(of["us"]), "median_us": round(statistics.median(of["us"]) / 1e3, 2),
              "total_us": round(sum(of["us"]) / 1e3, 1), "gb_per_s": round(sum(of.get("bytes", [0])) / max(sum(of["us"]), 1), 1),
              **{field: round(statistics.median(values), 3) for field, values in of.items() if field not in ("us", "bytes")}}
             for name, of in runs.items() if "us" in of]
    return sorted(lines, key=lambda line: -line["total_us"])


def kernels(on, limit):
    """Of decoding passes: what is launched before them is the prompt's and the first of each form. Caches and clocks are left as they are."""
    if not shutil.which("ncu"):
        raise Missing("ncu is not on the path")
    for shape, dtype, context in [("opt-125m", "bfloat16", 8)] if on.short else [
            ("llama-3.1-8b", "bfloat16", 1000), ("llama-3.1-8b", "int4", 1000), ("opt-125m", "bfloat16", 1000)]:
        ended = limit.run([
            "ncu", "--clock-control", "none", "--cache-control", "none", "--graph-profiling", "node", "--print-units", "base", "--csv",
            "--kernel-name", f"regex:{OF_A_LAYER}", "--launch-skip", 8 if on.short else 1200, "--launch-count", 8 if on.short else 48,
            "--metrics", ",".join(METRICS.values()), on.program, "bench", "latency", *on.weights(shape), *on.device, "--dtype", dtype,
            "--rows", 1, "--repetitions", 1 if on.short else 30, "--context", context, "--max-context", context + 64])
        for line in kernel_lines(ended.stdout_text):
            yield {"shape": shape, "dtype": dtype, "context": context, **line}


def prompts(on, limit):
    shape, lengths = ("llama-3.1-8b", (24,)) if on.short else ("llama-3.1-8b", gpu_path.PROMPTS)
    model = on.weights(shape)
    device = latency(on, limit, shape, [8], 1, 1)
    known = on.predicted(device["environment"]["device"], device["target_shape"])
    of_codes = [(dtype, lengths[len(lengths) // 2]) for dtype in ("int8", "int4")]
    for dtype, tokens in [*(("bfloat16", length) for length in lengths), *of_codes]:
        output = on.generated(limit, "prompts", *model, *on.device, "--dtype", dtype, "--input", on.prompts([tokens] * 3),
                              "--max-new-tokens", 1, "--max-context", tokens + 16, "--ignore-eos")
        measured = statistics.median(json.loads(line)["stats"]["ttft_ms"] for line in output.read_text().splitlines()[1:])
        line = {"shape": shape, "dtype": dtype, "tokens": tokens, "ttft_ms": measured, "tokens_per_second": round(tokens / measured * 1e3)}
        if known and dtype == "bfloat16":
            prompt = gpu_path.predicted_prompt(known[0], on.kernels, known[1], tokens)
            first = gpu_path.predicted_pass(known[0], on.kernels, known[1], 1, 1, tokens).total  # of the last token
            line.update(predicted_ms=round((prompt.total + first) * 1e3, 2), predicted_share_of_rate=round(prompt.share, 3),
                        share_of_rate=round(prompt.products * 1e3 / measured, 3), goal=gpu_path.GOAL)
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
        yield from pass_lines(on, latency(on, limit, shape, *(([8], 8, 2) if on.short else ([1000], 16, 30)), ranks=count), shape)
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


def nccl_version(on, limit):
    """Of the NCCL that the program loads, as (2, 30, 7); () where its doctor does not say."""
    found = json.loads(limit.run([on.program, "doctor", "--gpu", "--repetitions", 1, "--json"], codes=(0, 1)).stdout_text)
    said = re.search(r"NCCL (\d+)\.(\d+)\.(\d+)", " ".join(each["text"] for each in found["checks"]))
    return tuple(map(int, said.groups())) if said else ()


def nccl(on, limit):
    """NCCL refuses two ranks of one GPU unless they take themselves for two hosts, which speak over a network, or, from 2.30 on, where
    its own variable says so: then over the GPU's memory, as those of several GPUs do."""
    if not shutil.which("mpirun") or not pathlib.Path(on.options.mpi_tests).exists():
        raise Missing("mpirun or test_dist_mpi is not here")
    one = [on.options.mpi_tests, "--gtest_filter=Nccl*", "--gtest_color=no"]
    version = nccl_version(on, limit)
    hosts = [["-n", 1, "-x", f"NCCL_HOSTID={name}", *one] for name in ("first", "second")]
    settings = [("two hosts", 2, [*hosts[0], ":", *hosts[1]])]
    if version >= (2, 30):
        shared = {"NCCL_MULTI_RANK_GPU_ENABLE": 1, "NCCL_HOSTID": "same", "NCCL_NVLS_ENABLE": 0, "NCCL_MAX_CTAS": 4,
                  "CUDA_DEVICE_MAX_CONNECTIONS": 8}
        variables = [word for name, value in shared.items() for word in ("-x", f"{name}={value}")]
        settings += [("one GPU", ranks, ["-n", ranks, *variables, *one]) for ranks in (2, 4)]
    failed = []
    for name, ranks, arguments in settings:
        ended = limit.run(["mpirun", *AS_ROOT, "--oversubscribe", "--bind-to", "none", *arguments], codes=())
        counts = {kind: len(re.findall(rf"^\[ +{kind} +\] Nccl.*\(", ended.stdout_text, re.M)) for kind in ("OK", "FAILED", "SKIPPED")}
        races = {f"{kind}_{field}": int(value) for kind, edges, wrong in re.findall(
            r"^(guarded|unguarded): (\d+) early edges, (\d+) of \d+ launches wrong", ended.stdout_text, re.M)
            for field, value in (("early_edges", edges), ("wrong_launches", wrong))}
        yield {"as": name, "ranks": ranks, "nccl": ".".join(map(str, version)), "code": ended.returncode,
               **{kind.lower(): count for kind, count in counts.items()}, **races}
        if not counts["OK"] + counts["FAILED"] + ended.returncode:
            raise Missing("the tests skip themselves: no NCCL in the build, or fewer GPUs than ranks")
        if ended.returncode:
            failed.append(f"{ranks} ranks as {name}: " +
                          (ended.stderr_text.strip().splitlines() or ["exit code " + str(ended.returncode)])[-1])
    if failed:
        raise Failed("; ".join(failed))


def rounds(on, limit):
    """The first on random weights at a given acceptance, the second of the demo pair."""
    for name, file, arguments in (
            ("opt-6.7b and opt-125m", on.prompts([32] * 8), [
                *on.weights("opt-125m" if on.short else "opt-6.7b"), "--draft", on.weights("opt-125m")[1], "--temperatures", 0,
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


def library(on, limit):
    """torch.compile on the same GPU: what our t1_ms of llama-3.1-8b stands beside."""
    words = ["--device", "cpu", "--sizes", "64,128,4,2,16,100", "--layers", "1,2", "--context", 8, "--repetitions", 2, "--eager"] if on.short else []
    ended = limit.run([sys.executable, ROOT / "bench/peers/compiled.py", *words], codes=(0, 77))
    if ended.returncode:
        raise Missing(ended.stdout_text.strip())
    yield json.loads(ended.stdout_text)


def peers(on, limit):
    script = ROOT / "bench/peers/transformers.py"
    common = ["--binary", on.program, *on.device, "--dtypes", "bfloat16", "--repetitions", 3, "--limit", 4]
    for shape in ("llama-3.1-8b", "opt-6.7b", "opt-125m"):
        ended = limit.run([sys.executable, script, "--target", on.written(limit, shape), "--plain-only", *common])
        yield {"shape": shape, "table": ended.stdout_text.splitlines()}
    ended = limit.run([sys.executable, script, *common, "--modes", "constant 3", "--modes", "constant 5"])
    yield {"shape": "demo pair", "table": ended.stdout_text.splitlines()}


PARTS = {  # in the order in which they run, with seconds
    machine: 20, micro: 15, tests: 90, nccl: 60, passes: 150, switches: 50, torch: 40, kernels: 110, chains: 60, prompts: 60, texts: 90,
    ranks: 40, several: 120, rounds: 300, library: 120, sanitizer: 90, peers: 600}
NAMES = {part.__name__: part for part in PARTS}
DEFAULT = [name for name in NAMES if name not in ("rounds", "library", "peers")]
