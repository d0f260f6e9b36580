"""How much faster, in which experiment, and how near to what the costs allow? Figures of bench compare, simulate, presets.py
and of the results of generate."""

import numpy as np

from .drawing import (BLACK, BLUE, CYCLE, GREY, SKY, VERMILLION, Drawing, Plot, colour, legend_below, line, panels, shortened)
from .of_rules import best_of_each, name_of_rule, rules_in, style_of

MOST_BARS = 24  # of a figure: beyond it the best of each rule alone


def compared(source):
    """(part of a name, settings that draft) of each temperature of a comparison."""
    for result in source.data["temperatures"]:
        yield f"T {result['temperature']:g}", result["settings"]


def drafting(settings):
    return [each for each in settings if not each.get("kind") and not each["setting"].startswith("plain")]


# ---- speed-ups ----

def speedups(inputs, choice):
    drawings = []
    for source in inputs.of("comparison"):
        for part, settings in compared(source):
            bars = [(each["setting"], each["speedup"], each["predicted_speedup"], None) for each in drafting(settings)]
            drawings += drawn_speedups(source.label, part, bars, "measured")
    for source in inputs.of("simulation"):
        for draft in sorted({each.get("draft") or 0 for each in source.data["settings"]}):
            if choice.draft in (None, draft):
                drawings += drawn_speedups(source.label, f"draft {draft + 1}", simulated_bars(source, draft), "simulated")
    return drawings


def simulated_bars(source, draft):
    """The fastest setting of each rule, with the interval that its time has."""
    settings = [each for each in source.data["settings"] if (each.get("draft") or 0) == draft or each["rule"] == "plain"]
    plain = next((each["ms_per_token"] for each in settings if each["rule"] == "plain"), None)
    if plain is None:
        return []
    best = best_of_each([(each["rule"], each) for each in settings if each["rule"] != "plain"],
                        lambda each: -each["ms_per_token"])
    return [(each["setting"], plain / each["ms_per_token"], None,
             [plain / end for end in reversed(each["interval_ms_per_token"])]
             if min(each.get("interval_ms_per_token") or [0]) > 0 else None) for each in best]


def drawn_speedups(label, part, bars, what):
    """`bars`: (setting, speed-up, predicted one or None, interval or None)."""
    bars = sorted(bars, key=lambda bar: -bar[1])[:MOST_BARS]
    if not bars:
        return []
    figure, axes = panels(height=1.6 + 0.3 * len(bars))
    axis = axes[0, 0]
    axis.barh(range(len(bars)), [bar[1] for bar in bars], 0.7, color=SKY, edgecolor=BLUE, label=f"{what} speed-up")
    for row, (_, value, predicted, interval) in enumerate(bars):
        end = max(value, predicted or 0, *(interval or [0]))
        if interval:
            axis.plot(interval, [row, row], color=BLACK, linewidth=1.2, marker="|", markersize=6,
                      label="95 % interval over texts")
        if predicted:
            axis.plot(predicted, row, "D", color=VERMILLION, markersize=4.5, label="predicted from counts and costs")
        axis.annotate(f"{value:.2f}", (end, row), (6, 0), textcoords="offset points", va="center", fontsize=8.5)
    axis.axvline(1, color=BLACK, linewidth=1, linestyle="--", label="plain decoding")
    axis.set_yticks(range(len(bars)), [shortened(bar[0]) for bar in bars])
    axis.invert_yaxis()
    axis.set_xlim(0, 1.12 * max(1, *(max(bar[1], bar[2] or 0, *(bar[3] or [0])) for bar in bars)))
    axis.set_xlabel("speed-up over plain decoding")
    axis.grid(axis="y", visible=False)
    legend_below(figure, axes)
    return [Drawing(f"{label}-{part}", figure, f"{label}, {part}")]


# ---- all experiments side by side ----

