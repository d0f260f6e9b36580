#!/usr/bin/env python3
"""Cuts evenly spaced prompts at sentence starts from a text: prompts.jsonl (ids) and prompts_text.jsonl.

Not part of the product: it ran once, its output is committed beside it. A prompt is kept only where its
ids are also the ids of its text and where it ends at the end of a word, so that both files say the same.

    python cut_prompts.py --text heldout.txt --tokenizer target/tokenizer.json --out .

Needs: tokenizers (PyPI).
"""

import argparse
import json
import pathlib
import re

from tokenizers import Tokenizer

SENTENCE_START = re.compile(r'(?:(?<=[.!?]) |(?<=[.!?]") |\n\n)(?="?[A-Z])')


def cut(text, tokenizer, start, tokens):
    """The first prompt at or after `start`: (ids, text)."""
    for found in SENTENCE_START.finditer(text, start):
        paragraph = text[found.end():found.end() + 12 * tokens].split("\n")[0]
        encoded = tokenizer.encode(paragraph)
        if len(encoded.ids) <= tokens:  # too near the paragraph's end: a prompt stays within one
            continue
        ids, prompt = encoded.ids[:tokens], paragraph[:encoded.offsets[tokens - 1][1]]
        following = paragraph[len(prompt):]
        if following[:1].isalnum() or tokenizer.encode(prompt).ids != ids or tokenizer.decode(ids) != prompt:
            continue
        return ids, prompt
    raise SystemExit(f"no prompt of {tokens} tokens after character {start}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=25)
    args = parser.parse_args()

    text = args.text.read_text(encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    prompts = [cut(text, tokenizer, i * len(text) // args.count, args.tokens) for i in range(args.count)]
    if len({prompt for _, prompt in prompts}) != args.count:
        raise SystemExit("the text is too short for so many different prompts")
    with (args.out / "prompts.jsonl").open("w", encoding="utf-8") as ids_file, \
            (args.out / "prompts_text.jsonl").open("w", encoding="utf-8") as text_file:
        for i, (ids, prompt) in enumerate(prompts):
            ids_file.write(json.dumps({"id": i, "prompt_token_ids": ids}) + "\n")
            text_file.write(json.dumps({"id": i, "prompt": prompt}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
