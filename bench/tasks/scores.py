#!/usr/bin/env python3
"""How good are the texts, plain and speculative side by side?

    python3 bench/tasks/scores.py texts DIR                    # of what run.py --output DIR left
    python3 bench/tasks/scores.py pass-at-k --k 1,10 FILE...   # of results that a harness for HumanEval wrote

BLEU is sacrebleu's, ROUGE that of rouge-score (both on PyPI): where the package is missing, the score is skipped and
its line says so. Code that a model wrote is never run here: run.py writes samples for a harness of the user's own,
and pass-at-k reads what the harness found.
"""

import argparse
import json
import math
import pathlib
import re
import string
import sys

from items import BadInput, Item, categories_of

KINDS = {"spec-bench translation": "bleu", "spec-bench summarization": "rouge", "spec-bench math_reasoning": "number",
         "spec-bench rag": "contains", "wmt": "bleu", "iwslt": "bleu", "cnn-dm": "rouge", "xsum": "rouge"}


class MissingPackage(Exception):
    """Names the package that a score needs."""


def bleu(texts, references):
    try:
        import sacrebleu
    except ImportError:
        raise MissingPackage("sacrebleu") from None
    # A text may end without its line end, and references of one item are one each here.
    score = sacrebleu.corpus_bleu([text.strip() for text in texts], [[reference[0] for reference in references]])
    return {"BLEU": score.score}


def rouge(texts, references):
    try:
        from rouge_score import rouge_scorer
    except ImportError:
        raise MissingPackage("rouge-score") from None
    kinds = {"ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeL"}
    scorer = rouge_scorer.RougeScorer(list(kinds.values()), use_stemmer=True)
    found = [scorer.score(reference[0], text) for text, reference in zip(texts, references)]
    return {name: 100 * mean(score[kind].fmeasure for score in found) for name, kind in kinds.items()}


def normalised(text):
    """As question answering compares: lower case, no punctuation, no articles, single spaces."""
    text = "".join(" " if c in string.punctuation else c for c in text.lower())
    return " ".join(word for word in text.split() if word not in ("a", "an", "the"))


def contains(texts, references):
    """Exact match of the whole text; and whether an answer is in it as whole words."""
    pairs = [(normalised(text), [normalised(reference) for reference in some])
             for text, some in zip(texts, references)]
    return {"exact match": 100 * mean(text in some for text, some in pairs),
            "answer in text": 100 * mean(any(f" {answer} " in f" {text} " for answer in some if answer)
                                         for text, some in pairs)}


def last_number(text):
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return float(found[-1].replace(",", "")) if found else None


def number(texts, references):
    """The last number of the text against the last one of the reference."""
    answers = [(last_number(text), last_number(reference[0])) for text, reference in zip(texts, references)]
    return {"exact match, last number": 100 * mean(own is not None and own == right for own, right in answers)}


MEASURES = {"bleu": bleu, "rouge": rouge, "contains": contains, "number": number}


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def score_table(items, texts_of):
    """Lines of text. `texts_of`: of each contender, texts to an item's first turn by the item's id."""
    lines = [f"{'category':26} {'score':26} {'texts':>6}" + "".join(f" {name:>14}" for name in texts_of)]
    for category in categories_of(items):
        kind = KINDS.get(category)
        scored = [item for item in items if item.category == category and item.references
                  and all(texts.get(item.id) for texts in texts_of.values())]
        if kind is None or not scored:
            continue
        try:
            columns = {name: MEASURES[kind]([text for item in scored for text in texts[item.id]],
                                            [item.references for item in scored for _ in texts[item.id]])
                       for name, texts in texts_of.items()}
        except MissingPackage as missing:
            lines.append(f"{category:26} {kind}: skipped, the package {missing} is not installed")
            continue
        count = sum(len(next(iter(texts_of.values()))[item.id]) for item in scored)
        for score in next(iter(columns.values())):
            lines.append(f"{category:26} {score:26} {count:6}"
                         + "".join(f" {columns[name][score]:14.2f}" for name in texts_of))
    return lines if len(lines) > 1 else []


# HumanEval: samples for a harness, and pass@k of what it found

ENDS = ("\nclass ", "\ndef ", "\n#", "\n@", "\nif ", "\nprint(", "\nfrom ", "\nimport ")


def completion(text):
    """The body of the function: what comes before the next statement at the margin."""
    return text[:min([text.find(end) for end in ENDS if end in text], default=len(text))]


def write_samples(path, items, texts):
    """In the format of the HumanEval harness; returns how many."""
    lines = [json.dumps({"task_id": item.id, "completion": completion(text)})
             for item in items if item.category == "human-eval" for text in texts.get(item.id, [])]
    if lines:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines)


def pass_at_k(samples, correct, k):
    """Unbiased: 1 - C(samples - correct, k) / C(samples, k) (Chen et al. 2021)."""
    return 1 - math.comb(samples - correct, k) / math.comb(samples, k)


def outcomes(path):
    """(samples, correct) of each problem, from a harness's results."""
    found = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    for place, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            problem, passed = entry["task_id"], entry["passed"]
        except (json.JSONDecodeError, KeyError, TypeError):
            raise BadInput(f"{path}:{place}: needs {{\"task_id\", \"passed\"}}, as a harness writes them") from None
        if not isinstance(passed, bool):
            raise BadInput(f"{path}:{place}: field \"passed\" is neither true nor false")
        samples, correct = found.get(problem, (0, 0))
        found[problem] = (samples + 1, correct + passed)
    if not found:
        raise BadInput(f"{path}: empty")
    return found


def pass_table(paths, ks):
    lines = [f"{'results':48} {'problems':>8}" + "".join(f" {f'pass@{k}':>9}" for k in ks)]
    for path in paths:
        found = outcomes(path)
        for problem, (samples, _) in found.items():
            if samples < max(ks):
                raise BadInput(f"{path}: {samples} samples of {problem}; pass@{max(ks)} needs {max(ks)}")
        lines.append(f"{path.name:48} {len(found):8}" + "".join(
            f" {mean(pass_at_k(*counts, k) for counts in found.values()):9.4f}" for k in ks))
    return lines


def read_texts(directory):
    """Items and first texts by contender of a folder that run.py wrote."""
    path = directory / "texts.json"
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        read = [Item(**item) for item in kept["items"]]
        whole = all(isinstance(item.references, list) for item in read) and \
            all(isinstance(some, list) and all(isinstance(text, str) for text in some)
                for of_items in kept["texts"].values() for some in of_items.values())
    except (AttributeError, KeyError, TypeError):
        whole = False
    if not whole:
        raise BadInput(f"{path}: not what run.py --output leaves")
    return read, kept["texts"]


def whole_numbers(text):
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise ValueError
    return numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    texts = commands.add_parser("texts", help="score the texts of a run again")
    texts.add_argument("directory", type=pathlib.Path)
    passed = commands.add_parser("pass-at-k", help="pass@k of a harness's results")
    passed.add_argument("--k", type=whole_numbers, default=[1])
    passed.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    try:
        lines = pass_table(options.files, options.k) if options.command == "pass-at-k" else \
            score_table(*read_texts(options.directory))
    except BadInput as error:
        sys.exit(f"scores.py: {error}")
    print("\n".join(lines) or "no category of this run has a score")


if __name__ == "__main__":
    main()
