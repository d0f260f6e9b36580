#!/usr/bin/env python3
"""What do a target pass of 1 to 9 rows and a prompt cost here, in llama.cpp, in transformers and on libtorch, on the same weights?

    python3 bench/peers/passes.py --target DIR [--llama DIR] [--torch] [--dtypes float32,bfloat16,int8,int4] [--rows 1,2,3,5,9]
        [--prompts 1024] [--context 64] [--repetitions 5] [--json FILE]

Verification is a pass of a few rows over a filled cache, so these times decide what speculation can gain. Any Llama
checkpoint serves, for instance one of `bench/random_checkpoint.py OUT --shape llama-1b --tokenizer model/demo/target`.
Contenders take turns, a process each, in an order that rotates; a repetition's figure is the median (here), the mean
(llama-bench) of its passes. Ours gives every row's best token, transformers every row's logits, llama-bench the last
row's alone. A prompt is read from an empty cache up to the last row's logits; ours is the time to the first token, with
all that a request takes. int8 and int4 are Q8_0 and Q4_0 in llama.cpp; torch has no such weights on a CPU, and float16
takes it seconds a row. Needs
bench/peers/requirements.txt; without --llama, llama.cpp is left out, without --torch our program on libtorch, which needs
a build with ENTRODRAFT_TORCH.
"""

import argparse
import collections
import json
import pathlib
import statistics
import sys
import tempfile

import gguf_file  # exits with 77 where gguf or numpy is missing; and keeps transformers.py of this folder out of the way

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

from runs import PAIRS, ROOT, interval, machine, run  # noqa: E402
from side_by_side import check_models, warn_of_load  # noqa: E402

DTYPES = ("float32", "bfloat16", "float16", "int8", "int4")


def pass_of(rows):
    return f"{rows} row{'s'[:rows > 1]}"


def prompt_of(tokens):
    return f"prompt of {tokens}"


def prompt_ids(tokens, number):
    """Another text for each number, so that nothing of one serves the next."""
    return [2 + (7 * i + 31 * number) % 251 for i in range(tokens)]


def ours(options, dtype, _, backend="native"):
    shared = ["--target", options.target, "--dtype", dtype, "--threads", options.threads, "--backend", backend]
    told = run([options.binary, "bench", "latency", *shared, "--rows", listed(options.rows), "--context", options.context,
                "--repetitions", options.passes, "--json"])
    times = {pass_of(one["rows"]): one["median_ms"] for one in json.loads(told.stdout)["target"]}
    with tempfile.TemporaryDirectory() as work:
        for tokens in options.prompts:
            lines = [{"prompt_token_ids": prompt_ids(tokens, number)} for number in range(options.passes + 1)]
            prompts = pathlib.Path(work) / "prompts.jsonl"
            prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
            told = run([options.binary, "generate", *shared, "--input", prompts, "--max-new-tokens", 1, "--quiet"])
            first = [json.loads(line)["stats"]["ttft_ms"] for line in told.stdout.splitlines()]
            times[prompt_of(tokens)] = statistics.median(first[1:])
    return times


def on_torch(options, dtype, model):
    return ours(options, dtype, model, "torch")


def llama_cpp(options, dtype, model):
    def bench(tokens, context):
        told = run([options.llama / "bin/llama-bench", "-m", model, "-p", listed(tokens), "-n", 0, "-d", context, "-t",
                    options.threads, "-r", options.passes, "-fa", "on", "-o", "json"])
        return {test["n_prompt"]: test["avg_ns"] / 1e6 for test in json.loads(told.stdout)}

    times = {pass_of(rows): ms for rows, ms in bench(options.rows, options.context).items()}
    if options.prompts:
        times |= {prompt_of(tokens): ms for tokens, ms in bench(options.prompts, 0).items()}
    return times


def transformers(options, dtype, _):
    worker = [sys.executable, pathlib.Path(__file__).resolve(), "--worker", "--target", options.target, "--dtypes", dtype,
              "--rows", listed(options.rows), "--prompts", listed(options.prompts), "--context", options.context,
              "--threads", options.threads, "--passes", options.passes]
    return json.loads(run(worker).stdout)


def time_transformers(options):
    """{what: median ms} of one dtype, as JSON on stdout: a process of its own."""
    import time

    import torch
    import transformers as library

    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    library.logging.disable_progress_bar()
    model = library.AutoModelForCausalLM.from_pretrained(options.target, dtype=getattr(torch, options.dtypes[0])).eval()
    medians = {}

    def time_calls(what, call):
        seconds = []
        for number in range(options.passes + 1):
            began = time.perf_counter()
            call(number).logits.argmax(-1).tolist()
            seconds.append(time.perf_counter() - began)
        medians[what] = statistics.median(seconds[1:]) * 1e3

    for tokens in options.prompts:
        texts = [torch.tensor([prompt_ids(tokens, number)]) for number in range(options.passes + 1)]
        time_calls(prompt_of(tokens), lambda number: model(texts[number], logits_to_keep=1))
    cache = library.DynamicCache()
    model(torch.full((1, options.context), 7), past_key_values=cache)
    for rows in options.rows:
        def verify(_):
            scores = model(torch.full((1, rows), 9), past_key_values=cache)
            cache.crop(-rows)
            return scores
        time_calls(pass_of(rows), verify)
    print(json.dumps(medians))


def compare(options, dtype):
    """{contender: {what: [ms of each repetition]}}"""
    contenders = {"entrodraft": ours}
    with tempfile.TemporaryDirectory() as work:
        model = pathlib.Path(work) / "target.gguf"
        if options.llama:
            gguf_file.write(options.target, model, dtype)
            contenders["llama.cpp"] = llama_cpp
        if dtype in ("float32", "bfloat16"):
            contenders["transformers"] = transformers
            if options.torch:
                contenders["--backend torch"] = on_torch
        times = {name: collections.defaultdict(list) for name in contenders}
        names = list(contenders)
        for repetition in range(options.repetitions):
            first = repetition % len(names)
            for name in names[first:] + names[:first]:
                for what, ms in contenders[name](options, dtype, model).items():
                    times[name][what].append(ms)
            print(f"{dtype}: repetition {repetition + 1} of {options.repetitions}", file=sys.stderr)
    return times


def print_table(dtype, times):
    print(f"\n{dtype}, ms: median of repetitions; the peer's time over ours: mean and 95 % interval, above 1 is slower")
    width = max(map(len, times["entrodraft"]))
    for what, own in times["entrodraft"].items():
        cells = [f"{statistics.median(own):9.3f}"]
        for name, of in times.items():
            if name != "entrodraft":
                ratios = [a / b for a, b in zip(of[what], own)]
                cells.append(f"{name} {statistics.median(of[what]):9.3f}  {interval(ratios)}")
        print(f"{what:{width}}  " + "  ".join(cells))


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def listed(values):
    return ",".join(map(str, values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=pathlib.Path, required=True)
    parser.add_argument("--llama", type=pathlib.Path, help="build of llama.cpp: it holds bin/llama-bench")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/entrodraft")
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["float32"])
    parser.add_argument("--rows", type=numbers, default=[1, 2, 3, 5, 9])
    parser.add_argument("--prompts", type=numbers, default=[], help="also read prompts of so many tokens [none]")
    parser.add_argument("--torch", action="store_true", help="also our program with --backend torch")
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
