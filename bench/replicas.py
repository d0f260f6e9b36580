"""Do two replicas on two cores serve a file of prompts 1.8 times as fast as one on one core?

    python bench/replicas.py [--binary build/entrodraft] [--replicas 2] [--pairs 5] [--max-new-tokens 128] [--times 4]

The demo pair, greedy, one thread a replica, each bound to a core of its own (mpirun --bind-to core). Runs of one and of
several replicas alternate; of each pair the ratio of tokens a second, by the time between the first round and the last
result (the summary's own), is printed, then their median. The texts of both must be equal. Needs an idle machine and
the standard library only.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEMO = ROOT / "model/demo"


def run(options, replicas, prompts, output):
    """New tokens a second and each replica's busy share."""
    launcher = ["mpirun", "-n", str(replicas), "--bind-to", "core", "--map-by", "core"]
    if os.geteuid() == 0:
        launcher.append("--allow-run-as-root")
    command = launcher + [options.binary, "generate", "--target", str(DEMO / "target"), "--draft", str(DEMO / "draft"),
                          "--input", str(prompts), "--output", str(output), "--threads", "1",
                          "--max-new-tokens", str(options.max_new_tokens), "--replicas", str(replicas)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"exit code {ended.returncode}: {ended.stderr}")
    tokens = int(re.search(r"(\d+) new;", ended.stderr).group(1))
    seconds = float(re.search(r"in ([\d.]+) s on", ended.stderr).group(1))
    busy = re.search(r"busy (.*) of the time", ended.stderr)
    return tokens / seconds, busy.group(1) if busy else "", seconds


def texts_of(output):
    return [(line["id"], line["token_ids"]) for line in map(json.loads, output.read_text().splitlines())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "build/entrodraft"))
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--times", type=int, default=4, help="how often the demo's prompts are asked for [4]")
    options = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        prompts = work / "prompts.jsonl"
        asked = [json.loads(line) for line in (DEMO / "prompts.jsonl").read_text().splitlines()]
        prompts.write_text("".join(json.dumps({**line, "id": f"{line.get('id')}-{turn}"}) + "\n"
                                   for turn in range(options.times) for line in asked))
        for pair in range(options.pairs):
            one, several = work / f"one-{pair}.jsonl", work / f"several-{pair}.jsonl"
            order = [(1, one), (options.replicas, several)]
            if pair % 2 == 1:
                order.reverse()
            rates = {replicas: run(options, replicas, prompts, output) for replicas, output in order}
            if texts_of(one) != texts_of(several):
                raise SystemExit("the texts of one replica and of several differ")
            ratios.append(rates[options.replicas][0] / rates[1][0])
            print(f"pair {pair}: {rates[1][0]:.1f} and {rates[options.replicas][0]:.1f} new tokens a second, "
                  f"{ratios[-1]:.3f} times; busy {rates[options.replicas][1]}; "
                  f"{rates[1][2]:.1f} s and {rates[options.replicas][2]:.1f} s", flush=True)
    print(f"median {statistics.median(ratios):.3f} times with {options.replicas} replicas, least {min(ratios):.3f}")


if __name__ == "__main__":
    main()
