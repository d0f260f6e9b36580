"""What do passes cost, and where does the time go? Figures of bench latency, bench compare, recordings and traces."""

import numpy as np

from .drawing import (BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Drawing, Plot, colour, integers,
                      legend_below, line, mark, panels, plain_log_ticks, shortened, wide_enough)

SHARES = {"draft": ORANGE, "entropy": BLACK, "broadcast": PURPLE, "score": BLUE, "gather": GREEN, "verify": VERMILLION,
          "other": GREY}
HATCHES = {"draft": "", "entropy": "", "broadcast": "xxx", "score": "///", "gather": "...", "verify": "\\\\\\",
           "other": "---"}


def known(number):
    return isinstance(number, (int, float)) and not isinstance(number, bool)


def base_name(model):
    return str(model.get("model", "model")).rstrip("/").rsplit("/", 1)[-1]


def pass_costs(inputs):
    """(name, t_target_ms by rows with NaN where not measured, t_draft_ms or None, rows of bench latency or None, what
    the times are) of every costs file and of every pair of models in recordings."""
    costs = [(source.label, source.label, source.data["t_target_ms"], source.data.get("t_draft_ms"),
              source.data.get("target"), "medians of passes alone" if source.data.get("target") else "costs file")
             for source in inputs.of("costs")]
    for source in inputs.of("recording"):
        header = source.data.header
        for draft, each in zip(header["drafts"], header.get("costs") or []):
            if isinstance(each, dict) and isinstance(each.get("t_target_ms"), list):
                name = f"{base_name(header['target'])} with {base_name(draft)}"
                costs.append((name, source.label, each["t_target_ms"], each.get("t_draft_ms"), None,
                              "costs of a recording"))
    different, names = [], [name for name, *_ in costs]
    for name, label, t_target, t_draft, rows, what in costs:
        t_target = np.array([value if known(value) else np.nan for value in t_target], dtype=float)
        t_draft = float(t_draft) if known(t_draft) and t_draft > 0 else None
        name = f"{name} ({label})" if names.count(name) > 1 and name != label else name
        different.append((name, t_target, t_draft, rows, what))
    return different


def target_over_rows(inputs, choice):
    del choice
    costs = []  # of the drafts of one target once
    for each in pass_costs(inputs):
        seen = any(np.array_equal(each[1], other[1], equal_nan=True) for other in costs)
        if not seen and not np.isnan(each[1]).all():
            costs.append(each)
    if not costs:
        return []
    figure, axes = panels(height=4.2)
    axis = axes[0, 0]
    for index, (name, t_target, _, measured, what) in enumerate(costs):
        axis.plot(np.arange(1, len(t_target) + 1), t_target, color=colour(index), linestyle=line(index),
                  marker=mark(index), markersize=4.5, label=f"{shortened(name)}: {what}")
        for field, style, label in (("p90_ms", (0, (1, 1)), "90th percentile"), ("limit_ms", (0, (6, 2, 1, 2, 1, 2)),
                                                                                "the machine's limit")):
            rows = [row for row in measured or [] if row.get(field) is not None]
            if rows and len(costs) <= 2:
                axis.plot([row["rows"] for row in rows], [row[field] for row in rows], color=colour(index),
                          linestyle=style, linewidth=1, label=f"{shortened(name)}: {label}")
    axis.set_xlabel("rows of the pass (k drafted tokens: k + 1 rows)")
    axis.set_ylabel("time of a target pass, ms")
    axis.set_ylim(bottom=0)
    integers(axis)
    legend_below(figure, axes, 3 if len(costs) <= 2 else 2)
    return [Drawing("all", figure, "")]


def costs_by_size(inputs, choice):
    del choice
    costs = [(name, t_target[0], t_draft) for name, t_target, t_draft, *_ in pass_costs(inputs)
             if t_draft and len(t_target) and not np.isnan(t_target[0])]
    if len(costs) < 2:
        return []
    costs.sort(key=lambda each: each[1])
    figure, axes = panels(1, 3, height=1.7 + 0.35 * len(costs), sharey=True)
    columns = (("t_target, one row, ms", [each[1] for each in costs], BLUE),
               ("t_draft, ms", [each[2] for each in costs], ORANGE),
               ("t_target / t_draft", [each[1] / each[2] for each in costs], GREEN))
    for axis, (name, values, tint) in zip(axes[0], columns):
        axis.barh(range(len(costs)), values, 0.65, color=tint)
        for row, value in enumerate(values):
            axis.annotate(f"{value:.3g}", (value, row), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
        axis.set_xlabel(name)
        axis.set_xlim(0, 1.18 * max(values))
        axis.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(costs)), [shortened(name, 44) for name, _, _ in costs])
    axes[0, 0].invert_yaxis()
    return [Drawing("all", figure, "")]


