"""What a GPU reaches: passes against its memory, drafting, whole rounds, texts, ranks that share it.

    python3 bench/gpu.py [--build build] [--work DIR] [--parts passes,rounds,texts,ranks,peers,sanitizer]
                         [--shapes llama-3-8b,opt-6.7b,opt-2.7b,opt-125m] [--dtypes bfloat16,int8,float8]

    passes     `bench latency --device cuda --rows 17` on random weights of each shape in each type: t(r), and the share of the
               limit (weight bytes over the rate at which the GPU reads an array)
    rounds     `bench compare --synthetic-acceptance` on random weights of OPT-6.7B and OPT-125M: measured over predicted
               speed-up; and what the entropy and the stop decision add to a draft step
    texts      the demo pair: float32 against the CPU; bfloat16, speculative against plain, 64 prompts x 512 tokens
    ranks      two and four ranks on the one GPU say what one rank says
    peers      transformers on the same GPU: plain decoding of each shape, and its assisted generation on the demo pair
    sanitizer  compute-sanitizer memcheck and racecheck over the tests of kernels, passes and the engine

Each part says what it saw and how long it took; one that fails does not end the others. Random checkpoints are written
into --work and kept. Needs a GPU, a build with CUDA and numpy; mpirun for `ranks`; torch and
transformers for `peers`.
"""

import argparse
import itertools
import json
import pathlib
import subprocess
import tempfile
import time
import traceback

from runs import AS_ROOT, DEMO, ROOT, run, texts_of, write_prompts

PAIR = ["--target", DEMO / "target", "--draft", DEMO / "draft"]
CUDA = ["--device", "cuda"]


def checkpoint(work, shape):
    directory = work / shape
    if not (directory / "config.json").exists():
        run(["python3", ROOT / "bench/random_checkpoint.py", directory, "--shape", shape])
    return directory


def passes(program, work, options):
    print("shape        weights    t(1) ms  of limit  t(16)/t(1)  t(17)/t(1)  read rate GB/s  device")
    for shape, dtype in itertools.product(options.shapes.split(","), options.dtypes.split(",")):
        shown = json.loads(run([program, "bench", "latency", "--target", checkpoint(work, shape), *CUDA, "--dtype",
                                dtype, "--rows", 17, "--repetitions", 50, "--max-context", 1024, "--json"]).stdout)
        by_rows = {row["rows"]: row for row in shown["target"]}
        first = by_rows[1]["median_ms"]
        print(f"{shape:12} {dtype:9} {first:8.3f} {1 / by_rows[1]['ratio']:9.3f} {by_rows[16]['median_ms'] / first:11.3f} "
              f"{by_rows[17]['median_ms'] / first:11.3f} {shown['read_rate_bytes_per_second'] / 1e9:15.0f}  "
              f"{shown['environment']['device']}", flush=True)


def rounds(program, work, options):
    prompts = work / "prompts.jsonl"
    write_prompts(prompts, 1)
    print(run([program, "bench", "compare", "--target", checkpoint(work, "opt-6.7b"), "--draft",
               checkpoint(work, "opt-125m"), *CUDA, "--dtype", "bfloat16", "--input", prompts, "--prompts", 8,
               "--max-new-tokens", 128, "--temperatures", 0, "--rules", "constant:2,constant:4,constant:7",
               "--synthetic-acceptance", options.acceptance, "--max-context", 1024]).stdout)
    print(run([program, "bench", "compare", *PAIR, *CUDA, "--dtype", "bfloat16", "--input", prompts, "--prompts", 8,
               "--temperatures", "0,1", "--rules", "static,expected-gain"]).stdout)