def cost_by_experiment(inputs, choice):
    """Bars of the fastest setting of each rule, grouped by experiment: a temperature of a comparison, or a case of a
    preset with the published figure as a mark."""
    del choice
    experiments = []
    for source in inputs.of("comparison"):
        for part, settings in compared(source):
            rules = {"plain": next((each["ms_per_token"] for each in settings if each["setting"] == "plain"), None)}
            for rule, each in by_rule(drafting(settings)).items():
                rules[rule] = each["ms_per_token"]
            experiments.append((f"{source.label}, {part}", rules, {}))
    for source in inputs.of("preset"):
        for case in source.data.get("cases", []):
            rows = [row for row in case["rows"] if row.get("ms_per_token") and row["rule"]
                    and not row.get("published_simulated_ms_per_token")]
            if rows:
                experiments.append((f"{source.data['preset']}, {case['case']}", best_rows(rows, "ms_per_token"),
                                    best_rows(rows, "published_ms_per_token")))
    return [Drawing("all", draw_experiments(experiments, rules_in(inputs)), "")] if len(experiments) > 1 else []


def by_rule(settings):
    known = [(name_of_rule(each), each) for each in settings]
    best = best_of_each(known, lambda each: -each["ms_per_token"])
    return {name_of_rule(each): each for each in best}


def best_rows(rows, name):
    """The least time of each rule's rows."""
    times = {}
    for row in rows:
        if name in row:
            rule = {"none": "plain"}.get(row["rule"], row["rule"].split(":")[0])
            times[rule] = min(row[name], times.get(rule, row[name]))
    return times


def hatch_of(rule, rules):
    """Rules beyond the palette's colours are told apart by it."""
    return "//" if rule == "plain" else "xx" if rule in rules[len(CYCLE):] else ""


def draw_experiments(experiments, known):
    rules = [rule for rule in ("plain", *known, "other") if any(rule in ours for _, ours, _ in experiments)]
    figure, axes = panels(len(experiments), height=2.3)
    for axis, (name, ours, published) in zip(axes[:, 0], experiments):
        for at, rule in enumerate(rules):
            if ours.get(rule) is None:
                continue
            tint = {"plain": GREY}.get(rule, style_of(rule, known)["color"])
            axis.bar(at, ours[rule], 0.75, color=tint, hatch=hatch_of(rule, known), edgecolor="white")
            axis.annotate(f"{ours[rule]:.3g}", (at, max(ours[rule], published.get(rule, 0))), (0, 3), ha="center",
                          textcoords="offset points", fontsize=8)
            if rule in published:
                axis.plot([at - 0.42, at + 0.42], [published[rule]] * 2, color=BLACK, linewidth=2, label="published")
        axis.set_xticks(range(len(rules)), rules if axis is axes[-1, 0] else [""] * len(rules), rotation=20, ha="right")
        axis.set_title(name)
        axis.set_ylabel("time per token, ms")
        axis.grid(axis="x", visible=False)
        axis.margins(y=0.16)
        axis.set_xlim(-0.6, len(rules) - 0.4)
    axes[-1, 0].set_xlabel("stop rule, its fastest setting")
    legend_below(figure, axes)
    return figure


# ---- the implementation beside what its costs allow ----

def implementation_efficiency(inputs, choice):
    del choice
    drawings = []
    for source in inputs.of("comparison"):
        overhead = "; ".join(f"entropy and stop decision of {each['rule']} add {each['percent_of_a_draft_step']:.1f} % to a "
                             "draft step" for each in source.data.get("entropy_overhead") or [])
        for part, settings in compared(source):
            plain = next((each["ms_per_token"] for each in settings if each["setting"] == "plain"), None)
            rows = [(each["setting"], each["ms_per_token"], plain / each["predicted_speedup"])
                    for each in drafting(settings) if plain and each["predicted_speedup"] > 0]
            if rows:
                note = "; ".join(filter(None, [f"{source.label}, {part}", overhead]))
                drawings.append(Drawing(f"{source.label}-{part}", draw_efficiency(rows[:MOST_BARS]), note))
    return drawings


