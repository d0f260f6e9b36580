"""What was published, and what came out here? Figures of what bench/presets.py writes."""

import numpy as np

from .drawing import (BLACK, BLUE, GREY, ORANGE, VERMILLION, Drawing, Plot, colour, integers, legend_below, line, mark,
                      panels, shortened)


def cases_of(inputs):
    """(source, case) of all presets."""
    return [(source, case) for source in inputs.of("preset") for case in source.data.get("cases", [])]


def titled(source, case):
    return f"{source.data['preset']}, {case['case']}, temperature {case['temperature']:g}"


def note_of(source, case):
    return "; ".join(filter(None, [titled(source, case), case.get("basis")]))


def drawing_of(source, case, figure):
    several = len(source.data["cases"]) > 1
    name = f"{source.data['preset']}-{case['case']}-T-{case['temperature']:g}" if several else source.data["preset"]
    return Drawing(name, figure, note_of(source, case))


# ---- published beside ours ----

def published_and_ours(inputs, choice):
    del choice
    drawings = []
    for source in inputs.of("preset"):
        several = len(source.data.get("cases", [])) > 1
        rows = [(f"{case['case']}, T {case['temperature']:g}: {row['setting']}" if several else row["setting"], row)
                for case in source.data.get("cases", []) for row in case["rows"]
                if row.get("published_speedup") and row.get("speedup")]
        if rows:
            notes = dict.fromkeys(case["basis"] for case in source.data["cases"] if case.get("basis"))
            note = next(iter(notes), "") if len(notes) == 1 else f"{len(notes)} cases, each with an acceptance of its own"
            drawings.append(Drawing(source.data["preset"], draw_published(rows), f"{source.data['preset']}; {note}"))
    return drawings