def texts(program, work, options):
    prompts, output = work / "prompts.jsonl", work / "texts.jsonl"
    write_prompts(prompts, 1)

    def said(*arguments):
        output.unlink(missing_ok=True)
        run([program, "generate", *arguments, "--input", prompts, "--output", output, "--quiet"])
        return texts_of(output)

    target = PAIR[:2]
    on_cpu = said(*target, "--device", "cpu", "--dtype", "float32")
    on_gpu = said(*target, *CUDA, "--dtype", "float32")
    print(f"float32, greedy: {sum(a == b for a, b in zip(on_cpu, on_gpu))} of {len(on_cpu)} texts are the CPU's")
    for sampling in ([], ["--temperature", 1, "--acceptance", "gumbel"]):
        length = ["--dtype", "bfloat16", "--max-new-tokens", 512, "--ignore-eos", *sampling]
        plain, drafted = said(*target, *CUDA, *length), said(*PAIR, *CUDA, *length)
        print(f"bfloat16 {' '.join(map(str, sampling)) or 'greedy'}: {sum(a == b for a, b in zip(plain, drafted))} of "
              f"{len(plain)} texts of 512 tokens are plain decoding's")


def ranks(program, work, options):
    prompts, output = work / "few.jsonl", work / "ranks.jsonl"
    prompts.write_text("".join((DEMO / "prompts.jsonl").read_text().splitlines(keepends=True)[:8]))
    expected = None
    for count in (1, 2, 4):
        output.unlink(missing_ok=True)
        launcher = ["mpirun", "-n", count, "--oversubscribe", "--bind-to", "none", *AS_ROOT] if count > 1 else []
        began = time.monotonic()
        run([*launcher, program, "generate", *PAIR, *CUDA, "--dtype", "float32", "--max-new-tokens", 48, "--input",
             prompts, "--output", output, "--quiet"])
        said = texts_of(output)
        expected = expected or said
        print(f"{count} ranks: {sum(a == b for a, b in zip(said, expected))} of {len(said)} texts are one rank's, "
              f"{time.monotonic() - began:.1f} s", flush=True)


def peers(program, work, options):
    script = ROOT / "bench/peers/transformers.py"
    common = ["--binary", program, *CUDA, "--dtypes", "bfloat16", "--repetitions", 3, "--limit", 4]
    for shape in options.shapes.split(","):
        model = checkpoint(work, shape)
        print(shape)
        print(run(["python3", script, "--target", model, "--plain-only", *common]).stdout, flush=True)
    print(run(["python3", script, *common, "--modes", "constant 3", "--modes", "constant 5"]).stdout)


def sanitizer(program, work, options):
    tests = pathlib.Path(options.build) / "test_gpu_on_device"
    few = "--gtest_filter=GpuKernels.*:GpuDecoder.*:GpuEngine.ASource*"
    for tool in ("memcheck", "racecheck"):
        ended = subprocess.run(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", str(tests), few],
                               capture_output=True, text=True, check=False)
        print(f"{tool}: exit code {ended.returncode}; {ended.stdout.strip().splitlines()[-1]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--work", type=pathlib.Path, help="where random checkpoints go and stay [a temporary folder]")
    parser.add_argument("--parts", default="texts,ranks,passes,rounds,peers,sanitizer")
    parser.add_argument("--shapes", default="llama-3-8b,opt-6.7b,opt-2.7b,opt-125m")
    parser.add_argument("--dtypes", default="bfloat16,int8,float8", help="of the part passes")
    parser.add_argument("--acceptance", type=float, default=0.8, help="of synthetic rounds [0.8]")
    options = parser.parse_args()
    program = pathlib.Path(options.build) / "entrodraft"
    parts = {"passes": passes, "rounds": rounds, "texts": texts, "ranks": ranks, "peers": peers,
             "sanitizer": sanitizer}
    unknown = [part for part in options.parts.split(",") if part not in parts]
    if unknown:
        parser.error(f"--parts {','.join(unknown)}: not among {', '.join(parts)}")
    with tempfile.TemporaryDirectory() as directory:
        work = options.work or pathlib.Path(directory)
        work.mkdir(parents=True, exist_ok=True)
        failed = []
        for part in options.parts.split(","):
            print(f"== {part}", flush=True)
            began = time.monotonic()
            try:
                parts[part](program, work, options)
            except (Exception, SystemExit):  # noqa: BLE001: the other parts are worth their time
                traceback.print_exc()
                failed.append(part)
            print(f"-- {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
