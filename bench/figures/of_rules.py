"""Which rule, with which threshold, and how far from the best possible? Figures of simulate, tune, bench compare and
of the rounds in traces."""

import re

import numpy as np

from . import inputs as given
from .drawing import (BLACK, BLUE, GREY, SKY, VERMILLION, Drawing, Plot, colour, integers, legend_below, line, mark,
                      panels, shortened)

# Parameters beside the one that is swept, and how axes call that one; others are called as they are.
BESIDE = ("window", "persistent")
LABELS = {"threshold": "threshold τ", "factor": "factor λ", "tokens": "draft length k"}
NAME = re.compile(r"(?!plain)([^,]+), ([a-z-]+)((?::[a-z]+(?:=[-+.\de]+)?)*)(?:, (.*))?")


def rule_of(name):
    """(drafter, rule, parameters, acceptance) of a setting of bench compare, such as "model, static:threshold=2.25";
    None for plain decoding, for of=adjusted and for cascades, which have a rule a level."""
    found = NAME.fullmatch(name)
    if not found:
        return None
    drafter, rule, values, acceptance = found.groups()
    parameters = {key: float(value or 1) for key, value in re.findall(r":([a-z]+)=?([^:]*)", values)}
    return drafter, rule, parameters, acceptance


def rules_in(inputs):
    """Rules of all inputs in the order of their colours and marks, which are the same in every figure of a page."""
    settings = [setting for kind, parts in (("simulation", ["settings"]), ("tuning", ["simulated", "confirmed"]))
                for source in inputs.of(kind) for part in parts for setting in source.data[part]]
    names = {setting["rule"] for setting in settings}
    names |= {name_of_rule(setting) for source in inputs.of("comparison") for result in source.data["temperatures"]
              for setting in result["settings"]}
    names |= {str(row["rule"]).split(":")[0] for source in inputs.of("preset")
              for case in source.data.get("cases", []) for row in case["rows"] if row.get("rule")}
    return sorted(names - {"plain", "none", "oracle", "other"})


def style_of(rule, rules):
    """Colour and mark of one of the rules; others are drawn in grey."""
    if rule not in rules:
        return {"color": GREY, "marker": "h"}
    return {"color": colour(rules.index(rule)), "marker": mark(rules.index(rule))}


# ---- cost over threshold ----

def point(rule, parameters, simulated=None, measured=None, interval=None, foretold="simulated"):
    """`simulated` is what was `foretold`: "simulated" of a replay, or "predicted" of a run from its own counts."""
    return {"rule": rule, "parameters": parameters or {}, "simulated": simulated, "measured": measured,
            "interval": interval, "foretold": foretold}


def sweeps(inputs, choice):
    """(name, note, points) of everything that may hold several settings of a rule. What tune measured goes to a
    simulation with the same costs of passes too; beside other costs it would say nothing."""
    for source in inputs.of("simulation"):
        tunings = [tuning for tuning in inputs.of("tuning") if same_costs(tuning, source)]
        confirmed = [setting for tuning in tunings for setting in tuning.data["confirmed"]]
        for name, note, points in by_draft(source, source.data["settings"], confirmed, choice):
            yield name, ", measured in ".join([note, *(tuning.label for tuning in tunings)]), points
    for source in inputs.of("tuning"):
        yield from by_draft(source, source.data["simulated"], source.data["confirmed"], choice)
    for source in inputs.of("comparison"):
        for result in source.data["temperatures"]:
            yield from of_comparison(source, result)


def same_costs(source, other):
    return bool(source.data.get("costs")) and source.data["costs"] == other.data.get("costs")


def is_of_draft(setting, draft):
    """Plain decoding, which is written down once, belongs to every draft."""
    return setting["rule"] == "plain" or setting.get("draft") in (None, draft)


