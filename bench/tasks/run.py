#!/usr/bin/env python3
"""What does speculation bring on the tasks of the literature, category by category, with the same texts?

    python3 bench/tasks/run.py --target DIR --draft DIR [--tasks spec-bench,human-eval,books] [--prompts 10]
    python3 bench/tasks/run.py --target DIR --draft DIR --task wmt --file newstest.de --reference newstest.en \\
        --languages German,English

The same prompts are decoded plainly and with the draft, in turn. Texts are compared first: greedy and `gumbel` texts
must be equal, token for token, or no figure is printed (exit code 1). Then come tokens a pass and speed-up by
category, and scores of both sides where a task has one. bench/tasks/README.md says what the columns mean.
"""

import dataclasses
import datetime
import itertools
import json
import pathlib
import platform
import sys
import tempfile

import items
import loaders
import measure
import options as command_line
import scores
import table
from runs import machine  # table has put bench/ on the path


def chosen_items(options, parser):
    """What is asked for, in order."""
    if options.task:
        template = options.template or loaders.default_template(options.task, options.languages)
        reading = loaders.Reading(template, options.prompt_words or options.prompt_tokens or 64)
        found = loaders.load(options.task, options.file, options.reference, reading)
        chosen = list(itertools.islice(found, options.prompts) if options.prompts else found)
        if not chosen:
            raise items.BadInput(f"{options.file}: no prompt in it")
        return chosen
    try:
        chosen = items.chosen(items.bundled(options.tasks or items.BUNDLED), options.categories, options.prompts)
    except ValueError as error:
        parser.error(str(error))
    if options.turns == 2 and not any(item.later_turns for item in chosen):
        parser.error("--turns 2: no prompt of these categories has a second turn")
    return chosen


def contenders_of(options):
    """Plain decoding first, then each rule."""
    common = ["--max-new-tokens", str(options.max_new_tokens)]
    for name in ("threads", "dtype", "chat_template", "top_p", "seed"):
        if getattr(options, name) is not None:
            common += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    if options.temperature > 0:
        common += ["--temperature", str(options.temperature)]
    plain = common + (["--acceptance", "gumbel"] if options.acceptance == "gumbel" else [])
    own = common + (["--acceptance", options.acceptance] if options.acceptance else [])
    for name in ("draft", "drafter"):
        own += [f"--{name}", getattr(options, name)] if getattr(options, name) else []
    equal = options.acceptance in (None, "gumbel")
    return [measure.Contender("plain", plain, True),
            *(measure.Contender(rule, own + arguments, equal) for rule, arguments in options.rule_arguments.items())]


def decode(options, chosen, work):
    """Everything that was asked, in all turns, and what came of it."""
    contenders = contenders_of(options)
    asked = measure.first_turn(options, chosen)
    if options.max_prompt_tokens or options.prompt_tokens:
        measure.shorten(options, asked, options.max_prompt_tokens or options.prompt_tokens,
                        options.max_prompt_tokens is not None, work)
    results = measure.run_all(options, contenders, asked, work)
    if options.turns == 2:
        following = measure.next_turn(options, asked, results["plain"])
        if options.max_prompt_tokens:
            measure.shorten(options, following, options.max_prompt_tokens, True, work)
        for name, found in measure.run_all(options, contenders, following, work).items():
            results[name].update(found)
        asked = asked + following
    return contenders, asked, results


def environment(options):
    here = machine()
    version = measure.run([str(options.binary), "--version"]).strip()
    return [f"{datetime.date.today()}, {here['cpu']}, {here['cores']} cores, {platform.system()}; {version}",
            f"target {options.target}, draft {options.draft or 'none'}"
            + (f", drafter {options.drafter}" if options.drafter else "")
            + (f", launcher {' '.join(options.launcher)}" if options.launcher else "")
            + (f", threads of a rank: {options.threads}" if options.threads else "")
            + (f", {options.dtype}" if options.dtype else ""),
            f"temperature {options.temperature:g}"
            + (f", acceptance {options.acceptance}" if options.acceptance else "")
            + f", at most {options.max_new_tokens} new tokens"
            + (f", {options.samples} samples" if options.samples > 1 else "")
            + (", second turns too" if options.turns == 2 else "") + (", chat" if options.chat else "")
            + f"; repetitions: {options.repetitions}, prompts of a call: {options.chunk}"]


