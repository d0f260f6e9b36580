"""What the benches share: options, tables and files, commands that must not fail, runs of `generate` with their summaries,
intervals over ratios, and what the machine is. Needs the standard library only. bench/tasks runs commands in its own way
(measure.py): there a line may fail without ending the run."""

import argparse
import json
import math
import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEMO = ROOT / ("model/demo" if (ROOT / "model").is_dir() else "demo")  # in the installed tree
STUDENT_T = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
PAIRS = range(2, 11)  # that benches take
AS_ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []


class Parser(argparse.ArgumentParser):
    """Complains in one line, with exit code 2."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def end_without_numpy(missing):
    """Ends a script that could not import numpy, in one line, with exit code 2."""
    print(f"{pathlib.Path(sys.argv[0]).name}: needs numpy (pip install numpy): {missing}", file=sys.stderr)
    sys.exit(2)


def number(least=-math.inf, most=math.inf, kind=float):
    """A parser of numbers in a range, for argparse."""
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not least <= value <= most:
            limits = f"{least:g} to {most:g}" if math.isfinite(most) else f"at least {least:g}"
            raise argparse.ArgumentTypeError(f"{text!r} must be a {'whole ' * (kind is int)}number, {limits}")
        return value
    return parse


def comma_list(kind, known=None):
    """A parser of comma-separated lists for argparse, whose values are all of `known` where that is given."""
    def parse(text):
        values = [kind(one.strip()) for one in text.split(",") if one.strip()]
        wrong = [value for value in values if known and value not in known]
        if not values or wrong:
            raise argparse.ArgumentTypeError(f"{wrong[0]} is unknown; known are {', '.join(known)}" if wrong else
                                             "the list is empty")
        return values
    return parse


def file_name(text):
    """A file to write, for argparse; these scripts print to stdout anyway."""
    if text in ("", "-"):
        raise argparse.ArgumentTypeError("name a file")
    return pathlib.Path(text)


def refuse_overwriting(parser, output, files):
    """Ends with exit code 2 where --output is one of the files that are read."""
    for file in files:
        if output and os.path.exists(file) and os.path.exists(output) and os.path.samefile(file, output):
            parser.error(f"--output and {file} are the same file")


def counted(number_, noun):
    return f"{number_} {noun}{'' if number_ == 1 else 's'}"


def aligned(table):
    """Lines of a table of texts: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return "".join("  ".join(cell.rjust(width) if i else cell.ljust(width)
                             for i, (cell, width) in enumerate(zip(row, widths))).rstrip() + "\n" for row in table)


def report(text, result, output, as_json=False):
    """Prints the text, or the result as JSON; writes that to the file `output`, too, replaced once it is whole."""
    written = json.dumps(result, indent=2) + "\n"
    if output:
        part = output.with_name(output.name + ".part")
        try:
            part.write_text(written, encoding="utf-8")
            part.replace(output)
        except OSError as error:
            raise SystemExit(f"{output}: {error.strerror}") from None
    print(written if as_json else text, end="")


def program():
    """entrodraft: the build's, or that of the installed tree that these scripts lie in, or the one on the path."""
    known = (ROOT / "build/entrodraft", ROOT.parent.parent / "bin/entrodraft")
    return next((str(path) for path in known if path.is_file()), None) or shutil.which("entrodraft") or "entrodraft"


def run(command):
    """Standard output and error of a command; where it fails, the bench ends with the command and its complaint."""
    command = [str(part) for part in command]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SystemExit(f"{command[0]}: {error.strerror}") from None
    if ended.returncode != 0:
        raise SystemExit(f"{shlex.join(command)}\nexit code {ended.returncode}: {ended.stderr.strip()}")
    return ended


def machine():
    """The processor's name and how many cores this process may use."""
    name, about = "unknown processor", pathlib.Path("/proc/cpuinfo")
    if about.exists():
        lines = about.read_text(encoding="utf-8").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    return {"cpu": name,
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()}


def write_prompts(path, times):
    """The demo's prompts, `times` times over, each time with ids of their own."""
    asked = [json.loads(line) for line in (DEMO / "prompts.jsonl").read_text().splitlines()]
    path.write_text("".join(json.dumps({**line, "id": f"{line.get('id')}-{turn}"}) + "\n"
                            for turn in range(times) for line in asked))


def generate(binary, ranks, prompts, output, *arguments):
    """New tokens a second between the first round and the last result, and the run's summary (docs/formats.md).

    Each rank is bound to a core of its own; with `ranks` 0 the binary is started by itself, on all cores.
    """
    launcher = ["mpirun", "-n", str(ranks), "--bind-to", "core", "--map-by", "core", *AS_ROOT] if ranks > 0 else []
    file = pathlib.Path(f"{output}.summary.json")
    run([*launcher, binary, "generate", "--target", DEMO / "target", "--input", prompts, "--output", output,
         "--summary", file, "--quiet", *arguments])
    summary = json.loads(file.read_text(encoding="utf-8"))
    return summary["tokens_per_second"], summary


def texts_of(output):
    return [(line["id"], line["token_ids"]) for line in map(json.loads, output.read_text().splitlines())]


def students_t(n):
    """Of a 95 % interval over n values: the table, beyond it the expansion in 1 / (n - 1)."""
    if n in STUDENT_T:
        return STUDENT_T[n]
    z, df = 1.959964, n - 1
    return (z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
            + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3))


def ratio_interval(values, weights):
    """95 % interval of sum(values) / sum(weights) over texts, as the program has it: Student's, of its linearised logarithm;
    both ends are the ratio where it is 0 or of a single text."""
    total, weight, n = sum(values), sum(weights), len(values)
    if not total or n < 2:
        return [total / weight if weight else 0.0] * 2
    squares = sum((value / total - each / weight) ** 2 for value, each in zip(values, weights))
    factor = math.exp(students_t(n) * math.sqrt(n / (n - 1) * squares))
    return [total / weight / factor, total / weight * factor]


def median_interval(values):
    """Median and its 95 % interval (by ranks, whatever the distribution); of fewer than 6 values, their least and most."""
    count, below, chance = len(values), 0, 0.5 ** len(values)
    while chance <= 0.025:
        below += 1
        chance += math.comb(count, below) * 0.5 ** count
    ranked = sorted(values)
    below = max(below - 1, 0)
    return statistics.median(ranked), ranked[below], ranked[count - 1 - below]


def interval(ratios):
    """Mean and 95 % interval (Student's t)."""
    mean = sum(ratios) / len(ratios)
    deviation = math.sqrt(sum((r - mean) ** 2 for r in ratios) / (len(ratios) - 1))
    half = students_t(len(ratios)) * deviation / math.sqrt(len(ratios))
    return f"{mean:.3f} ({mean - half:.3f} to {mean + half:.3f})"
