"""Is drafting by `expected-gain` ever slower than plain decoding: with long prompts, few new tokens, batches, a useless
draft?

    python3 bench/never_slower.py [--binary build/entrodraft] [--batches 1,4,16,32] [--prompts 25,400,3000] [--new 25,200]
                                  [--texts N] [--pairs 6] [--busy N] [--output FILE] [--json]

The demo target and two drafts of it: its own, and the same with the rows of its embedding in reverse, whose every token is
wrong. Greedy, one rank, one thread. In each cell runs without a draft and with either alternate; a figure is the median, over
the pairs, of the plain run's seconds over those with a draft (above 1: drafting is faster), and its 95 % interval. Seconds by
the clock, without loading. `drafting` is the share of them that goes into the draft: what a useless draft costs, where other
programs make times of runs differ by more than that. Texts must be equal.

Texts end after a quarter fewer to a quarter more new tokens than asked for, in all as many. Were they all as long, a plain
batch would read its prompts one behind the other and never be less than full, as no batch of real texts is, and none that
drafts.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

from runs import DEMO, Parser, comma_list, file_name, machine, median_interval, number, program, report, run, texts_of

TEXTS = {25: 64, 400: 32}  # of a run, by length of prompt; of longer ones 4; never fewer than the batch
MORE = (1, 4, 3, 2)  # new tokens of every second text, in sixteenths; the next has as many fewer
GOAL = 0.98


def reversed_embedding(directory, to):
    """The checkpoint with the rows of its tied embedding in reverse, in a new directory."""
    shutil.copytree(directory, to)
    file = to / "model.safetensors"
    data = bytearray(file.read_bytes())
    (header_bytes,) = struct.unpack("<Q", data[:8])
    tensor = json.loads(data[8:8 + header_bytes])["model.embed_tokens.weight"]
    begin, end = (8 + header_bytes + offset for offset in tensor["data_offsets"])
    row = (end - begin) // tensor["shape"][0]
    data[begin:end] = b"".join(data[at:at + row] for at in range(end - row, begin - row, -row))
    file.write_bytes(data)
    return to


def write_prompts(file, length, new_tokens, n_texts):
    """Texts of so many tokens, made of the demo's prompts, each text beginning with another of them, and how many follow them:
    `new_tokens` on average."""
    asked = [json.loads(line)["prompt_token_ids"] for line in (DEMO / "prompts.jsonl").read_text().splitlines()]
    with file.open("w", encoding="utf-8") as lines:
        for i in range(n_texts):
            tokens = []
            while len(tokens) < length:
                tokens += asked[(i + len(tokens) // 25) % len(asked)]
            more = new_tokens * MORE[i // 2 % len(MORE)] // 16
            end = new_tokens + (more if i % 2 == 0 else -more)
            lines.write(json.dumps({"id": i, "prompt_token_ids": tokens[:length], "max_new_tokens": end}) + "\n")


def drafting_share(summary):
    """Of the run's time, the target's reading of prompts included, what drafting took: its own reading, its passes, what the
    rule computes."""
    busy = sum(summary["replicas_busy_seconds"])
    return sum(summary["time_shares"][part] for part in ("draft", "entropy")) * (1 - summary["prefill_seconds"] / busy)


class Runs:
    """Runs of generate in a directory of their own."""

    def __init__(self, binary, work):
        self.work = work
        self.binary = binary
        useless = reversed_embedding(DEMO / "draft", work / "useless")
        self.drafts = {"plain": [], "its draft": ["--draft", DEMO / "draft"], "useless": ["--draft", useless]}

    def decoding(self, name, prompts, batch):
        """Seconds without those of loading, and the share of them that drafting takes."""
        output, summary = self.work / "output.jsonl", self.work / "summary.json"
        for file in (output, summary):
            file.unlink(missing_ok=True)
        rule = ["--stop-rule", "expected-gain"] if self.drafts[name] else []
        run([self.binary, "generate", "--target", DEMO / "target", *self.drafts[name], *rule, "--input", prompts, "--output",
             output, "--ignore-eos", "--batch-size", batch, "--threads", 1, "--device", "cpu", "--quiet", "--summary", summary])
        told = json.loads(summary.read_text())
        return sum(told["replicas_busy_seconds"]), drafting_share(told)

    def cell(self, batch, length, new_tokens, pairs, n_texts):
        """Ratios of one cell, by draft."""
        prompts = self.work / f"prompts-{length}.jsonl"
        write_prompts(prompts, length, new_tokens, n_texts or max(batch, TEXTS.get(length, 4)))
        ratios, expected = {name: [] for name in self.drafts if name != "plain"}, None
        shares = {name: [] for name in self.drafts}
        for turn in range(pairs):
            taken = {}
            for name in list(self.drafts)[::1 if turn % 2 == 0 else -1]:
                taken[name], share = self.decoding(name, prompts, batch)
                shares[name].append(share)
                texts = sorted(texts_of(self.work / "output.jsonl"))
                expected = expected or texts
                if texts != expected:
                    raise SystemExit(f"{name}: texts differ from plain ones")
            for name, found in ratios.items():
                found.append(taken["plain"] / taken[name])
        cells = [{"batch": batch, "prompt_tokens": length, "new_tokens": new_tokens, "draft": name,
                  "seconds": median_interval(found), "drafting": statistics.median(shares[name])}
                 for name, found in ratios.items()]
        print(markdown(cells).splitlines()[2], file=sys.stderr, flush=True)  # what is known where the rest is not waited for
        return cells


def markdown(cells):
    """A row a batch, prompt and number of new tokens; a column a draft."""
    names = list(dict.fromkeys(cell["draft"] for cell in cells))
    lines = ["| batch | prompt | new | " + " | ".join(f"{name} (95 %); drafting" for name in names) + " |",
             "| --- " * (3 + len(names)) + "|"]
    by_place = {}
    for cell in cells:
        by_place.setdefault((cell["batch"], cell["prompt_tokens"], cell["new_tokens"]), {})[cell["draft"]] = cell
    for place, found in by_place.items():
        shown = []
        for name in names:
            middle, low, high = found[name]["seconds"]
            bold = "**" if middle < GOAL else ""
            shown.append(f"{bold}{middle:.3f}{bold} ({low:.3f} to {high:.3f}); {100 * found[name]['drafting']:.1f} %")
        lines.append("| " + " | ".join([*map(str, place), *shown]) + " |")
    slower = sum(cell["seconds"][0] < GOAL for cell in cells)
    surely = sum(cell["seconds"][2] < GOAL for cell in cells)
    return "\n".join(lines) + (f"\n\n{slower} of {len(cells)} cells below {GOAL} of plain, "
                               f"{surely} of them by their whole intervals\n")


@contextlib.contextmanager
def busy(processes):
    """So many processes run and do nothing, until this one ends, however it does."""
    loop = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    running = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def main():
    parser = Parser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    count = number(1, kind=int)
    parser.add_argument("--binary", default=program())
    parser.add_argument("--batches", type=comma_list(count), default=[1, 4, 16, 32])
    parser.add_argument("--prompts", type=comma_list(count), default=[25, 400, 3000], help="tokens of a prompt")
    parser.add_argument("--new", type=comma_list(count), default=[25, 200], help="new tokens of a text")
    parser.add_argument("--texts", type=count, help="of a run; by default more of short prompts than of long ones")
    parser.add_argument("--pairs", type=number(2, kind=int), default=6)
    parser.add_argument("--busy", type=count, default=0, metavar="N", help="with N other processes that do nothing but run")
    parser.add_argument("--output", type=file_name)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, busy(options.busy):
        runs = Runs(options.binary, pathlib.Path(work))
        cells = [cell for batch in options.batches for length in options.prompts for new_tokens in options.new
                 for cell in runs.cell(batch, length, new_tokens, options.pairs, options.texts)]
    report(markdown(cells), {"machine": machine(), "pairs": options.pairs, "cells": cells}, options.output, options.json)


if __name__ == "__main__":
    main()