def by_draft(source, simulated, confirmed, choice):
    several = len({setting.get("draft") for setting in simulated if setting.get("draft") is not None}) > 1
    drafts = sorted({setting.get("draft") or 0 for setting in simulated})
    for draft in drafts:
        if choice.draft is not None and draft != choice.draft:
            continue
        points = [point(setting["rule"], setting.get("parameters"), simulated=setting["ms_per_token"],
                        interval=setting.get("interval_ms_per_token"))
                  for setting in simulated if is_of_draft(setting, draft)]
        points += [point(setting["rule"], setting.get("parameters"), measured=setting["measured_ms_per_token"],
                         interval=setting.get("interval_ms_per_token"))
                   for setting in confirmed if is_of_draft(setting, draft)]
        name = f"{source.label}-draft-{draft + 1}" if several else source.label
        yield name, f"{source.label}, draft {draft + 1}" if several else source.label, points


def of_comparison(source, result):
    """Predicted is the time of plain decoding in the same run over the speed-up that counts times costs promise."""
    groups = {}
    for setting in result["settings"]:
        known = rule_of(setting["setting"])
        if known and not setting.get("kind"):
            drafter, rule, parameters, acceptance = known
            groups.setdefault((drafter, acceptance), []).append((rule, parameters, setting))
    for (drafter, acceptance), settings in groups.items():
        plain = plain_of(result, acceptance)
        if plain is None:
            continue
        parts = [f"T {result['temperature']:g}", drafter, *([acceptance] if acceptance else [])]
        points = [point(rule, parameters, plain["ms_per_token"] / setting["predicted_speedup"],
                        setting["ms_per_token"], foretold="predicted") for rule, parameters, setting in settings]
        points.append(point("plain", {}, measured=plain["ms_per_token"]))
        yield "-".join([source.label, *parts]), ", ".join([source.label, *parts]), points


def plain_of(result, acceptance):
    """Plain decoding as bench compare sets it beside an acceptance: sampled, gumbel has one of its own."""
    name = "plain, gumbel" if acceptance == "gumbel" and result["temperature"] > 0 else "plain"
    return next((setting for setting in result["settings"] if setting["setting"] == name), None)


def cost_over_threshold(inputs, choice):
    drawings = []
    for name, note, points in sweeps(inputs, choice):
        rules = [rule for rule in dict.fromkeys(p["rule"] for p in points) if len(swept_values(points, rule)) > 1]
        if rules:
            drawings.append(Drawing(name, draw_sweep(points, rules), note))
    return drawings


def swept(points, rule):
    """The parameter that a rule is drawn over: its first; None: it has none."""
    names = [name for p in points if p["rule"] == rule for name in p["parameters"] if name not in BESIDE]
    return names[0] if names else None


def swept_values(points, rule):
    parameter = swept(points, rule)
    return {p["parameters"].get(parameter) for p in points if p["rule"] == rule} - {None}


