"""What does the i.i.d. model promise before anything runs? The tables of Leviathan et al. 2023, Figures 2 to 4.

    python3 bench/theory.py [--alpha LIST] [--c LIST] [--c-operations LIST] [--max-tokens K] [--output FILE] [--json]

Each drafted token is accepted with chance alpha, whatever became of the others; a draft pass takes c of a target pass.
Figures of a run's own alpha are in the summary of `generate` and in `bench compare`. Needs the standard library only.
"""

import dataclasses

from runs import Parser, aligned, comma_list, file_name, number, report

FIGURE_LENGTHS = (1, 3, 5, 7, 10)  # draft lengths of the paper's figures


def expected_tokens(alpha, k):
    """Of a target pass over k drafted tokens: (1 - alpha^(k + 1)) / (1 - alpha), written so that alpha may be 1."""
    tokens = 0.0
    for _ in range(k + 1):
        tokens = tokens * alpha + 1
    return tokens


def walltime_factor(alpha, k, c):
    """Speed-up over plain decoding (Theorem 3.8)."""
    return expected_tokens(alpha, k) / (k * c + 1)


def operations_factor(alpha, k, c_operations):
    """Operations over those of plain decoding (Theorem 3.11); c_operations: a draft row's over a target row's."""
    return (k * c_operations + k + 1) / expected_tokens(alpha, k)


@dataclasses.dataclass
class Plan:
    """What the formulas are tabulated over; one of c_operations for each of cs."""

    alphas: list
    cs: list
    c_operations: list
    max_tokens: int

    def costs(self):
        return list(zip(self.cs, self.c_operations))

    def lengths(self):
        return [k for k in FIGURE_LENGTHS if k <= self.max_tokens]


def best_length(alpha, c, c_operations, max_tokens):
    """The shortest of the draft lengths with the largest walltime factor, 0 where none pays (Corollary 3.9)."""
    k = max(range(max_tokens + 1), key=lambda k: walltime_factor(alpha, k, c))
    return {"alpha": alpha, "c": c, "c_operations": c_operations, "best_k": k,
            "expected_tokens": expected_tokens(alpha, k), "walltime_factor": walltime_factor(alpha, k, c),
            "operations_factor": operations_factor(alpha, k, c_operations),
            "bound": (1 + alpha) / (1 + c) if alpha > c else None}


# ---- batches: SmartSpec (Liu et al. 2024) ----

class PassTimes:
    """Milliseconds of a pass, on lines through those of a costs file: [rows - 1], None: not timed."""

    def __init__(self, times):
        self.timed = [(rows, ms) for rows, ms in enumerate(times, 1) if ms is not None]

    def of(self, rows):
        if len(self.timed) == 1:
            return self.timed[0][1]
        lines = list(zip(self.timed, self.timed[1:]))
        (begin, first), (end, last) = next((line for line in lines if rows <= line[1][0]), lines[-1])
        return first + (rows - begin) * (last - first) / (end - begin)


def goodput(alpha, k, batch, target, draft):
    """Tokens a millisecond that `batch` sequences are expected to emit with k drafted tokens each."""
    return batch * expected_tokens(alpha, k) / (target.of(batch * (k + 1)) + k * draft.of(batch))