def compare_texts(contenders, asked, results):
    """Lines that say whose texts are plain decoding's, and whether all that must be are."""
    lines, holds = [], True
    for contender in contenders[1:]:
        differ, compared = measure.differing(contender, results, asked)
        if compared == 0:
            lines.append(f"{contender.name}: no text to compare, since no prompt was served on both sides")
        elif not differ:
            lines.append(f"{contender.name}: {compared} of {compared} texts equal plain decoding's")
        elif contender.equals_plain:
            holds = False
            lines.append(f"{contender.name}: {len(differ)} of {compared} texts DIFFER from plain decoding's, where "
                         f"none may; the first is {differ[0]}")
        else:
            lines.append(f"{contender.name}: {len(differ)} of {compared} texts differ from plain decoding's, as this "
                         "acceptance may make them")
    return lines, holds


def texts_by_item(asked, found):
    """The first turn's texts of items that were served."""
    texts = {}
    for one in asked:
        if one.turn == 1 and "error" not in found[one.key][0]:
            texts.setdefault(one.item.id, []).append(found[one.key][0]["text"])
    return texts


def make_folder(path):
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise items.BadInput(f"--output {path}: {error.strerror}") from None


def keep(options, chosen, asked, results, texts):
    """Writes --output: every result, the texts for scores.py, samples for a HumanEval harness. Returns lines."""
    lines = []
    for name, found in results.items():
        file_name = name.replace(":", "-")
        measure.write_lines(options.output / f"results-{file_name}.jsonl",
                            [{"category": one.item.category, "turn": one.turn, "sample": one.sample,
                              "repetition": repetition, **result}
                             for one in asked for repetition, result in enumerate(found[one.key])])
        if options.chat:
            continue
        written = scores.write_samples(options.output / f"samples-{file_name}.jsonl", chosen, texts[name])
        if written:
            lines.append(f"{written} samples for a HumanEval harness: {options.output}/samples-{file_name}.jsonl")
    if options.chat and any(item.category == "human-eval" for item in chosen):
        lines.append("no samples for HumanEval: a harness puts them after the prompt, and answers of a chat do not "
                     "go on from it")
    kept = {"items": [dataclasses.asdict(item) for item in chosen], "texts": texts}
    (options.output / "texts.json").write_text(json.dumps(kept), encoding="utf-8")
    return lines


def report(options, chosen, contenders, asked, results):
    """Prints everything; returns the exit code."""
    lines, holds = compare_texts(contenders, asked, results)
    tables = {contender.name: table.speed_table(asked, results, contender.name)
              for contender in contenders[1:]} if holds else {}
    for name, rows in tables.items():
        lines += ["", f"{name} against plain decoding, times in ms a new token", *rows]
    texts = {name: texts_by_item(asked, found) for name, found in results.items()}
    scored = scores.score_table(chosen, texts)
    lines += ["", "scores of the texts", *scored] if scored else []
    if options.output:
        lines += ["", *keep(options, chosen, asked, results, texts)]
        (options.output / "table.txt").write_text("\n".join(environment(options) + [""] + lines) + "\n",
                                                  encoding="utf-8")
    print("\n".join(lines).rstrip())
    served = any("stats" in result for found in results["plain"].values() for result in found)
    return 0 if holds and served else 1


def main():
    options, parser = command_line.parse()
    try:
        chosen = chosen_items(options, parser)
        if options.output:  # now, rather than after hours of decoding
            make_folder(options.output)
        print("\n".join(environment(options)), end="\n\n", flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            contenders, asked, results = decode(options, chosen, pathlib.Path(scratch))
        return report(options, chosen, contenders, asked, results)
    except (items.BadInput, measure.Failed) as error:
        sys.stderr.write(f"run.py: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
