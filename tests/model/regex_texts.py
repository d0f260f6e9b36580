#!/usr/bin/env python3
"""Random regular expressions: every text that their automaton lets end is a full match for Python's re, and for ECMA-262.

    tests/model/regex_texts.py --driver build/tests/regex_driver --expressions 10000

An expression is made twice: as it is given to the program and to re, and with its classes written out as ECMA-262 defines
them. A third of them are patterns of JSON schemas, which are searched for in what the text's JSON says.
"""
import argparse
import json
import random
import re
import signal
import subprocess
import sys
import warnings

WORD, DIGIT = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)], [(0x30, 0x39)]
SPACE = [(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
         (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]
LINE_ENDS = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]
PLAIN = "abzAZ09_ -:,;/é²۲ßﬁ世😀\u0300\u0085\u00a0\u2028\u1680\ufeff\u001c\u001f"
ESCAPED = [r"\n", r"\t", r"\r", r"\f", r"\v", r"\.", r"\*", r"\[", r"\]", r"\\", r"\-", r"\^", r"\$", r"\/", r"\x41", r"\xe9", r"\u00df",
           r"\u2028", r"\ufeff"]
QUANTIFIERS = ["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "??", "{1,3}?", "{0}", "{0,}"]
SECONDS_A_MATCH = 5


def written_out(ranges):
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


def others(ranges):
    bounds = [0] + [edge for first, last in ranges for edge in (first - 1, last + 1)] + [0x10FFFF]
    return [(bounds[i], bounds[i + 1]) for i in range(0, len(bounds), 2) if bounds[i] <= bounds[i + 1]]


CLASSES = {"\\d": written_out(DIGIT), "\\w": written_out(WORD), "\\s": written_out(SPACE), "\\D": written_out(others(DIGIT)),
           "\\W": written_out(others(WORD)), "\\S": written_out(others(SPACE))}


class Expressions:
    """Pairs: the expression, and the same for ECMA-262."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.n_names = 0

    def choose(self, *choices):
        return self.random.choice(choices)

    def character(self, in_bracket=False):
        if self.random.random() < 0.3:
            return self.random.choice(ESCAPED)
        return self.random.choice(PLAIN.replace("-", "") if in_bracket else PLAIN)

    def bracket(self):
        ours = theirs = "[" + self.choose("", "^", "^")
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.random()
            if kind < 0.5:
                name = self.random.choice(list(CLASSES))
                ours, theirs = ours + name, theirs + CLASSES[name]
                continue
            item = self.character(True) if kind < 0.8 else self.choose("a-f", "0-8", "A-Z", " -~", "\\x00-\\x1f", "à-ü", "\\u0080-\\uffff")
            ours, theirs = ours + item, theirs + item
        end = self.choose("", "", "", "-") + "]"
        return ours + end, theirs + end

    def atom(self, depth):
        kind = self.random.random()
        if kind < 0.35:
            return self.bracket()
        if kind < 0.5:
            name = self.random.choice(list(CLASSES))
            return name, f"[{CLASSES[name]}]"
        if kind < 0.57:
            return ".", f"[^{written_out(LINE_ENDS)}]"
        if kind < 0.75 and depth < 3:
            ours, theirs = self.alternatives(depth + 1)
            self.n_names += 1
            before = self.choose("(", "(?:", f"(?P<n{self.n_names}>")
            return before + ours + ")", before + theirs + ")"
        return (self.character(),) * 2

    def sequence(self, depth):
        ours = theirs = ""
        for _ in range(self.random.randint(0 if depth else 1, 3)):
            atom = self.atom(depth)
            quantifier = self.random.choice(QUANTIFIERS) if self.random.random() < 0.4 else ""
            ours, theirs = ours + atom[0] + quantifier, theirs + atom[1] + quantifier
        if depth == 0 and self.random.random() < 0.2:
            ours, theirs = self.choose(("^" + ours, "^" + theirs), (ours + "$", theirs + "$"), (f"^{ours}$", f"^{theirs}$"))
        return ours, theirs

    def alternatives(self, depth=0):
        parts = [self.sequence(depth) for _ in range(self.choose(1, 1, 1, 2, 3))]
        return "|".join(part[0] for part in parts), "|".join(part[1] for part in parts)


class TooLong(Exception):
    pass


def holds(expression, text, whole):
    """None: re takes too long to say."""
    def stop(*_):
        raise TooLong
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS_A_MATCH)
    try:
        return bool(re.fullmatch(expression, text) if whole else re.search(expression, text))
    except TooLong:
        return None
    finally:
        signal.alarm(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--expressions", type=int, default=10000)
    parser.add_argument("--texts", type=int, default=20, help="of each")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore", FutureWarning)  # "[" within a set
    made = Expressions(args.seed)
    pairs = [made.alternatives() for _ in range(args.expressions)]
    asked = []
    for i, (ours, _) in enumerate(pairs):
        is_pattern = i % 3 == 0
        source = json.dumps({"type": "string", "pattern": ours}) if is_pattern else ours
        asked.append({"language": "json_schema" if is_pattern else "regex", "source": source, "seed": i, "texts": args.texts})
    out = subprocess.run([args.driver], input="".join(json.dumps(one) + "\n" for one in asked), capture_output=True, text=True,
                         check=True).stdout.splitlines()
    refused, n_texts, n_wrong, n_slow = {}, 0, 0, 0
    for (ours, theirs), one, line in zip(pairs, asked, out, strict=True):
        answer = json.loads(line)
        if "error" in answer:
            reason = answer["error"].split(": ")[-1]
            refused[reason] = refused.get(reason, 0) + 1
            continue
        is_pattern = one["language"] == "json_schema"
        for text in answer["texts"]:
            n_texts += 1
            said = json.loads(text) if is_pattern else text
            verdicts = [holds(each, said, not is_pattern) for each in (ours, theirs)]
            n_slow += None in verdicts
            if False in verdicts:
                n_wrong += 1
                if n_wrong <= 20:
                    print(f"{one['source']!r} makes {text!r}: no match in", " ".join(n for n, v in zip(("Python", "ECMA-262"), verdicts) if v is False))
    print(f"{args.expressions} expressions, {n_texts} texts, {n_wrong} wrong, {n_slow} undecided, {sum(refused.values())} expressions refused: {refused}")
    enough = n_texts > 5 * args.expressions and sum(refused.values()) < args.expressions / 5 and n_slow < n_texts / 1000
    return 0 if n_wrong == 0 and enough else 1


if __name__ == "__main__":
    sys.exit(main())
