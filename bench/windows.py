"""What does a draft gain that looks back less, by context: with a window, and with the best chunks in front of it?

    python3 bench/windows.py --text FILE [--binary build/entrodraft] [--target DIR] [--draft DIR] [--contexts 1000,8000]
                             [--windows 64,256] [--chunks 0,32] [--stop-rule constant:5] [--new 128] [--texts N] [--pairs 3]
                             [--output FILE] [--json]

Prompts are parts of a text. Target and draft are copies whose rotary positions are stretched (YaRN) where the contexts need it:
the demo's draft, in place of a target whose cache soon outweighs its weights, and its smallest. Greedy, one rank, one thread. In each
cell plain decoding takes turns with the draft as it is, with windows, and with the target itself (`--draft self`) with the
same windows and chunks; a figure is the median, over texts and pairs, of plain time a token over that with the draft, the time
of prompts left out. Texts must be equal.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import sys
import tempfile

from runs import DEMO, PAIRS, Parser, comma_list, file_name, machine, number, program, report, run

DEMO_WINDOW = 1024  # tokens that the demo's models were trained on at once, at most
TEXTS = {1000: 8, 4000: 4, 8000: 2}  # by context; of longer ones 1


def stretched(directory, to, positions):
    """The checkpoint with so many positions, in a new directory: by YaRN, where it was trained on fewer."""
    shutil.copytree(directory, to)
    file = to / "config.json"
    config = json.loads(file.read_text())
    trained = DEMO_WINDOW if directory.is_relative_to(DEMO) else config["max_position_embeddings"]
    if positions > trained:
        rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10000.0)}
        config["rope_parameters"] = {"rope_theta": rope["rope_theta"], "rope_type": "yarn", "factor": positions / trained,
                                     "original_max_position_embeddings": trained}
        config["max_position_embeddings"] = positions
        file.write_text(json.dumps(config))
    return to


def cache_over_weights(directory, context):
    """Bytes of keys and values of so many positions, in float32, over those of the weights' file."""
    config = json.loads((directory / "config.json").read_text())
    heads = config["num_attention_heads"]
    width = config.get("num_key_value_heads", heads) * config.get("head_dim", config["hidden_size"] // heads)
    return 2 * 4 * config["num_hidden_layers"] * width * context / (directory / "model.safetensors").stat().st_size


def settings_of(draft, windows, chunks):
    """NAME: options. Without chunks the draft, too, has each window."""
    settings = {"plain": [], "draft": ["--draft", draft]}
    for window in windows:
        settings[f"draft, {window}"] = ["--draft", draft, "--draft-window", window]
        for n in chunks:
            name, value = (f" + {n} chunks", f"{window}:chunks={n}") if n else ("", window)
            settings[f"self, {window}{name}"] = ["--draft", "self", "--draft-window", value]
    return settings


class Runs:
    def __init__(self, options, work):
        self.options, self.work = options, work
        positions = max(options.contexts) + options.new
        self.target = stretched(options.target, work / "target", positions)
        self.settings = settings_of(stretched(options.draft, work / "draft", positions), options.windows, options.chunks)
        text = work / "text.jsonl"
        text.write_text(json.dumps({"id": 0, "text": options.text.read_text(encoding="utf-8")}) + "\n", encoding="utf-8")
        written = run([options.binary, "tokenize", "--model", self.target, "--input", text]).stdout
        self.tokens = json.loads(written)["token_ids"]

    def prompts(self, context):
        """A file of prompts of so many tokens, evenly spaced over the text."""
        n = self.options.texts or TEXTS.get(context, 1)
        file = self.work / f"prompts-{context}.jsonl"
        if len(self.tokens) < context:
            raise SystemExit(f"{self.options.text} has {len(self.tokens)} tokens, fewer than --contexts {context}")
        starts = [(len(self.tokens) - context) * i // n for i in range(n)]
        file.write_text("".join(json.dumps({"id": i, "prompt_token_ids": self.tokens[start:start + context]}) + "\n"
                                for i, start in enumerate(starts)))
        return file

    def results(self, name, prompts):
        output = self.work / "output.jsonl"
        output.unlink(missing_ok=True)
        rule = ["--stop-rule", self.options.stop_rule] if self.settings[name] else []
        run([self.options.binary, "generate", "--target", self.target, *self.settings[name], *rule, "--input", prompts, "--output",
             output, "--max-new-tokens", self.options.new, "--ignore-eos", "--threads", 1, "--device", "cpu", "--quiet"])
        return [json.loads(line) for line in output.read_text().splitlines()]

    def cell(self, context):
        """Ratios of one context, by setting."""
        prompts, expected = self.prompts(context), None
        ratios, passes = {name: [] for name in self.settings}, {}
        for turn in range(self.options.pairs):
            found = {}
            for name in list(self.settings)[::1 if turn % 2 == 0 else -1]:
                found[name] = self.results(name, prompts)
                texts = [line["token_ids"] for line in found[name]]
                expected = expected or texts
                if texts != expected:
                    raise SystemExit(f"context {context}, {name}: texts differ from plain ones")
                print(f"context {context}, pair {turn + 1}: {name}", file=sys.stderr, flush=True)
            for name, lines in found.items():
                ratios[name] += [plain["stats"]["ms_per_token"] / line["stats"]["ms_per_token"]
                                 for plain, line in zip(found["plain"], lines)]
                passes[name] = sum(line["stats"]["target_passes"] for line in lines)
        n_tokens = sum(map(len, expected))
        return [{"context": context, "cache_over_weights": cache_over_weights(self.target, context), "draft": name,
                 "tokens_a_pass": n_tokens / passes[name], "over_plain": statistics.median(found), "least": min(found),
                 "most": max(found)} for name, found in ratios.items() if name != "plain"]


def markdown(cells):
    """A row a context and draft."""
    lines = ["| context, cache over weights | draft | tokens a target pass | over plain (least to most) | over the whole-cache draft |",
             "| --- " * 5 + "|"]
    whole = {cell["context"]: cell["over_plain"] for cell in cells if cell["draft"] == "draft"}
    for cell in cells:
        lines.append(f"| {cell['context']}, {cell['cache_over_weights']:.1f} | {cell['draft']} | {cell['tokens_a_pass']:.2f} | "
                     f"{cell['over_plain']:.2f} ({cell['least']:.2f} to {cell['most']:.2f}) | "
                     f"{cell['over_plain'] / whole[cell['context']]:.2f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = Parser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    count = number(1, kind=int)
    parser.add_argument("--binary", default=program())
    parser.add_argument("--text", type=pathlib.Path, required=True, help="whose parts are the prompts")
    parser.add_argument("--target", type=pathlib.Path, default=DEMO / "draft")
    parser.add_argument("--draft", type=pathlib.Path, default=DEMO / "smallest")
    parser.add_argument("--contexts", type=comma_list(count), default=[1000, 4000, 8000, 16000, 32000])
    parser.add_argument("--windows", type=comma_list(count), default=[64, 256, 1024])
    parser.add_argument("--chunks", type=comma_list(number(0, kind=int)), default=[0, 32])
    parser.add_argument("--stop-rule", default="constant:5")
    parser.add_argument("--new", type=count, default=128, help="new tokens of a text")
    parser.add_argument("--texts", type=count, help="of a run; by default more of short contexts than of long ones")
    parser.add_argument("--pairs", type=int, default=3, choices=PAIRS)
    parser.add_argument("--output", type=file_name)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        runs = Runs(options, pathlib.Path(work))
        cells = [cell for context in options.contexts for cell in runs.cell(context)]
    report(markdown(cells), {"machine": machine(), "pairs": options.pairs, "stop_rule": options.stop_rule, "cells": cells},
           options.output, options.json)


if __name__ == "__main__":
    main()
