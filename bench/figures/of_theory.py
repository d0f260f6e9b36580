"""What does the i.i.d. model promise before anything runs? Figures of theory.py: those of Leviathan et al. 2023, 2 to 4.

Draws the numbers of the file and computes none: the formulas are in bench/theory.py.
"""

from .drawing import (BLACK, Drawing, Plot, colour, integers, legend_below, line, mark, panels)


def curves_of(axis, rows, by, value, name):
    """A line over alpha for each number of field `by`, the same colour and mark in all panels."""
    for index, key in enumerate(sorted({row[by] for row in rows})):
        part = sorted((row["alpha"], row[value]) for row in rows if row[by] == key and row.get(value) is not None)
        axis.plot([alpha for alpha, _ in part], [each for _, each in part], color=colour(index), linestyle=line(index),
                  marker=mark(index), markersize=4, linewidth=1.3, label=f"{name} {key:g}")


def of_alpha(axis, label, floor=0):
    axis.set_xlabel("acceptance rate alpha")
    axis.set_ylabel(label)
    axis.set_ylim(bottom=floor)


def expected_tokens(inputs, choice):
    del choice
    drawings = []
    for source in inputs.of("theory"):
        if source.data["expected_tokens"]:
            figure, axes = panels(height=4.0)
            curves_of(axes[0, 0], source.data["expected_tokens"], "k", "expected_tokens", "k")
            of_alpha(axes[0, 0], "expected tokens per target pass")
            legend_below(figure, axes, 6)
            drawings.append(Drawing(source.label, figure, source.label))
    return drawings


def best_length(inputs, choice):
    del choice
    drawings = []
    for source in inputs.of("theory"):
        rows = source.data["rows"]
        if not rows:
            continue
        figure, axes = panels(1, 2, height=4.0)
        curves_of(axes[0, 0], rows, "c", "best_k", "c")
        of_alpha(axes[0, 0], "best draft length k", -0.4)
        integers(axes[0, 0], "y")
        curves_of(axes[0, 1], rows, "c", "walltime_factor", "c")
        for index, c in enumerate(sorted({row["c"] for row in rows})):
            bound = sorted((row["alpha"], row["bound"]) for row in rows
                           if row["c"] == c and row.get("bound") is not None)
            axes[0, 1].plot([alpha for alpha, _ in bound], [each for _, each in bound], color=colour(index),
                            linewidth=0.7, linestyle=":")
        axes[0, 1].plot([], [], color=BLACK, linewidth=0.7, linestyle=":", label="(1 + alpha) / (1 + c)")
        of_alpha(axes[0, 1], "walltime factor at the best k")
        legend_below(figure, axes, 5)
        most = source.data.get("max_tokens")
        drawings.append(Drawing(source.label, figure, source.label + (f", k up to {most}" if most else "")))
    return drawings


def factors(inputs, choice):
    del choice
    drawings = []
    for source in inputs.of("theory"):
        costs = sorted({(row["c"], row["c_operations"]) for row in source.data["factors"]})
        if not costs:
            continue
        figure, axes = panels(len(costs), 2, height=3.2 if len(costs) > 1 else 4.0, sharex=True, sharey="col")
        for (c, c_operations), (walltime, operations) in zip(costs, axes):
            rows = [row for row in source.data["factors"] if (row["c"], row["c_operations"]) == (c, c_operations)]
            curves_of(walltime, rows, "k", "walltime_factor", "k")
            curves_of(operations, rows, "k", "operations_factor", "k")
            walltime.set_title(f"c {c:g}")
            operations.set_title(f"c in operations {c_operations:g}")
            for axis in (walltime, operations):
                axis.axhline(1, color=BLACK, linewidth=1, label="plain decoding")
        for walltime, operations in axes:  # after all are drawn, as they share their scales
            of_alpha(walltime, "walltime factor")
            of_alpha(operations, "operations factor")
        for axis in axes[:-1].ravel():
            axis.set_xlabel("")
        legend_below(figure, axes, 6)
        drawings.append(Drawing(source.label, figure, source.label))
    return drawings


THEORY = "python3 bench/theory.py --output FILE"

PLOTS = [
    Plot("theory-expected-tokens", "Expected tokens per target pass, i.i.d. model",
         "What a pass of the target brings where each of k drafted tokens is accepted with chance alpha, whatever became of "
         "the others: (1 - alpha^(k + 1)) / (1 - alpha). Figure 2 of Leviathan et al. 2023. Nothing here was run.",
         THEORY, expected_tokens),
    Plot("theory-best-length", "Best draft length, i.i.d. model",
         "On the left the k with the largest walltime factor, for a draft pass that takes c of a target pass (Figure "
         "3); 0 is plain decoding. On the right that factor, over the thin line that it never falls below where "
         "alpha is above c (Corollary 3.9).", THEORY, best_length),
    Plot("theory-factors", "Time and operations over plain decoding, i.i.d. model",
         "For drafts of k tokens: how many times faster than plain decoding, and how many times its operations "
         "(Figure 4). Below the black line a draft of that length costs more time than it saves.", THEORY, factors),
]
