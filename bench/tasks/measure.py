"""Runs `entrodraft generate` plainly and with a draft on the same prompts, in turn, and keeps what it answered.

Prompts go in chunks of one category. In each chunk every contender runs, in an order that rotates, so that a noisy
machine hits all alike. A call begins with a prompt that is not counted (the chunk's last one): caches and the stop
rule's own measurements are warm when the clock counts. Called by run.py; table.py makes figures of the results.
"""

import dataclasses
import json
import subprocess
import sys

WARM_UP = "warm-up"


class Failed(Exception):
    """entrodraft ended with an error: one line that says which."""


@dataclasses.dataclass
class Contender:
    """Plain decoding or a way to draft. `equals_plain`: whether its texts must be those of plain decoding."""

    name: str
    arguments: list
    equals_plain: bool


@dataclasses.dataclass
class Asked:
    """A line for generate: an item's turn, once for each sample."""

    item: object
    turn: int
    sample: int
    line: dict
    is_cut: bool = False  # it lost its beginning

    @property
    def key(self):
        return self.line["id"]


def run(command):
    """Standard output of a command; with exit code 3 some lines hold errors, which is for the caller to see."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from None
    if done.returncode not in (0, 3):
        said = done.stderr.strip().splitlines() or ["no message"]
        own = [line for line in said if line.startswith("entrodraft")]  # a launcher may add lines of its own
        raise Failed(f"{command[0]} ended with exit code {done.returncode}: {(own or said[-1:])[0]}")
    return done.stdout


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def generate(options, contender, lines, work):
    """Results by id."""
    asked, answered = work / "asked.jsonl", work / "answered.jsonl"
    answered.unlink(missing_ok=True)
    write_lines(asked, [{**lines[-1], "id": WARM_UP}, *lines])
    run([*options.launcher, str(options.binary), "generate", "--target", options.target, "--input", str(asked),
         "--output", str(answered), "--quiet", *contender.arguments])
    with answered.open(encoding="utf-8") as results:  # by line feeds alone: texts may hold other line ends
        found = {result["id"]: result for result in map(json.loads, results)}
    missing = [line["id"] for line in lines if line["id"] not in found]
    if missing:
        raise Failed(f"{options.binary} wrote no result for {missing[0]}")
    return found


def chunks_of(asked, size):
    """Pieces of at most `size` prompts of one category."""
    by_category = {}
    for one in asked:
        by_category.setdefault(one.item.category, []).append(one)
    for of_category in by_category.values():
        for begin in range(0, len(of_category), size):
            yield of_category[begin:begin + size]


def run_all(options, contenders, asked, work):
    """Of each contender, by key, a list of results: one for each repetition."""
    results = {contender.name: {one.key: [] for one in asked} for contender in contenders}
    done = 0
    for number, chunk in enumerate(chunks_of(asked, options.chunk)):
        for repetition in range(options.repetitions):
            first = (number + repetition) % len(contenders)
            for contender in contenders[first:] + contenders[:first]:
                found = generate(options, contender, [one.line for one in chunk], work)
                for one in chunk:
                    results[contender.name][one.key].append(found[one.key])
        done += len(chunk)
        print(f"{done} of {len(asked)} prompts, {chunk[0].item.category}", file=sys.stderr, flush=True)
    return results


def first_turn(options, items):
    def line(item, sample):
        said = {"messages": [{"role": "user", "content": item.prompt}]} if options.chat else {"prompt": item.prompt}
        return {"id": f"{item.id}#1.{sample}", **said}
    return [Asked(item, 1, sample, line(item, sample)) for item in items for sample in range(options.samples)]


def next_turn(options, asked, plain):
    """The second turn of items that have one: after the first turn and plain decoding's answer to it, which every
    contender is given, so that all read the same prompt. Without a chat template texts are put one after another."""
    following = []
    for one in asked:
        answer = plain[one.key][0]
        if not one.item.later_turns or "error" in answer:
            continue
        question = one.item.later_turns[0]
        if options.chat:
            said = {"messages": [*one.line["messages"], {"role": "assistant", "content": answer["text"]},
                                 {"role": "user", "content": question}]}
        else:
            said = {"prompt": f"{one.item.prompt}{answer['text']}\n\n{question}\n\n"}
        following.append(Asked(one.item, 2, one.sample, {"id": f"{one.item.id}#2.{one.sample}", **said}))
    return following


def encode(options, asked, work, *arguments):
    path = work / "texts.jsonl"
    write_lines(path, [{"id": one.key, "text": one.line["prompt"]} for one in asked])
    out = run([str(options.binary), "tokenize", "--model", options.target, "--input", str(path), *arguments])
    encoded = {}
    for result in map(json.loads, filter(None, out.split("\n"))):
        if "error" in result:
            raise Failed(f"{result['id']}: {result['error']}")
        encoded[result["id"]] = result["token_ids"]
    return encoded


def shorten(options, asked, most, keeps_end, work):
    """Cuts prompts to `most` tokens, those of the tokenizer's template (such as a begin-of-text token) among them:
    the text's last ones, or its first. A prompt that is cut goes to generate as ids."""
    bare, whole = encode(options, asked, work), encode(options, asked, work, "--add-special-tokens")
    for one in asked:
        ids, framed = bare[one.key], whole[one.key]
        if len(framed) <= most:
            continue
        extra = len(framed) - len(ids)
        before = next((n for n in range(extra + 1) if framed[n:n + len(ids)] == ids), None)
        if before is None or extra >= most:
            raise Failed(f"{one.key}: cannot be cut to {most} tokens, {extra} of which its template takes")
        kept = ids[-(most - extra):] if keeps_end else ids[:most - extra]
        one.line = {"id": one.key, "prompt_token_ids": [*framed[:before], *kept, *framed[before + len(ids):]]}
        one.is_cut = keeps_end


def differing(contender, results, asked):
    """Keys whose tokens are not, in every repetition, those of plain decoding, and how many were compared."""
    differ, compared = [], 0
    for one in asked:
        plain, own = results["plain"][one.key], results[contender.name][one.key]
        if any("error" in result for result in plain + own):
            continue
        compared += 1
        expected = plain[0]["token_ids"]
        if any(result["token_ids"] != expected for result in plain + own):
            differ.append(one.key)
    return differ, compared
