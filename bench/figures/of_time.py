"""Where does a round's time go on each rank, and what do more ranks bring? Figures of time lines and of scaling."""

import numpy as np

from .drawing import (BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, Drawing, Plot, colour, legend_below,
                      line, mark, panels, plain_log_ticks, shortened)

STEPS = {"draft": ORANGE, "broadcast": PURPLE, "score": BLUE, "gather": GREEN, "verify": VERMILLION, "output": SKY}
HATCHES = {"draft": "", "broadcast": "xxx", "score": "///", "gather": "...", "verify": "\\\\\\", "output": "ooo"}
ROUNDS_SHOWN = 3


def rounds_of(events):
    """(replica, round) to its events; those without a round are no part of one."""
    rounds = {}
    for event in events:
        number = (event.get("args") or {}).get("round")
        if event["ph"] == "X" and isinstance(number, int):
            rounds.setdefault((event["pid"], number), []).append(event)
    return rounds


def span(events):
    return min(event["ts"] for event in events), max(event["ts"] + event["dur"] for event in events)


def round_of_median_length(rounds):
    """The round whose length is the middle one, of those in which the most ranks of their replica took part: all of
    them, but in a time line of a run that was killed."""
    ranks = {}
    for (replica, _), events in rounds.items():
        ranks.setdefault(replica, set()).update(event["tid"] for event in events)
    share = {key: len({event["tid"] for event in events}) / len(ranks[key[0]]) for key, events in rounds.items()}
    lengths = {key: span(rounds[key])[1] - span(rounds[key])[0] for key in rounds if share[key] == max(share.values())}
    return sorted(lengths, key=lengths.get)[len(lengths) // 2]


def round_time_line(inputs, choice):
    del choice  # a time line knows ranks and rounds, no texts
    drawings = []
    for source in inputs.of("timeline"):
        rounds = rounds_of(source.data["traceEvents"])
        if rounds:
            key = round_of_median_length(rounds)
            drawings.append(Drawing(source.label, *draw_rounds(source, rounds, key)))
    return drawings


def draw_rounds(source, rounds, key):
    """The round and what follows it, a row a rank."""
    replica, number = key
    shown = [(replica, n) for n in range(number, number + ROUNDS_SHOWN) if (replica, n) in rounds]
    events = [event for each in shown for event in rounds[each]]
    begin, end = span(events)
    ranks = sorted({event["tid"] for event in events})
    unit, name = (1e3, "ms") if end - begin >= 1000 else (1, "µs")
    figure, axes = panels(height=1.7 + 0.45 * len(ranks))
    axis = axes[0, 0]
    other = sorted({event["name"] for event in events} - set(STEPS))
    tints = {**STEPS, **{step: GREY for step in other}}
    for step in [*STEPS, *other]:
        of_step = [event for event in events if event["name"] == step]
        for rank in sorted({event["tid"] for event in of_step}):
            bars = [((event["ts"] - begin) / unit, event["dur"] / unit) for event in of_step if event["tid"] == rank]
            axis.broken_barh(bars, (ranks.index(rank) - 0.36, 0.72), facecolor=tints[step], edgecolor="white",
                             linewidth=0.4, hatch=HATCHES.get(step, ""), label=step)
    for each in shown:
        at = (span(rounds[each])[0] - begin) / unit
        axis.axvline(at, color=BLACK, linewidth=0.8)
        axis.annotate(f" round {each[1]}", (at, 1), xycoords=("data", "axes fraction"), fontsize=8.5, va="bottom",
                      annotation_clip=False)
    axis.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
    axis.invert_yaxis()
    axis.set_xlabel(f"time, {name}")
    axis.set_xlim(0, (end - begin) / unit * 1.01)
    axis.grid(axis="y", visible=False)
    legend_below(figure, axes, 6)
    lengths = np.array([span(each)[1] - span(each)[0] for each in rounds.values()]) / unit
    return figure, (f"{source.label}, replica {replica}: round {number}, of median length among {len(rounds)}, and "
                    f"what follows; median {np.median(lengths):.3g} {name}, 99th percentile "
                    f"{np.percentile(lengths, 99):.3g} {name}")


def scaling_measured(inputs, choice):
    del choice
    sources = [source for source in inputs.of("scaling") if source.data["measured"]]
    if not sources:
        return []
    figure, axes = panels(height=4.2)
    axis, index, crowded = axes[0, 0], 0, False
    for source in sources:
        rows = source.data["measured"]
        for placement in dict.fromkeys(row.get("placement") or "" for row in rows):
            part = [row for row in rows if (row.get("placement") or "") == placement]
            part.sort(key=lambda row: row["ranks"])
            name = ", ".join(filter(None, [shortened(source.label, 40) if len(sources) > 1 else "", placement]))
            draw_scaling(axis, part, index, name)
            crowded = crowded or any(row.get("over_cores") for row in part)
            index += 1
    if crowded:
        axis.plot([], [], "o", color=BLACK, markerfacecolor="white", label="open mark: more threads than cores")
    counts = sorted({row["ranks"] for source in sources for row in source.data["measured"]})
    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.tick_params(axis="x", which="minor", length=0)
    axis.set_xlabel("ranks")
    axis.set_ylabel("time of a target pass of one row, ms")
    axis.set_ylim(bottom=0)
    legend_below(figure, axes, 2)
    return [Drawing("all", figure, "; ".join(model_line(source) for source in sources if source.data.get("model")))]


def draw_scaling(axis, rows, index, name):
    tint, after = colour(index), f", {name}" if name else ""
    axis.plot([row["ranks"] for row in rows], [row["t_target_ms"] for row in rows], color=tint, linewidth=1)
    axis.plot([], [], color=tint, linewidth=1, marker=mark(index), markersize=7, label=f"measured{after}")
    for row in rows:
        axis.plot(row["ranks"], row["t_target_ms"], mark(index), color=tint, markersize=7,
                  markerfacecolor="white" if row.get("over_cores") else tint)
    predicted = [row for row in rows if row.get("predicted_ms") is not None and not row.get("is_base")]
    if predicted:
        ways = " and ".join(dict.fromkeys(row["compute_by"] for row in predicted if row.get("compute_by")))
        foreseen = f"predicted, compute {ways}" if ways else "predicted"
        axis.plot([row["ranks"] for row in predicted], [row["predicted_ms"] for row in predicted], linestyle="--",
                  marker="_", markersize=14, color=tint, linewidth=1.3, label=foreseen + after)


def model_line(source):
    """The numbers of the scaling model, as far as the file has them."""
    names = (("compute_ms", "compute of the base {:.4g} ms"), ("alpha_us", "alpha {:.4g} µs a collective"),
             ("beta_ns_per_byte", "beta {:.4g} ns a byte"))
    model = source.data["model"]
    return f"{source.label}: " + ", ".join(form.format(model[name]) for name, form in names
                                           if isinstance(model.get(name), (int, float)))


def scaling_extrapolated(inputs, choice):
    del choice
    drawings = []
    for source in inputs.of("scaling"):
        rows = source.data.get("extrapolated") or []
        if not rows:
            continue
        figure, axes = panels(height=4.4)
        axis = axes[0, 0]
        curves = dict.fromkeys((row["hardware"], row.get("shape") or "") for row in rows)
        for index, (hardware, shape) in enumerate(curves):
            part = sorted((row for row in rows if (row["hardware"], row.get("shape") or "") == (hardware, shape)),
                          key=lambda row: row["gpus"])
            axis.plot([row["gpus"] for row in part], [row["tokens_per_second"] for row in part], color=colour(index),
                      linestyle=line(index // 2), marker=mark(index), markersize=5,
                      label=", ".join(filter(None, [hardware, shape])))
        counts = sorted({row["gpus"] for row in rows})
        axis.set_xscale("log", base=2)
        axis.set_xticks(counts, [str(count) for count in counts], minor=False)
        axis.tick_params(axis="x", which="minor", length=0)
        axis.set_xlabel("GPUs")
        axis.set_ylabel("predicted throughput of one sequence, tokens/s")
        plain_log_ticks(axis, [row["tokens_per_second"] for row in rows])
        legend_below(figure, axes, 2)
        drawings.append(Drawing(source.label, figure, source.label))
    return drawings


PLOTS = [
    Plot("round-time-line", "Time line of a round, by rank",
         "A row is a rank, a bar a step of a round; empty is the loop between steps; waiting for other ranks is part of broadcast and gather. Ranks that end a "
         "step long before the others wait for them. The round of median length is shown, with those that follow "
         "it.",
         "entrodraft generate ... --timeline FILE", round_time_line),
    Plot("scaling", "A target pass over ranks, measured and predicted",
         "What a pass of one row takes as the target is sharded across more ranks, beside what the scaling model foresees: "
         "compute + all-reduces of a pass × (alpha + bytes × beta), with alpha and beta fitted to all-reduces measured "
         "alone. Compute is, by shard, what a shard took on one rank by itself (bench latency --shards); by reading, "
         "what the base took; each times the ratio of what the ranks could read at best. The base itself is not "
         "foreseen. Open marks are runs with more threads than cores, which say nothing of scaling.",
         "python3 bench/scaling_model.py --output FILE", scaling_measured),
    Plot("scaling-extrapolated", "What the scaling model says of larger machines",
         "Tokens a second of plain decoding that the model expects, by hardware and shape of the network. These are "
         "predictions; nothing here was run.", "python3 bench/scaling_model.py --output FILE", scaling_extrapolated),
]