def draw_published(rows):
    """`rows`: (label, row of the preset)."""
    figure, axes = panels(height=1.6 + 0.42 * len(rows))
    axis = axes[0, 0]
    at = np.arange(len(rows))
    for offset, name, tint, hatch, label in ((-0.2, "published_speedup", BLACK, "", "published"),
                                             (0.2, "speedup", BLUE, "//", "ours")):
        values = [row[name] for _, row in rows]
        axis.barh(at + offset, values, 0.38, color=tint, hatch=hatch, edgecolor="white", label=label)
        for place, value in zip(at + offset, values):
            axis.annotate(f"{value:.2f}", (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axis.axvline(1, color=GREY, linewidth=1, linestyle="--", label="plain decoding")
    axis.set_yticks(at, [shortened(label) for label, _ in rows])
    axis.invert_yaxis()
    axis.margins(x=0.1)
    axis.set_xlabel("speed-up over plain decoding")
    axis.grid(axis="y", visible=False)
    legend_below(figure, axes)
    return figure


# ---- over the length of drafts (Figure 1 of Chen et al. 2023) ----

def k_of(row):
    """Of constant rules and plain decoding, None of others."""
    rule, _, k = row["rule"].partition(":")
    return 0 if rule == "none" else int(k) if rule == "constant" else None


def over_draft_length(inputs, choice):
    del choice
    drawings = []
    for source, case in cases_of(inputs):
        rows = sorted(((k_of(row), row) for row in case["rows"] if k_of(row) is not None and row.get("ms_of_a_text")),
                      key=lambda each: each[0])
        if len(rows) > 2:
            drawings.append(drawing_of(source, case, draw_over_length(rows)))
    return drawings


def draw_over_length(rows):
    figure, axes = panels(1, 3, height=3.6)
    k = [each for each, _ in rows]
    spreads = [row["ms_of_a_text"] for _, row in rows]
    axes[0, 0].errorbar(k, [each["mean"] for each in spreads], [each["deviation"] for each in spreads], color=BLUE,
                        marker="o", capsize=3, label="mean and standard deviation")
    axes[0, 0].plot(k, [each["p90"] for each in spreads], color=ORANGE, linestyle="--", marker="s", markersize=4, label="P90")
    axes[0, 0].plot(k, [each["p99"] for each in spreads], color=VERMILLION, linestyle=":", marker="^", markersize=4,
                    label="P99")
    axes[0, 1].plot(k, [row.get("accepted_of_rows") for _, row in rows], color=BLUE, marker="o")
    axes[0, 2].plot(k, [row["ms_per_round"] for _, row in rows], color=BLUE, marker="o")
    for axis, name in zip(axes[0], ("time of a text, ms", "accepted tokens / (K + 1)", "time of a round, ms")):
        axis.set_xlabel("K, drafted tokens")
        axis.set_ylabel(name)
        axis.set_ylim(bottom=0)
        integers(axis)
    legend_below(figure, axes)
    return figure


# ---- candidate length over rounds (Figure 6.8 of Kluser 2024) ----

def length_curves(inputs, choice):
    del choice
    drawings = []
    for source, case in cases_of(inputs):
        rows = [row for row in case["rows"] if row.get("drafted_of_rounds")]
        if rows:
            drawings.append(drawing_of(source, case, draw_lengths(rows)))
    return drawings


def draw_lengths(rows):
    figure, axes = panels(height=4.2)
    axis = axes[0, 0]
    for index, row in enumerate(rows):
        lengths = row["drafted_of_rounds"]
        axis.plot(np.arange(1, len(lengths) + 1), lengths, color=colour(index), linestyle=line(index), marker=mark(index),
                  markersize=3.5, linewidth=1.2, label=row["setting"])
    axis.set_xlabel("round of the text")
    axis.set_ylabel("drafted tokens")
    axis.set_ylim(bottom=0)
    integers(axis)
    integers(axis, "y")
    legend_below(figure, axes, 4)
    return figure


# ---- the cap on drafts over thresholds ----

def cap_over_threshold(inputs, choice):
    del choice
    drawings = []
    for source, case in cases_of(inputs):
        curves = {}
        for row in case["rows"]:
            rule, _, cap = row["setting"].partition(", cap ")
            kind, _, number = rule.partition(":")
            if cap and row.get("ms_per_token"):
                point = float(number.split(":")[0]), row["ms_per_token"]
                curves.setdefault(kind, {}).setdefault(int(cap), []).append(point)
        if curves:
            drawings.append(drawing_of(source, case, draw_caps(curves)))
    return drawings


def draw_caps(curves):
    """`curves`: of each rule and cap [(threshold, ms per token)]."""
    figure, axes = panels(1, len(curves), height=3.6, sharey=True)
    for axis, (kind, caps) in zip(axes[0], curves.items()):
        for index, (cap, points) in enumerate(sorted(caps.items())):
            axis.plot(*zip(*sorted(points)), color=colour(index), linestyle=line(index), marker=mark(index), markersize=4,
                      label=f"at most {cap} drafted tokens")
        axis.set_title(kind)
        axis.set_xlabel({"static": "threshold τ, nats", "cumulative": "threshold τ, nats²"}.get(kind, "factor λ"))
    axes[0, 0].set_ylabel("time per token, ms")
    legend_below(figure, axes)
    return figure


PRESET = "python3 bench/presets.py NAME --output FILE"

PLOTS = [
    Plot("published", "Published speed-ups and ours",
         "A pair of bars is a setting of a published experiment. Ours are replayed over synthetic texts, or measured on the "
         "models that the preset ran on: the line below the figure says which.", PRESET, published_and_ours),
    Plot("over-draft-length", "Time, acceptance and rounds over the length of drafts",
         "Drafts of exactly K tokens, K 0 being plain decoding: what a text takes, how many of the K + 1 tokens of a round are "
         "accepted drafted ones, and what a round takes (Figure 1 of Chen et al. 2023).",
         "python3 bench/presets.py chen-k-sweep --output FILE", over_draft_length),
    Plot("length-curves", "Length of drafts over the rounds of one text",
         "A curve is a stop rule: how many tokens it drafted in each round of the same text (Figure 6.8 of Kluser 2024).",
         "python3 bench/presets.py thesis-candidate-length --output FILE", length_curves),
    Plot("cap-over-threshold", "The cap on drafts, over thresholds",
         "Time per token with two caps on the length of drafts. The curves part where thresholds are so high that the cap is "
         "reached.", "python3 bench/presets.py thesis-num-k --output FILE", cap_over_threshold),
]
