#!/usr/bin/env python3
"""Draws docs/rounds.svg: plain decoding above, speculative rounds below, over the same milliseconds of real runs.

    python3 bench/rounds_picture.py [--output docs/rounds.svg] [--binary build/entrodraft] [--milliseconds 20]

Both decode the demo's target on two ranks, eleven times each, of which the one of median speed is drawn; steps come from --timeline, accepted tokens from --trace. The picture
begins where each has written 32 tokens: the default rule has learned by then. Needs the standard library only, and an idle machine.
"""

import argparse
import json
import pathlib
import tempfile

from runs import AS_ROOT, DEMO, ROOT, program, run

PROMPT = "The old house stood at the end of the lane, and"
COLOURS = {"draft": "#f28e2b", "score": "#4e79a7"}
OTHER = "#bab0ac"  # broadcast, gather, verification
SKIPPED = 32  # tokens
WIDTH, LEFT, LANE, GAP = 860, 92, 20, 6


def measure(binary, work, *options):
    """(steps of each rank, [(end in ms, tokens that the round gave)])"""
    timeline, trace = work / "timeline.json", work / "trace.jsonl"
    for file in (timeline, trace):
        file.unlink(missing_ok=True)
    run(["mpirun", "-n", 2, "--bind-to", "core", "--map-by", "core", *AS_ROOT, binary, "generate", "--target", DEMO / "target",
         "--prompt", PROMPT, "--max-new-tokens", 96, "--threads", 1, "--dtype", "float32", "--quiet",
         "--timeline", timeline, "--trace", trace, *options])
    events = [event for event in json.loads(timeline.read_text())["traceEvents"] if event["ph"] == "X"]
    rounds = [json.loads(line) for line in trace.read_text().splitlines()]
    ends = sorted(event["ts"] + event["dur"] for event in events if event["name"] == "verify" and event["tid"] == 0)
    gains = [line["accepted"] + 1 for line in rounds[-len(ends):]]
    skipped = next(i for i in range(len(gains)) if sum(gains[:i]) >= SKIPPED)
    first = ends[skipped - 1]
    ranks = [[(event["name"], (event["ts"] - first) / 1e3, event["dur"] / 1e3) for event in events
              if event["tid"] == rank and event["ts"] >= first] for rank in (0, 1)]
    return ranks, [((end - first) / 1e3, gain) for end, gain in list(zip(ends, gains))[skipped:]]


def ms_per_token(measured):
    rounds = measured[1]
    return rounds[-1][0] / sum(gain for _, gain in rounds)


def box(x, y, width, height, colour):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.4):.2f}" height="{height}" fill="{colour}"/>'


def text(x, y, words, anchor="start", size=12):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{words}</text>'


def draw_run(parts, title, top, measured, scale, milliseconds):
    ranks, rounds = measured
    parts.append(text(0, top - 6, title, size=13))
    for rank, steps in enumerate(ranks):
        y = top + rank * (LANE + 2)
        parts.append(text(0, y + LANE - 6, f"rank {rank}"))
        for name, begin, length in steps:
            if begin < milliseconds:
                length = min(length, milliseconds - begin)
                parts.append(box(LEFT + begin * scale, y, length * scale, LANE, COLOURS.get(name, OTHER)))
    y, tokens = top + 2 * (LANE + 2) + GAP, 0
    for end, gained in rounds:
        if end > milliseconds:
            break
        for i in range(gained):  # the last is the target's own
            parts.append(f'<circle cx="{LEFT + end * scale - 3.5 - 8 * (gained - 1 - i):.1f}" cy="{y + 4}" r="3" '
                         f'fill="{COLOURS["score"] if i == gained - 1 else COLOURS["draft"]}"/>')
        tokens += gained
    parts.append(text(0, y + 8, f"{tokens} tokens"))
    return tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/rounds.svg")
    parser.add_argument("--binary", default=program())
    parser.add_argument("--milliseconds", type=float, default=20, help="how much of the runs [20]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        plain, drafted = [], []
        for _ in range(11):
            plain.append(measure(options.binary, pathlib.Path(work)))
            drafted.append(measure(options.binary, pathlib.Path(work), "--draft", DEMO / "draft"))
    plain, drafted = sorted(plain, key=ms_per_token)[5], sorted(drafted, key=ms_per_token)[5]
    scale = (WIDTH - LEFT) / options.milliseconds
    parts = []
    counts = [draw_run(parts, "plain: one target pass a token", 22, plain, scale, options.milliseconds),
              draw_run(parts, "speculative: the draft proposes until its entropy says stop, one target pass verifies", 122,
                       drafted, scale, options.milliseconds)]
    x = LEFT
    for colour, words in ((COLOURS["draft"], "draft passes, accepted tokens"), (COLOURS["score"], "target pass, its own tokens"),
                          (OTHER, "broadcast (rank 1 waits for it), gather, verification")):
        parts += [box(x, 212, 12, 12, colour), text(x + 17, 222, words)]
        x += 225
    options.output.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 230" font-family="sans-serif" fill="#333">'
        f'<rect width="{WIDTH}" height="230" fill="#fff"/>' + "\n".join(parts) + "</svg>\n")
    print(f"{options.output}: {counts[0]} tokens plainly, {counts[1]} with the draft in {options.milliseconds:g} ms")


if __name__ == "__main__":
    main()