def draw_sweep(points, rules):
    columns = 2 if len(rules) > 1 else 1
    rows = -(-len(rules) // columns)
    figure, axes = panels(rows, columns, height=3.5 if rows > 1 else 4.2, sharey=True)
    for axis in axes.ravel()[len(rules):]:
        axis.set_visible(False)
    windows = sorted({p["parameters"].get("window") for p in points if p["rule"] in rules} - {None})
    for axis, rule in zip(axes.ravel(), rules):
        draw_rule(axis, [p for p in points if p["rule"] == rule], rule, windows)
        for other, tint, style in (("plain", BLACK, "-"), ("oracle", GREY, "-."), ("expected-gain", VERMILLION, ":")):
            for p in points:
                if p["rule"] == other:
                    value, how = (p["simulated"], "") if p["measured"] is None else (p["measured"], ", measured")
                    axis.axhline(value, color=tint, linestyle=style, linewidth=1.3, label=other_label(other) + how)
                    break
        axis.set_title(rule)
        parameter = swept(points, rule)
        axis.set_xlabel(LABELS.get(parameter, parameter))
        if parameter == "tokens":
            integers(axis)
        axis.tick_params(labelleft=True)
    for row in axes:
        row[0].set_ylabel("time per token, ms")
    axes[0, 0].set_ylim(bottom=max(axes[0, 0].get_ylim()[0], 0))
    legend_below(figure, axes, 4)
    return figure


def other_label(rule):
    return {"plain": "plain decoding", "oracle": "oracle"}.get(rule, rule)


def draw_rule(axis, points, rule, windows):
    """A line for each of the figure's windows that the rule has; these look alike in all panels, and a window is in the
    legend once, for lines and marks alike."""
    parameter = swept(points, rule)
    drawn = {p["parameters"].get("window") for p in points}
    for index, window in enumerate([None, *windows]):
        if window not in drawn:
            continue
        part = sorted((p for p in points if p["parameters"].get("window") == window
                       and p["parameters"].get(parameter) is not None), key=lambda p: p["parameters"][parameter])
        tint = colour(index)
        simulated = [p for p in part if p["simulated"] is not None]
        measured = [p for p in part if p["measured"] is not None]
        if simulated:
            x = [p["parameters"][parameter] for p in simulated]
            axis.plot(x, [p["simulated"] for p in simulated], color=tint, linestyle=line(index), linewidth=1.3,
                      marker=mark(index), markersize=3, markerfacecolor="white",
                      label=simulated[0]["foretold"] if window is None else f"window {window:g}")
            banded = [p for p in simulated if p["interval"] is not None and p["measured"] is None]
            if len(banded) == len(simulated) and len(drawn) <= 2:
                axis.fill_between(x, [p["interval"][0] for p in banded], [p["interval"][1] for p in banded],
                                  color=tint, alpha=0.18, linewidth=0)
        if measured:
            y = np.array([p["measured"] for p in measured])
            axis.errorbar([p["parameters"][parameter] for p in measured], y, error_of(measured, y), fmt=mark(index),
                          color=tint, markeredgecolor=BLACK, markersize=6.5, capsize=3, linewidth=1.2)
            axis.plot([], [], "o", color="white", markeredgecolor=BLACK, label="measured, with its 95 % interval")


def error_of(points, values):
    """Lengths of the intervals below and above the values; none where a point has none. No time is below 0."""
    ends = [p["interval"] or (value, value) for p, value in zip(points, values)]
    ends = [(max(low, 0), high) for low, high in ends]
    return np.maximum([[value - low for (low, _), value in zip(ends, values)],
                       [high - value for (_, high), value in zip(ends, values)]], 0)


# ---- simulated against measured ----

def simulated_and_measured(inputs, choice):
    del choice
    drawings, rules = [], rules_in(inputs)
    for source in inputs.of("tuning"):
        pairs = [(setting["rule"], setting["simulated_ms_per_token"], setting["measured_ms_per_token"],
                  setting.get("interval_ms_per_token")) for setting in source.data["confirmed"]]
        if pairs:
            drawings.append(Drawing(source.label, draw_pairs(pairs, "simulated time per token, ms",
                                                             "measured time per token, ms", rules), source.label))
    for source in inputs.of("comparison"):
        for result in source.data["temperatures"]:
            pairs = [(name_of_rule(setting), setting["predicted_speedup"], setting["speedup"], None)
                     for setting in result["settings"]
                     if not setting.get("kind") and not setting["setting"].startswith("plain")]
            if pairs:
                figure = draw_pairs(pairs, "predicted speed-up (counts times costs)", "measured speed-up", rules)
                drawings.append(Drawing(f"{source.label}-T-{result['temperature']:g}", figure,
                                        f"{source.label}, temperature {result['temperature']:g}"))
    return drawings


def name_of_rule(setting):
    known = rule_of(setting["setting"])
    return known[1] if known else "other"


def draw_pairs(pairs, x_label, y_label, rules):
    figure, axes = panels(height=4.6)
    axis = axes[0, 0]
    ends = [value for _, x, y, interval in pairs for value in (x, y, *(interval or ()))]
    room = 0.06 * (max(ends) - min(ends)) or 0.1 * max(ends)
    limits = (max(min(ends) - room, 0), max(ends) + room)
    axis.plot(limits, limits, color=GREY, linewidth=1, linestyle="--", label="equal")
    for rule in [*rules, "other"]:
        part = [pair for pair in pairs if pair[0] == rule]
        if part:
            y = np.array([pair[2] for pair in part])
            error = error_of([{"interval": pair[3]} for pair in part], y)
            style = style_of(rule, rules)
            axis.errorbar([pair[1] for pair in part], y, error, color=style["color"], fmt=style["marker"],
                          markersize=6, capsize=2, linewidth=1, label=rule)
    axis.set_xlim(limits)
    axis.set_ylim(limits)
    axis.set_aspect("equal")
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    axis.legend(loc="center left", bbox_to_anchor=(1.03, 0.5))
    return figure


# ---- regret ----

def regret(inputs, choice):
    drawings = []
    for source in inputs.of("simulation"):
        for draft in sorted({setting.get("draft") or 0 for setting in source.data["settings"]}):
            if choice.draft in (None, draft):
                best = best_of_rules([(setting["rule"], setting["setting"], setting) for setting
                                      in source.data["settings"] if (setting.get("draft") or 0) == draft])
                drawings += drawn_regret(source.label, f"draft {draft + 1}", best)
    for source in inputs.of("comparison"):
        for result in source.data["temperatures"]:
            groups = {}
            for setting in result["settings"]:
                if not setting.get("kind"):
                    known = rule_of(setting["setting"])
                    key = (known[0], known[1], known[3]) if known else setting["setting"]
                    groups.setdefault(setting["setting"].split(",")[0], []).append((key, setting["setting"], setting))
            for drafter, settings in groups.items():
                drawings += drawn_regret(source.label, f"T {result['temperature']:g}, {drafter}",
                                         best_of_rules(settings))
    return drawings


def best_of_rules(settings):
    """(name, share of the oracle's gain) of each rule's best setting, the best rule first."""
    known = [(rule, (name, setting["share_of_oracle_gain"])) for rule, name, setting in settings
             if setting.get("share_of_oracle_gain") is not None and rule not in ("plain", "oracle")]
    return sorted(best_of_each(known, lambda each: each[1]), key=lambda each: -each[1])


def best_of_each(settings, value):
    """Of (rule, anything) of each rule the one of the largest value."""
    best = {}
    for rule, each in settings:
        if rule not in best or value(each) > value(best[rule]):
            best[rule] = each
    return list(best.values())


def drawn_regret(label, part, best):
    if not best:
        return []
    figure, axes = panels(height=1.3 + 0.3 * len(best))
    axis = axes[0, 0]
    lost = [100 * (1 - share) for _, share in best]
    axis.barh(range(len(best)), lost, color=SKY, edgecolor=BLUE, height=0.7)
    for row, value in enumerate(lost):
        axis.annotate(f"{value:.1f}", (max(value, 0), row), (4, 0), textcoords="offset points", va="center",
                      fontsize=8.5, bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "linewidth": 0})
    axis.axvline(100, zorder=0, color=BLACK, linewidth=1, linestyle="--", label="100 %: as slow as plain decoding")
    axis.set_yticks(range(len(best)), [shortened(name) for name, _ in best])
    axis.invert_yaxis()
    axis.set_xlim(min(0, *lost) * 1.1, max(108, max(lost) * 1.08))
    axis.set_xlabel("lost share of the oracle's speed-up over plain decoding, %")
    axis.grid(axis="y", visible=False)
    legend_below(figure, axes)
    return [Drawing(f"{label}-{part.replace(', ', '-')}", figure, f"{label}, {part}")]


