#!/usr/bin/env python3
"""Is the text of every tree, head and window that of plain decoding, at many ranks, temperatures and lengths?

    same_texts.py BINARY MPIRUN... -- [--prompts 64] [--tokens 256] [--ranks 1,2,3,4] [--temperatures 0,0.7,1]

Prompts of the demo model, decoded eight at a time under `--acceptance gumbel`. Plain texts are those of one rank; a line
for each other run says how many of its texts are the same, how much it drafted and how long it took. What drafts must
have drafted, and be right now and then: else the comparison would say nothing. Standard library only.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

DEMO = pathlib.Path(__file__).resolve().parent.parent.parent / "model/demo"
PAIR, EAGLE, MEDUSA = (["--draft", DEMO / "draft"], ["--head", DEMO / "eagle3"], ["--head", DEMO / "medusa"])
SHARDED, DEDICATED = (["--draft-placement", placement] for placement in ("sharded", "dedicated"))
LOOKAHEAD = "lookahead:window=2:ngram=4:candidates=3"  # 15 rows of 16 a sequence
GROWN = ["--tree", "expected-gain", "--stop-rule", "expected-gain"]
DRAFTERS = {  # NAME: options, fewest ranks
    "chain of the draft model": ([*PAIR, "--stop-rule", "svip"], 1),
    "eagle2 tree of the draft model": ([*PAIR, "--tree", "eagle2"], 1),
    "grown tree of the draft model": ([*PAIR, *GROWN], 1),
    "its grown tree, sharded": ([*PAIR, *GROWN, *SHARDED], 2),
    "chain of it with a window": ([*PAIR, "--draft-window", 4, "--stop-rule", "svip"], 1),
    "grown tree of it with a window": ([*PAIR, "--draft-window", "16:sinks=0", *GROWN], 1),
    "chain of the target with a window": (["--draft", "self", "--draft-window", 64, *SHARDED, "--stop-rule", "svip"], 1),
    "chain of it with chunks": ([*PAIR, "--draft-window", "16:chunks=8", *SHARDED, "--stop-rule", "svip"], 1),
    "chain of the target with chunks": (["--draft", "self", "--draft-window", "16:chunks=8", *SHARDED,
                                         "--stop-rule", "svip"], 1),
    "eagle2 tree of the target's first layers": (["--draft", "self:layers=4", *SHARDED, "--tree", "eagle2"], 1),
    "chain of EAGLE-3": ([*EAGLE, "--stop-rule", "svip"], 1),
    "grown tree of EAGLE-3": ([*EAGLE, *GROWN], 1),
    "grown tree of EAGLE-3, dedicated": ([*EAGLE, *GROWN, *DEDICATED], 2),
    "medusa-63 of Medusa": ([*MEDUSA, "--tree", "medusa-63"], 1),
    "lookahead": (["--drafter", LOOKAHEAD, "--stop-rule", "constant"], 1),
}


def listed(kind):
    return lambda text: [kind(one) for one in text.split(",")]


def main():
    split = sys.argv.index("--")
    binary, mpirun = sys.argv[1], sys.argv[2:split]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--ranks", type=listed(int), default=[1, 2, 3, 4])
    parser.add_argument("--temperatures", type=listed(float), default=[0, 0.7, 1])
    options = parser.parse_args(sys.argv[split + 1:])
    failures = 0
    with tempfile.TemporaryDirectory() as work:
        costs = pathlib.Path(work) / "costs.json"  # a GPU's: rows that cost little, so that trees grow
        costs.write_text(json.dumps({"schema_version": 1, "t_draft_ms": 0.1,
                                     "t_target_ms": [1 + 0.005 * row for row in range(64)]}), encoding="utf-8")
        lines = (DEMO / "prompts.jsonl").read_text(encoding="utf-8").splitlines()[:options.prompts]
        prompts = pathlib.Path(work) / "prompts.jsonl"
        prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")

        def decode(ranks, temperature, drafter):
            command = [*mpirun, "-n", ranks, binary, "generate", "--target", DEMO / "target", "--input", prompts,
                       "--max-new-tokens", options.tokens, "--ignore-eos", "--batch-size", 8, "--temperature", temperature,
                       "--seed", 7, "--acceptance", "gumbel", "--threads", 1, "--quiet", *drafter]
            if "expected-gain" in drafter:
                command += ["--costs", costs]
            begin = time.monotonic()
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
            found = {line["id"]: line for line in map(json.loads, done.stdout.splitlines())}
            return found, time.monotonic() - begin

        for temperature in options.temperatures:
            plain, seconds = decode(1, temperature, [])
            ids = json.dumps([plain[name]["token_ids"] for name in sorted(plain)])
            print(f"T {temperature:g}: {len(plain)} plain texts {hashlib.sha256(ids.encode()).hexdigest()[:12]}, {seconds:.0f} s")
            for ranks in options.ranks:
                for name, (drafter, fewest) in DRAFTERS.items():
                    if ranks < fewest:
                        continue
                    found, seconds = decode(ranks, temperature, drafter)
                    same = sum(found[one]["token_ids"] == plain[one]["token_ids"] for one in plain)
                    drafted, accepted, passes = (sum(line["stats"][count] for line in found.values())
                                                 for count in ("drafted", "accepted", "target_passes"))
                    says_something = accepted > len(plain) and drafted > accepted
                    failures += same != len(plain) or not says_something
                    print(f"  {ranks} ranks, {name}: {same} of {len(plain)} the same; drafted {drafted}, accepted {accepted}, "
                          f"passes {passes}, {seconds:.0f} s{'' if says_something else ': too little to tell'}", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
