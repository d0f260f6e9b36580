"""What the benches share: runs of `generate`, timed by their own summary, and intervals over ratios."""

import json
import math
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEMO = ROOT / "model/demo"
STUDENT_T = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
PAIRS = range(2, 11)  # that interval() knows
AS_ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []


def write_prompts(path, times):
    """The demo's prompts, `times` times over, each time with ids of their own."""
    asked = [json.loads(line) for line in (DEMO / "prompts.jsonl").read_text().splitlines()]
    path.write_text("".join(json.dumps({**line, "id": f"{line.get('id')}-{turn}"}) + "\n"
                            for turn in range(times) for line in asked))


def generate(binary, ranks, prompts, output, *arguments):
    """New tokens a second between the first round and the last result, and the summary.

    Each rank is bound to a core of its own; with `ranks` 0 the binary is started by itself, on all cores.
    """
    launcher = ["mpirun", "-n", str(ranks), "--bind-to", "core", "--map-by", "core", *AS_ROOT] if ranks > 0 else []
    command = [*launcher, str(binary), "generate", "--target", str(DEMO / "target"), "--input", str(prompts),
               "--output", str(output), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nexit code {ended.returncode}: {ended.stderr}")
    tokens = int(re.search(r"(\d+) new;", ended.stderr).group(1))
    seconds = float(re.search(r"in ([\d.]+) s on", ended.stderr).group(1))
    return tokens / seconds, ended.stderr


def texts_of(output):
    return [(line["id"], line["token_ids"]) for line in map(json.loads, output.read_text().splitlines())]


def interval(ratios):
    """Mean and 95 % interval (Student's t)."""
    mean = sum(ratios) / len(ratios)
    deviation = math.sqrt(sum((r - mean) ** 2 for r in ratios) / (len(ratios) - 1))
    half = STUDENT_T[len(ratios)] * deviation / math.sqrt(len(ratios))
    return f"{mean:.3f} ({mean - half:.3f} to {mean + half:.3f})"