# ---- length of drafts ----

def candidate_length(inputs, choice):
    shown = [(source, given.rounds_of_text(source.data, choice.text)) for source in inputs.of("trace")]
    shown = [(source, rounds) for source, rounds in shown if rounds]
    if not shown:
        return []
    most = max(len(row["drafted"]) for source, _ in shown for row in source.data)
    longest = max(len(rounds) for _, rounds in shown)
    figure, axes = panels(len(shown), 2, height=2.4 if len(shown) > 1 else 3.2, sharex="col", sharey=True,
                          width_ratios=[3.2, 1])
    for (source, rounds), (axis, beside) in zip(shown, axes):
        at = np.arange(1, len(rounds) + 1)
        width = 0.85 if longest <= 200 else 1.0
        axis.bar(at, [len(row["drafted"]) for row in rounds], width, color="#F7D9BF", edgecolor=VERMILLION,
                 linewidth=0.5 if width < 1 else 0, label="drafted")
        axis.bar(at, [row["accepted"] for row in rounds], width, color=BLUE, label="of these accepted")
        axis.set_title(f"{shortened(source.label, 50)}: text {rounds[0]['id']!r}")
        axis.set_ylabel("tokens per round")
        integers(axis, "y")
        lengths = np.bincount([len(row["drafted"]) for row in source.data], minlength=most + 1)
        beside.barh(np.arange(len(lengths)), 100 * lengths / lengths.sum(), 0.8, color="#F7D9BF",
                    edgecolor=VERMILLION, linewidth=0.5)
        beside.set_title(f"all {len(source.data)} rounds")
    axes[-1, 0].set_xlabel("round of the text")
    axes[-1, 0].set_xlim(0.3, longest + 0.7)
    axes[-1, 0].set_ylim(-0.7, most + 0.9)
    axes[-1, 1].set_xlabel("share of rounds, %")
    legend_below(figure, axes)
    return [Drawing("all", figure, "")]


