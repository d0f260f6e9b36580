"""What every task is made of, items, and the tasks whose prompts lie in data/: Spec-Bench, HumanEval, books.

Files that a user has are read by loaders.py. Both are called by run.py.
"""

import dataclasses
import json
import pathlib

DATA = pathlib.Path(__file__).resolve().parent / "data"


@dataclasses.dataclass
class Item:
    """A prompt, what follows it in later turns, and texts to score an answer to the first turn against."""

    id: str
    category: str
    prompt: str
    references: list = dataclasses.field(default_factory=list)
    later_turns: list = dataclasses.field(default_factory=list)


class BadInput(Exception):
    """A file that cannot be used: one line with file, place and reason."""


def json_lines(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise BadInput(f"{path}:{number}: {error}") from None


def spec_bench():
    """References only where they are what an answer can be measured by: see scores.KINDS."""
    for line in json_lines(DATA / "spec_bench.jsonl"):
        references = line.get("reference") or []
        if references and isinstance(references[0], list):  # rag: one list of possible answers
            references = references[0]
        yield Item(f"spec-bench/{line['question_id']}", f"spec-bench {line['category']}", line["turns"][0],
                   references if len(line["turns"]) == 1 else [], line["turns"][1:])


def human_eval():
    for line in json_lines(DATA / "human_eval.jsonl"):
        yield Item(line["task_id"], "human-eval", line["prompt"])


def books():
    for line in json_lines(DATA / "books.jsonl"):
        yield Item(f"books/{line['id']}", f"books {line['category']}", line["prompt"])


BUNDLED = {"spec-bench": spec_bench, "human-eval": human_eval, "books": books}


def bundled(tasks):
    return [item for task in tasks for item in BUNDLED[task]()]


def categories_of(items):
    """In the order in which they first come."""
    return list(dict.fromkeys(item.category for item in items))


def short_name(category):
    """What --categories takes: spec-bench qa is qa."""
    return category.split(" ")[-1]


def chosen(items, categories, prompts):
    """The first `prompts` items of each of the categories (None: of all; prompts 0: all of them)."""
    known = [short_name(category) for category in categories_of(items)]
    for category in categories or []:
        if category not in known:
            raise ValueError(f"--categories: no category {category}; there are {', '.join(known)}")
    taken, counts = [], {}
    for item in items:
        if categories and short_name(item.category) not in categories:
            continue
        counts[item.category] = counts.get(item.category, 0) + 1
        if prompts == 0 or counts[item.category] <= prompts:
            taken.append(item)
    return taken
