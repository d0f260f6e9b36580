#!/usr/bin/env python3
"""The first ten minutes on a machine with a GPU: what says most comes first, a line of JSON for each thing seen.

    python3 tests/gpu_first.py [--build build] [--output first.jsonl] [--seconds 560] [--parts LIST] [--work DIR] [--table CHARACTERS]

    machine    driver, GPU, clocks, what the program sees and `doctor --gpu` finds
    micro      the GPU's rate of reading, a kernel of a graph, a round trip to pinned memory
    tests      test_gpu_on_device, a process and a line for each suite: kernels, then decoder, then engine
    nccl       test_dist_mpi's NCCL cases: two ranks that take themselves for two hosts; from NCCL 2.30 on two and four of one GPU
    passes     passes of 1 to 17 rows at contexts of 64 to 30,000, and of 1 to 128 rows; random weights, bfloat16: beside the
               rate at which the GPU reads and beside what bench/gpu_path.py predicts; one shape with experts
    switches   such a pass without overlap of kernels, and without carve-outs, in a build with -DENTRODRAFT_GPU_SWITCHES=ON
    torch      the same passes by a library's kernels, where the program has `--backend torch`
    kernels    microseconds, bytes and waits of each kernel of such passes, by ncu
    chains     a step of the draft's loop on the device: drafts of 9 tokens less drafts of 1
    prompts    time to the first token of prompts of 512, 2,048 and 8,192 tokens, beside the prediction; of 2,048 in int8 and int4
    texts      demo pair: float32 against the CPU; bfloat16, speculative against plain, greedy and gumbel, 64 x 512 tokens
    ranks      two and four ranks on the one GPU emit what one rank emits
    several    passes and sums over two, four and eight GPUs, and texts with a draft against plain ones there
    sanitizer  compute-sanitizer memcheck, racecheck and initcheck over the tests of kernels
    rounds, library, peers   only by --parts: rounds at a synthetic acceptance over prediction; torch.compile and transformers on the same GPU

Every line has `part`; the last of a part `status` (ok, failed, timed out, missing, not run) and `seconds`. Each part has a limit of
its own and --seconds bounds all: what hangs or fails is such a line, and the next part goes on. Needs the standard library only, and of a
build the program and its tests, which gpu_carry.py packs for a borrowed machine. With --device cpu and --short all that a CPU can do
runs in seconds, as gpu_first_test.py has it. Exit code 1 where a part failed, 77 where there is no GPU.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from gpu_parts import DEFAULT, NAMES, PARTS, Machine  # noqa: E402
from limited import Failed, Limit, Missing, OutOfTime  # noqa: E402
from runs import comma_list  # noqa: E402

SKIPPED = 77


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


def table_of(lines, most):
    """What was seen, in so many characters: how each part ended and its figures; of a part with too many the first and how many more."""
    parts = {}
    for line in lines:
        parts.setdefault(line["part"], []).append(line)
    heads = {part: f"{part}: {of[-1]['status']}, {of[-1]['seconds']} s. {of[-1].get('why', '')}"[:300] + "\n" for part, of in parts.items()}
    rows = {part: [("  " + " ".join(f"{name}={value}" for name, value in line.items() if name != "part"))[:300] + "\n" for line in of[:-1]]
            for part, of in parts.items()}
    left, shown = most - sum(map(len, heads.values())), {}
    for i, part in enumerate(sorted(rows, key=lambda part: sum(map(len, rows[part])))):  # what the short ones leave is the long ones'
        text, share, end = "", left // (len(rows) - i), "  and {} more, in the file\n"
        for number, row in enumerate(rows[part]):
            rest = end.format(len(rows[part]) - number)
            if len(text) + len(row) + (0 if row is rows[part][-1] else len(rest)) > share:
                text += rest if len(text) + len(rest) <= share else ""
                break
            text += row
        shown[part], left = text, left - len(text)
    return "".join(heads[part] + shown[part] for part in parts)


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
    parser.add_argument("--work", type=pathlib.Path, help="where files go and stay [a temporary folder]")
    parser.add_argument("--output", type=pathlib.Path, help="the same lines, in a file")
    parser.add_argument("--table", type=int, metavar="CHARACTERS", help="print a table of so many at the end, not the lines")
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

    lines = []

    def write(line):
        text = json.dumps(line)
        lines.append(line)
        if options.table is None:
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
    if options.table is not None:
        print(table_of(lines, options.table), end="")
    return 1 if {"failed", "timed out"} & set(seen) else 0


if __name__ == "__main__":
    sys.exit(main())