SIMULATE = "entrodraft simulate --output FILE"
TUNE = "entrodraft tune --report FILE"
COMPARE = "entrodraft bench compare --output FILE"

PLOTS = [
    Plot("cost-over-threshold", "Cost over threshold, simulated and measured",
         "What a token costs as a rule's parameter moves: lines are counts of passes times their costs (shaded: 95 % "
         "interval over texts), marks with a black edge are runs. The lowest point of a line is the rule's best setting; how flat the line is there says "
         "how much a wrong setting would cost. Of bench compare the lines are predicted: what plain decoding took in "
         "the same run, over the speed-up that counts times costs promise. All panels share the vertical axis.",
         f"{SIMULATE} for lines, with {TUNE} of the same costs for marks; or {COMPARE} with --tune or several "
         "settings of a rule",
         cost_over_threshold),
    Plot("simulated-and-measured", "Predicted and measured",
         "A mark is a setting: what counts times costs promise, and what its run took. On the dashed line both are "
         "equal. Of costs in ms, marks above the line are runs slower than predicted; of speed-ups, marks below it "
         "are.",
         f"{TUNE}; or {COMPARE}", simulated_and_measured),
    Plot("regret", "Regret to the oracle",
         "The oracle stops each draft exactly before its first wrong token, which no rule can know. A bar is the "
         "part of the oracle's gain over plain decoding that a rule's best setting leaves: 0 would be the oracle "
         "itself.",
         f"{SIMULATE}; or {COMPARE}", regret),
    Plot("candidate-length", "Length of drafts over rounds, by rule",
         "A bar is a round of one text: how many tokens were drafted and how many of them were accepted. On the right, how "
         "often each length came in all rounds of the file. --text chooses the text.",
         "entrodraft generate ... --stop-rule RULE --trace FILE, once for each rule; or simulate --trace FILE",
         candidate_length),
]
