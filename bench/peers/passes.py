#!/usr/bin/env python3
"""What does a target pass of 1 to 9 rows cost here, in llama.cpp and in transformers, on the same weights?

    python3 bench/peers/passes.py --target DIR [--llama DIR] [--dtypes float32,bfloat16,int8] [--rows 1,2,3,5,9]
        [--context 64] [--repetitions 5] [--json FILE]

Verification is a pass of a few rows over a filled cache, so these times decide what speculation can gain. Any Llama
checkpoint serves, for instance one of `bench/random_checkpoint.py OUT --shape llama-1b --tokenizer model/demo/target`.
Contenders take turns, a process each, in an order that rotates; a repetition's figure is the median (here), the mean
(llama-bench) of its passes. Ours gives every row's best token, transformers every row's logits, llama-bench the last
row's alone. int8 is Q8_0 in llama.cpp; transformers has no such weights on a CPU. Needs bench/peers/requirements.txt;
without --llama, llama.cpp is left out.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import gguf_file  # exits with 77 where gguf or numpy is missing; and keeps transformers.py of this folder out of the way

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

from runs import PAIRS, ROOT, interval, machine, run  # noqa: E402
from side_by_side import check_models, warn_of_load  # noqa: E402

DTYPES = ("float32", "bfloat16", "float16", "int8")


def ours(options, dtype, _):
    told = run([options.binary, "bench", "latency", "--target", options.target, "--dtype", dtype, "--rows",
                max(options.rows), "--context", options.context, "--threads", options.threads, "--repetitions",
                options.passes, "--json"])
    times = json.loads(told.stdout)["target"]
    return {rows: times[rows - 1]["median_ms"] for rows in options.rows}


def llama_cpp(options, dtype, model):
    told = run([options.llama / "bin/llama-bench", "-m", model, "-p", ",".join(map(str, options.rows)), "-n", 0, "-d",
                options.context, "-t", options.threads, "-r", options.passes, "-fa", "on", "-o", "json"])
    return {test["n_prompt"]: test["avg_ns"] / 1e6 for test in json.loads(told.stdout)}


def transformers(options, dtype, _):
    worker = [sys.executable, pathlib.Path(__file__).resolve(), "--worker", "--target", options.target, "--dtypes", dtype,
              "--rows", ",".join(map(str, options.rows)), "--context", options.context, "--threads", options.threads,
              "--passes", options.passes]
    return {int(rows): ms for rows, ms in json.loads(run(worker).stdout).items()}


def time_transformers(options):
    """{rows: median ms} of one dtype, as JSON on stdout: a process of its own."""
    import time

    import torch
    import transformers as library

    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    library.logging.disable_progress_bar()
    model = library.AutoModelForCausalLM.from_pretrained(options.target, dtype=getattr(torch, options.dtypes[0])).eval()
    cache = library.DynamicCache()
    model(torch.full((1, options.context), 7), past_key_values=cache)
    medians = {}
    for rows in options.rows:
        seconds = []
        for _ in range(options.passes + 1):
            began = time.perf_counter()
            model(torch.full((1, rows), 9), past_key_values=cache).logits.argmax(-1).tolist()
            seconds.append(time.perf_counter() - began)
            cache.crop(-rows)
        medians[rows] = statistics.median(seconds[1:]) * 1e3
    print(json.dumps(medians))


def compare(options, dtype):
    """{contender: {rows: [ms of each repetition]}}"""
    contenders = {"entrodraft": ours}
    with tempfile.TemporaryDirectory() as work:
        model = pathlib.Path(work) / "target.gguf"
        if options.llama:
            gguf_file.write(options.target, model, dtype)
            contenders["llama.cpp"] = llama_cpp
        if dtype != "int8":
            contenders["transformers"] = transformers
        times = {name: {rows: [] for rows in options.rows} for name in contenders}
        names = list(contenders)
        for repetition in range(options.repetitions):
            first = repetition % len(names)
            for name in names[first:] + names[:first]:
                for rows, ms in contenders[name](options, dtype, model).items():
                    times[name][rows].append(ms)
            print(f"{dtype}: repetition {repetition + 1} of {options.repetitions}", file=sys.stderr)
    return times


def print_table(dtype, times):
    print(f"\n{dtype}, ms a pass: median of repetitions; the peer's time over ours: mean and 95 % interval, above 1 is slower")
    for rows, own in times["entrodraft"].items():
        cells = [f"{statistics.median(own):9.3f}"]
        for name, of in times.items():
            if name != "entrodraft":
                ratios = [a / b for a, b in zip(of[rows], own)]
                cells.append(f"{name} {statistics.median(of[rows]):9.3f}  {interval(ratios)}")
        print(f"{rows:3} rows  " + "  ".join(cells))


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=pathlib.Path, required=True)
    parser.add_argument("--llama", type=pathlib.Path, help="build of llama.cpp: it holds bin/llama-bench")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/entrodraft")
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["float32"])
    parser.add_argument("--rows", type=numbers, default=[1, 2, 3, 5, 9])
    parser.add_argument("--context", type=int, default=64, help="tokens in the cache before each pass [64]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--passes", type=int, default=5, help="of each count of rows, in a repetition [5]")
    parser.add_argument("--repetitions", type=int, default=5, choices=PAIRS)
    parser.add_argument("--json", type=pathlib.Path, help="write all times here too")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if any(dtype not in DTYPES for dtype in options.dtypes):
        parser.error(f"--dtypes: of {', '.join(DTYPES)}")
    if options.worker:
        return time_transformers(options)
    check_models(parser, options, "target")
    version = run([options.binary, "--version"]).stdout.split("\n")[0]
    print(", ".join(f"{key} {value}" for key, value in {**machine(), "threads": options.threads, "ours": version,
                                                        "target": options.target.name, "context": options.context}.items()))
    warn_of_load("at the start")
    tables = {dtype: compare(options, dtype) for dtype in options.dtypes}
    for dtype, times in tables.items():
        print_table(dtype, times)
    if options.json:
        options.json.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