def best_goodput(alpha, batch, target, draft, max_rows, max_tokens=15):
    """(k, its goodput over that of k = 0): the shortest of the best lengths whose pass has at most so many rows."""
    lengths = range(min(max_tokens, max_rows // batch - 1) + 1)
    k = max(lengths, key=lambda k: goodput(alpha, k, batch, target, draft))
    return k, goodput(alpha, k, batch, target, draft) / goodput(alpha, 0, batch, target, draft)


def result_of(plan):
    """All figures as JSON has them (docs/formats.md); rows go through the alphas for each c."""
    rows = [best_length(alpha, *costs, plan.max_tokens) for costs in plan.costs() for alpha in plan.alphas]
    tokens = [{"k": k, "alpha": alpha, "expected_tokens": expected_tokens(alpha, k)}
              for k in plan.lengths() for alpha in plan.alphas]
    factors = [{"k": k, "c": c, "c_operations": c_operations, "alpha": alpha,
                "walltime_factor": walltime_factor(alpha, k, c),
                "operations_factor": operations_factor(alpha, k, c_operations)}
               for k in plan.lengths() for c, c_operations in plan.costs() for alpha in plan.alphas]
    return {"command": "theory", "max_tokens": plan.max_tokens, "rows": rows, "expected_tokens": tokens,
            "factors": factors}


def text_of(plan):
    def over_alpha(columns):
        """A row for each alpha; `columns` are (head, cell of an alpha)."""
        return aligned([["alpha", *(head for head, _ in columns)]] + [
            [f"{alpha:g}", *(cell(alpha) for _, cell in columns)] for alpha in plan.alphas])

    def over_c(cell):
        return over_alpha([(f"c={c:g}", lambda alpha, costs=(c, c_operations): cell(best_length(
            alpha, *costs, plan.max_tokens))) for c, c_operations in plan.costs()])

    def walltime(row):
        return f"{row['walltime_factor']:.3f}" + (f" >= {row['bound']:.3f}" if row["bound"] else "  no gain")

    text = "Acceptances independent of each other, each with chance alpha; k drafted tokens a round; c: a draft pass " \
           "over a target pass\n\nExpected tokens a target pass (Figure 2)\n"
    text += over_alpha([(f"k={k}", lambda alpha, k=k: f"{expected_tokens(alpha, k):.3f}") for k in plan.lengths()])
    text += f"\nBest k, of 0 to {plan.max_tokens} (Figure 3)\n" + over_c(lambda row: str(row["best_k"]))
    text += "\nWalltime factor at the best k, and its bound (1 + alpha) / (1 + c) where alpha > c\n" + over_c(walltime)
    text += "\nOperations factor at the best k\n" + over_c(lambda row: f"{row['operations_factor']:.3f}")
    for c, c_operations in plan.costs():
        text += f"\nFactors over plain decoding, c {c:g}, c in operations {c_operations:g} (Figure 4)\n" + over_alpha(
            [(f"{name} k={k}", lambda alpha, factor=factor, k=k, cost=cost: f"{factor(alpha, k, cost):.2f}")
             for name, factor, cost in (("walltime", walltime_factor, c), ("operations", operations_factor, c_operations))
             for k in plan.lengths()])
    return text


def parse(arguments):
    parser = Parser(prog="theory.py", description=__doc__.splitlines()[0])
    parser.add_argument("--alpha", type=comma_list(number(0, 1)), metavar="A,A",
                        default=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95],
                        help="chances that a drafted token is accepted [0.1 to 0.9, 0.95]")
    parser.add_argument("--c", type=comma_list(number(0)), metavar="C,C", default=[0.01, 0.02, 0.05, 0.1],
                        help="time of a draft pass over a target pass [0.01,0.02,0.05,0.1]")
    parser.add_argument("--c-operations", type=comma_list(number(0)), metavar="C,C",
                        help="the same in operations: one for all, or one for each of --c [as --c]")
    parser.add_argument("--max-tokens", type=number(1, 1000, int), metavar="K", default=15, 
                        help="the longest draft that is looked at, 1 to 1000 [15]")
    parser.add_argument("--output", type=file_name, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--json", action="store_true", help="results as JSON on stdout")
    options = parser.parse_args(arguments)
    c_operations = options.c_operations or options.c
    c_operations = c_operations * len(options.c) if len(c_operations) == 1 else c_operations
    if len(c_operations) != len(options.c):
        parser.error(f"--c-operations has {len(c_operations)} numbers and --c has {len(options.c)}; give one for all or "
                     "one for each")
    return options, Plan(options.alpha, options.c, c_operations, options.max_tokens)


def main(arguments=None):
    options, plan = parse(arguments)
    report(text_of(plan), result_of(plan), options.output, options.json)


if __name__ == "__main__":
    main()
