#!/usr/bin/env python3
"""Cuts prompts for book continuation from the held-out text of the demo models: books.jsonl.

Not part of the bench: it ran once, its output is committed beside it. Prompts are spaced evenly over each book, begin
at a sentence, end after a word, and share no character with a prompt of model/demo/prompts_text.jsonl.

    python3 bench/tasks/data/cut_books.py --text heldout.txt --out bench/tasks/data/books.jsonl
"""

import argparse
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]
CATEGORIES = {"The Hound of the Baskervilles": "baskervilles", "The Invisible Man": "invisible-man",
              "Persuasion": "persuasion"}
TITLE = re.compile(r"^Title: (.+)$", re.MULTILINE)
SENTENCE_START = re.compile(r'(?:(?<=[.!?]) |(?<=[.!?]") |\n\n)(?="?[A-Z])')


def books_of(text):
    """(category, first character, character after the last) of each book."""
    titles = list(TITLE.finditer(text))
    ends = [title.start() for title in titles[1:]] + [len(text)]
    return [(CATEGORIES[title.group(1)], title.end(), end) for title, end in zip(titles, ends)]


def taken_by_the_demo(text):
    """The ranges of the demo's prompts in the text."""
    ranges = []
    for line in (ROOT / "model/demo/prompts_text.jsonl").read_text(encoding="utf-8").splitlines():
        prompt = json.loads(line)["prompt"]
        begin = text.find(prompt)
        if begin < 0:
            raise SystemExit(f"not in this text: the demo's prompt {prompt!r}")
        ranges.append((begin, begin + len(prompt)))
    return ranges


def cut(text, begin, end, words, taken):
    """The first free prompt at or after `begin`."""
    for found in SENTENCE_START.finditer(text, begin, end):
        span = re.compile(rf"(?:\S+\s+){{{words - 1}}}\S+").match(text, found.end(), end)
        if span is None:
            break
        if "-------" in span.group() or "Chapter" in span.group():  # headings
            continue
        if not any(first < span.end() and span.start() < last for first, last in taken):
            taken.append(span.span())
            return span.group()
    raise SystemExit(f"no prompt of {words} words after character {begin}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--count", type=int, default=16, help="of each book [16]")
    parser.add_argument("--words", type=int, default=100, help="of each prompt [100]")
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8")
    taken = taken_by_the_demo(text)
    with options.out.open("w", encoding="utf-8") as out:
        for category, begin, end in books_of(text):
            for i in range(options.count):
                prompt = cut(text, begin + i * (end - begin) // options.count, end, options.words, taken)
                line = {"id": f"{category}-{i}", "category": category, "prompt": prompt}
                out.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
