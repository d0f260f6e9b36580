#!/usr/bin/env python3
"""Starts entrodraft on a file of prompts and reads its results and its summary. Needs the standard library only.

    python3 examples/generate.py --binary build/entrodraft --target model/demo/target --draft model/demo/draft
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

PROMPTS = ["The old house stood at the end of the lane, and", "It was a dark night"]
SOME_LINES_FAILED = 3  # exit code: results hold an "error" for these


def generate(command, prompts, work):
    """Results, in the order of the prompts, and the summary of the run."""
    requests, results, summary = work / "prompts.jsonl", work / "results.jsonl", work / "summary.json"
    requests.write_text("".join(json.dumps({"id": number, "prompt": prompt}) + "\n"
                                for number, prompt in enumerate(prompts)), encoding="utf-8")
    done = subprocess.run([*command, "--input", requests, "--output", results, "--summary", summary, "--quiet"], check=False)
    if done.returncode not in (0, SOME_LINES_FAILED):
        sys.exit(done.returncode)  # it has said why
    return ([json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()],
            json.loads(summary.read_text(encoding="utf-8")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="entrodraft")
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--ranks", type=int, default=1, help="started by mpirun where there are several [1]")
    options = parser.parse_args()
    launcher = ["mpirun", "-n", str(options.ranks), "--bind-to", "none"] if options.ranks > 1 else []
    command = [*launcher, options.binary, "generate", "--target", options.target, "--draft", options.draft,
               "--stop-rule", "static:2.25", "--max-new-tokens", "32"]
    with tempfile.TemporaryDirectory() as work:
        results, summary = generate(command, PROMPTS, pathlib.Path(work))
    for prompt, result in zip(PROMPTS, results):
        if "error" in result:
            print(f"{prompt!r}: {result['error']}")
        else:
            print(f"{prompt}{result['text']}\n  [{result['finish_reason']}, TTFT {result['stats']['ttft_ms']:.1f} ms]")
    print(f"{summary['prompts']['completed']} prompts, {summary['tokens_per_second']:.0f} tokens/s, "
          f"{summary['tokens_per_target_pass']:.2f} tokens per target pass, "
          f"median TPOT {summary['tpot_ms']['median']:.2f} ms")


if __name__ == "__main__":
    main()