def draft_cost_histogram(inputs, choice):
    del choice
    traces = []
    for source in inputs.of("trace"):
        rounds = [row for row in source.data if (row.get("draft_passes") or 0) > 0 and (row.get("draft_ms") or 0) > 0]
        if rounds:
            traces.append((source, np.array([row["draft_ms"] for row in rounds], dtype=float),
                           np.array([row["draft_passes"] for row in rounds])))
    if not traces:
        return []
    figure, axes = panels(1, 2, height=4.0)
    for axis, name, values in ((axes[0, 0], "drafting time per round, ms", [ms for _, ms, _ in traces]),
                               (axes[0, 1], "drafting time per draft pass, ms", [ms / passes for _, ms, passes in traces])):
        everything = np.concatenate(values)
        edges = np.geomspace(*wide_enough(everything), 81)
        for index, ((source, _, _), each) in enumerate(zip(traces, values)):
            axis.hist(each, edges, weights=np.full(len(each), 100 / len(each)), histtype="step", color=colour(index),
                      linestyle=line(index), linewidth=1.5,
                      label=f"{shortened(source.label, 50)} ({len(each)} rounds that drafted)")
        axis.set_xlabel(name)
        axis.set_ylabel("share of drafting rounds, %")
        plain_log_ticks(axis, everything, "x")
    legend_below(figure, axes, 2)
    return [Drawing("all", figure)]


def cost_split(inputs, choice):
    del choice
    drawings = []
    for source in inputs.of("comparison"):
        for result in source.data["temperatures"]:
            settings = [setting for setting in result["settings"]
                        if setting.get("time_share") and not setting.get("kind")]
            if settings:
                drawings.append(Drawing(f"{source.label}-T-{result['temperature']:g}", draw_split(settings),
                                        f"{source.label}, temperature {result['temperature']:g}"))
    return drawings


def draw_split(settings):
    figure, axes = panels(height=1.5 + 0.3 * len(settings))
    axis = axes[0, 0]
    left = np.zeros(len(settings))
    steps = [*SHARES, *sorted({step for setting in settings for step in setting["time_share"]} - set(SHARES))]
    for step in steps:
        width = np.array([100 * max(float(setting["time_share"].get(step) or 0), 0) for setting in settings])
        if width.any():
            axis.barh(range(len(settings)), width, 0.72, left, color=SHARES.get(step, SKY), edgecolor="white",
                      linewidth=0.4, hatch=HATCHES.get(step, ""), label=step)
            for row in np.flatnonzero(width >= 6):
                axis.annotate(f"{width[row]:.0f}", (left[row] + width[row] / 2, row), ha="center", va="center",
                              fontsize=8, bbox={"boxstyle": "round,pad=0.12", "facecolor": "white", "linewidth": 0})
        left += width
    for row, setting in enumerate(settings):
        axis.annotate(f"{setting['ms_per_token']:.3g} ms", (left[row], row), (5, 0), textcoords="offset points",
                      va="center", fontsize=8.5)
    axis.set_yticks(range(len(settings)), [shortened(setting["setting"], 52) for setting in settings])
    axis.invert_yaxis()
    axis.set_xlim(0, 112)
    axis.set_xticks(range(0, 101, 20))
    axis.set_xlabel("share of decoding time, % (beside the bars: ms per token)")
    axis.grid(axis="y", visible=False)
    legend_below(figure, axes, 7)
    return figure


LATENCY = "entrodraft bench latency --target DIR --draft DIR --output FILE"

PLOTS = [
    Plot("target-over-rows", "Time of a target pass over its rows",
         "What a pass takes as it checks more tokens at once. As long as the line is flat, further drafted tokens "
         "are checked for nothing. bench latency times passes alone and gives medians; record takes means out of "
         "rounds of decoding, or the costs file that it was given. The machine's limit is the larger of reading the "
         "weights and the arithmetic.",
         f"{LATENCY}; recordings hold such costs too", target_over_rows),
    Plot("costs-by-size", "t_target, t_draft and their ratio, by size",
         "One row of the target and one pass of the draft, for each pair of models, the fastest target first. The "
         "larger the ratio, the more a drafted token may cost and still pay.",
         f"{LATENCY}, for two pairs of models or more; recordings of two pairs hold such costs too", costs_by_size),
    Plot("draft-cost-histogram", "What drafting costs",
         "The time that drafting took in each round, and a pass of it, on logarithmic axes. A second hump or a long "
         "tail is what a mean would hide: a first pass that finds cold caches, or a machine shared with others.",
         "entrodraft generate ... --trace FILE", draft_cost_histogram),
    Plot("cost-split", "Where the time goes",
         "Shares of the time of decoding by step, prompts left out, for each setting of a comparison; beside each "
         "bar, what a new token took. Where shares are compared, mind that a slower setting spreads the same "
         "percent over more time.", "entrodraft bench compare ... --output FILE", cost_split),
]