def draw_efficiency(rows):
    """`rows`: (setting, measured, counts times costs), ms per token."""
    figure, axes = panels(height=1.6 + 0.42 * len(rows))
    axis = axes[0, 0]
    at = np.arange(len(rows))
    axis.barh(at - 0.2, [row[1] for row in rows], 0.38, color=VERMILLION, label="present implementation: measured")
    axis.barh(at + 0.2, [row[2] for row in rows], 0.38, color=BLUE, hatch="//", edgecolor="white",
              label="optimal implementation: passes at their costs, nothing beside them")
    for row, (_, measured, optimal) in enumerate(rows):
        axis.annotate(f"{100 * optimal / measured:.0f} %", (max(measured, optimal), row), (5, 0), va="center",
                      textcoords="offset points", fontsize=8.5)
    axis.set_yticks(at, [shortened(row[0]) for row in rows])
    axis.invert_yaxis()
    axis.set_xlim(0, 1.12 * max(max(row[1:]) for row in rows))
    axis.set_xlabel("time per token, ms (beside the bars: efficiency, optimal over measured)")
    axis.grid(axis="y", visible=False)
    legend_below(figure, axes, 2)
    return figure


# ---- results of generate ----

def texts_of_results(inputs, choice):
    del choice
    sources = [source for source in inputs.of("results") if source.data]
    if not sources:
        return []
    figure, axes = panels(1, 3, height=3.8)
    for axis, (name, value) in zip(axes[0], MEASURES.items()):
        values = [[number for number in map(value, source.data) if number is not None] for source in sources]
        everything = [number for each in values for number in each]
        if not everything:
            axis.set_visible(False)
            continue
        edges = np.linspace(0, 1.02 * max(everything) or 1, 31)
        for index, (source, each) in enumerate(zip(sources, values)):
            if each:
                axis.hist(each, edges, histtype="step", color=colour(index), linestyle=line(index), linewidth=1.6,
                          label=f"{shortened(source.label, 40)}: {len(source.data)} texts")
        axis.set_xlabel(name)
        axis.set_ylabel("texts")
        axis.yaxis.get_major_locator().set_params(integer=True)
    legend_below(figure, axes, 2)
    means = "; ".join(f"{source.label}: {mean_of(source.data)}" for source in sources)
    return [Drawing("all", figure, means)]


def quotient(above, below):
    def value(result):
        stats = result["stats"]
        return stats[above] / stats[below] if stats.get(below) else None
    return value


MEASURES = {"time per token, ms": lambda result: result["stats"].get("ms_per_token"),
            "tokens per target pass": quotient("new_tokens", "target_passes"),
            "draft acceptance rate (accepted / drafted)": quotient("accepted", "drafted")}


def mean_of(results):
    """Over all tokens of a file."""
    totals = {name: sum(result["stats"].get(name) or 0 for result in results)
              for name in ("new_tokens", "target_passes", "drafted", "accepted")}
    parts = [f"{totals['new_tokens']} tokens"]
    if totals["target_passes"]:
        parts.append(f"{totals['new_tokens'] / totals['target_passes']:.2f} per target pass")
    if totals["drafted"]:
        parts.append(f"{100 * totals['accepted'] / totals['drafted']:.0f} % of drafted ones accepted")
    return ", ".join(parts)


COMPARE = "entrodraft bench compare --output FILE"

PLOTS = [
    Plot("speedup", "Speed-up over plain decoding",
         "A bar is a setting: how many times as fast as plain decoding of the same prompts. Diamonds are what counts times "
         "costs predict; of a simulation the fastest setting of each rule is shown, with its interval.",
         f"{COMPARE}; or entrodraft simulate --output FILE", speedups),
    Plot("cost-by-experiment", "Time per token in all experiments",
         "A row is an experiment: a comparison at one temperature, or a case of a preset, whose published figures are the "
         "black lines. Each rule is shown with its fastest setting.",
         f"{COMPARE}, for two experiments or more; or python3 bench/presets.py NAME --output FILE", cost_by_experiment),
    Plot("implementation-efficiency", "Efficiency of the implementation",
         "What a token took, beside what its passes alone would take at their costs: the difference is entropy, stop "
         "decision, messages, verification and waiting.", COMPARE, implementation_efficiency),
    Plot("texts-of-results", "Time and acceptance by text",
         "How many texts of a results file fall where: time per token, tokens that a target pass brings, and the share of "
         "drafted tokens that were accepted.", "entrodraft generate --input FILE --output FILE", texts_of_results),
]
