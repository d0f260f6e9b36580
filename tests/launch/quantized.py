#!/usr/bin/env python3
"""Quantised checkpoints (tests/model/make_quantized.py) through the program: greedy tokens are those of transformers over
the dequantised weights, on 1, 2 and 4 ranks, alone and drafted by another of them. Standard library only.

  quantized.py BINARY MPIRUN.. --
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(os.path.dirname(HERE), "model", "quantized")

REFUSED = {"gptq-act-order": ("on one rank", 2), "gguf-every-type": ("at most 2", 4)}  # why, and from how many ranks on


def target_of(name):
    return os.path.join(ROOT, name, "target")


def expected_of(name):
    with open(os.path.join(ROOT, name, "expected.json"), encoding="utf-8") as file:
        return json.load(file)["target"]["texts"]


def run(mpirun, binary, ranks, name, more, lines):
    command = [*mpirun, "-n", str(ranks), binary, "generate", "--target", target_of(name), "--input", lines, "--quiet", "--activation-dtype", "int24",
               "--ignore-eos", "--threads", "1", *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def difference(name, ended, texts):
    if ended.returncode != 0:
        return ended.stderr
    results = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    if [result.get("token_ids") for result in results] != [text["greedy"] for text in texts]:
        return f"{name} wrote {results}"
    return ""


def main():
    binary, *mpirun = sys.argv[1:sys.argv.index("--")]
    failures = 0
    for name in sorted(os.listdir(ROOT)):
        texts = expected_of(name)
        draft = target_of("awq" if name != "awq" else "gptq")
        with tempfile.TemporaryDirectory() as directory:
            lines = os.path.join(directory, "lines.jsonl")
            with open(lines, "w", encoding="utf-8") as file:
                for i, text in enumerate(texts):
                    file.write(json.dumps({"id": i, "prompt_token_ids": text["tokens"],
                                           "max_new_tokens": len(text["greedy"])}) + "\n")
            for ranks in (1, 2, 4):
                for more in ([], ["--draft", draft, "--stop-rule", "constant:4"]):
                    ended = run(mpirun, binary, ranks, name, more, lines)
                    reason, from_ranks = REFUSED.get(name, ("", 5))
                    if ranks >= from_ranks:
                        found = "" if ended.returncode != 0 and reason in ended.stderr else "was not refused"
                    else:
                        found = difference(name, ended, texts)
                    if found:
                        print(f"{name}, {ranks} ranks, {' '.join(more)}: {found}")
                        failures += 1
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
