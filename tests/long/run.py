#!/usr/bin/env python3
"""A long run at two ranks: 500 prompts, 100,000 new tokens, sampled with gumbel. Memory and speed must stay flat, and every
text must be plain decoding's.

    tests/long/run.py --binary build/entrodraft

Prints a line for each tenth of the run. Exit code 1 where memory grows by more than 2 % after the first fifth, where a
tenth of the run is slower than the whole by more than a third, or where a text differs.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

DEMO = pathlib.Path(__file__).resolve().parents[2] / "model/demo"
AS_ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
MOST_GROWTH, MOST_SLOWDOWN = 0.02, 1 / 3


def write_prompts(path, count):
    """The demo's prompts in turn, each time with another seed."""
    asked = [json.loads(line) for line in (DEMO / "prompts.jsonl").read_text().splitlines()]
    lines = [json.dumps({**asked[i % len(asked)], "id": i, "seed": i}) + "\n" for i in range(count)]
    path.write_text("".join(lines))


def ranks_of(launcher):
    """Process ids of the ranks, children of mpirun."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == launcher and "entrodraft" in (entry / "comm").read_text():
                found.append(int(entry.name))
        except (OSError, IndexError, ValueError):
            continue  # it has ended meanwhile
    return found


def resident_kb(process):
    try:
        for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


class Follower:
    """New tokens in a growing file of results."""

    def __init__(self, path):
        self.path, self.at, self.tokens, self.part = path, 0, 0, ""

    def read(self):
        if self.path.exists():
            with self.path.open() as file:
                file.seek(self.at)
                self.part += file.read()
                self.at = file.tell()
        *lines, self.part = self.part.split("\n")
        self.tokens += sum(len(json.loads(line)["token_ids"]) for line in lines)
        return self.tokens


def run(command, output):
    """[(seconds, new tokens so far, largest resident kB of a rank)], and the seconds of the whole."""
    began, samples, follower = time.monotonic(), [], Follower(output)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            time.sleep(0.2)
            largest = max((resident_kb(rank) for rank in ranks_of(process.pid)), default=0)
            if largest:
                samples.append((time.monotonic() - began, follower.read(), largest))
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}\nexit code {process.returncode}: {process.stderr.read()}")
    return samples


def tenths(samples):
    """For each tenth of the tokens: tokens a second in it, and the largest resident size up to its end."""
    first = next(i for i, sample in enumerate(samples) if sample[1] > 0)
    samples = samples[first:]
    total, rows = samples[-1][1], []
    (begin, said, _) = samples[0]
    for tenth in range(1, 11):
        end = next((s for s in samples if s[1] >= total * tenth / 10), samples[-1])
        if end[0] > begin:
            rows.append(((end[1] - said) / (end[0] - begin), end[2]))
        (begin, said, _) = end
    return rows, (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0])


def texts(path):
    return [(line["id"], line["token_ids"]) for line in map(json.loads, path.read_text().splitlines())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--prompts", type=int, default=500)
    parser.add_argument("--new-tokens", type=int, default=200, help="of each prompt [200]")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        write_prompts(work / "prompts.jsonl", options.prompts)
        common = ["mpirun", "-n", options.ranks, "--bind-to", "core", "--oversubscribe", *AS_ROOT, options.binary, "generate",
                  "--target", DEMO / "target", "--input", work / "prompts.jsonl", "--max-new-tokens", options.new_tokens,
                  "--ignore-eos", "--temperature", 1, "--acceptance", "gumbel", "--threads", 1, "--quiet"]
        common = list(map(str, common))
        drafted, plain = work / "drafted.jsonl", work / "plain.jsonl"
        samples = run([*common, "--draft", str(DEMO / "draft"), "--output", str(drafted)], drafted)
        rows, mean = tenths(samples)
        print("tenth  new tokens/s  largest resident MB of a rank")
        for number, (rate, resident) in enumerate(rows, 1):
            print(f"{number:5}  {rate:12.0f}  {resident / 1000:10.2f}")
        growth = rows[-1][1] / rows[1][1] - 1
        slowest = min(rate for rate, _ in rows) / mean - 1
        subprocess.run([*common, "--output", str(plain)], check=True)
        own, other = texts(drafted), texts(plain)
        equal = sum(a == b for a, b in zip(own, other))
        print(f"{len(own)} texts, {sum(len(ids) for _, ids in own)} new tokens, {mean:.0f} a second; slowest tenth "
              f"{100 * slowest:+.1f} % of the mean; memory after the first fifth {100 * growth:+.2f} %; texts equal to plain "
              f"decoding: {equal} of {len(other)}")
        held = growth <= MOST_GROWTH and slowest >= -MOST_SLOWDOWN and equal == len(other) == options.prompts
        sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
