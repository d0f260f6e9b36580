"""Figures of run.py by category: tokens a pass, and the speed-up over plain decoding with its interval.

Arithmetic and layout alone: results come from measure.py. bench/tasks/README.md says what each column means.
"""

import dataclasses
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from runs import students_t  # noqa: E402


@dataclasses.dataclass
class Sums:
    """What one contender did for a prompt, over its turns, samples and repetitions."""

    tokens: int = 0
    seconds: float = 0.0
    decoding_seconds: float = 0.0  # without reading the prompt
    passes: int = 0
    drafted: int = 0
    accepted: int = 0

    def add(self, other):
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def sums_of(stats):
    return Sums(stats["new_tokens"], stats["seconds"], stats["ms_per_token"] * stats["new_tokens"] / 1000,
                stats["target_passes"], stats["drafted"], stats["accepted"])


def total(sums):
    whole = Sums()
    for one in sums:
        whole.add(one)
    return whole


def units_of(asked, results, name):
    """By category, of each prompt, its (plain, own) sums in each repetition; by category how many prompts were left
    out, and were cut; and the first error. A prompt that one contender could not serve, in any turn, counts for none.
    """
    units, left_out, cut, first_error = {}, {}, {}, ""
    by_item = {}
    for one in asked:
        by_item.setdefault(one.item.id, []).append(one)
    for turns in by_item.values():
        category = turns[0].item.category
        pairs = [(results["plain"][one.key], results[name][one.key]) for one in turns]
        errors = [result["error"] for pair in pairs for side in pair for result in side if "error" in result]
        if errors:
            first_error = first_error or f"{turns[0].item.id}: {errors[0]}"
            left_out[category] = left_out.get(category, 0) + 1
            continue
        if any(one.is_cut for one in turns):
            cut[category] = cut.get(category, 0) + 1
        units.setdefault(category, []).append([
            tuple(total(sums_of(pair[side][repetition]["stats"]) for pair in pairs) for side in (0, 1))
            for repetition in range(len(pairs[0][0]))])
    return units, left_out, cut, first_error


def speed_up(units, seconds="seconds"):
    """Plain over own time a token, both over all prompts, with its 95 % interval over prompts (None for one prompt).

    The interval is that of the logarithm, from each prompt's share in the four sums (delta method): a prompt whose
    times went up on both sides adds nothing to it.
    """
    plain, own = (total(unit[side] for unit in units) for side in (0, 1))
    n = len(units)
    ratio = getattr(plain, seconds) / plain.tokens / (getattr(own, seconds) / own.tokens)
    if n < 2:
        return ratio, None
    influences = [n * (getattr(p, seconds) / getattr(plain, seconds) - p.tokens / plain.tokens
                       - getattr(s, seconds) / getattr(own, seconds) + s.tokens / own.tokens) for p, s in units]
    half = students_t(n) * math.sqrt(sum(e * e for e in influences) / (n * (n - 1)))
    return ratio, (ratio * math.exp(-half), ratio * math.exp(half))


HEAD = (f"{'category':26} {'prompts':>7} {'new tokens':>10} {'tokens a pass':>13} {'accepted/drafted':>16} "
        f"{'plain ms':>9} {'own ms':>9}  {'speed-up (95 % interval)':25} {'of repetitions':16} "
        f"{'decoding':>8}")


def range_of(prompts):
    """The lowest and the highest speed-up of a repetition: what the machine did to whole calls."""
    repetitions = list(zip(*prompts))
    if len(repetitions) < 2:
        return "-"
    found = [speed_up(units)[0] for units in repetitions]
    return f"{min(found):.3f} to {max(found):.3f}"


def row(name, prompts):
    units = [tuple(total(pair[side] for pair in prompt) for side in (0, 1)) for prompt in prompts]
    repetitions = len(prompts[0])
    plain, own = (total(unit[side] for unit in units) for side in (0, 1))
    ratio, interval = speed_up(units)
    shown = f"{ratio:.3f}" + (f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else " (one prompt)")
    accepted = f"{own.accepted / own.drafted:.3f}" if own.drafted else "-"
    return (f"{name:26} {len(units):7} {own.tokens // repetitions:10} {own.tokens / own.passes:13.2f} "
            f"{accepted:>16} {1000 * plain.seconds / plain.tokens:9.4f} {1000 * own.seconds / own.tokens:9.4f}  "
            f"{shown:25} {range_of(prompts):16} {speed_up(units, 'decoding_seconds')[0]:8.3f}")


def speed_table(asked, results, name):
    """Lines of text; none where no prompt was served."""
    units, left_out, cut, first_error = units_of(asked, results, name)
    lines = [HEAD, *(row(category, prompts) for category, prompts in units.items()),
             row("total", [prompt for prompts in units.values() for prompt in prompts])] if units else []
    for what, counts in (("left out, with an error", left_out), ("cut to their last tokens", cut)):
        if counts:
            lines.append(f"prompts {what}: " + ", ".join(f"{n} of {category}" for category, n in counts.items()))
    if first_error:
        lines.append(f"the first error: {first_error}")
    return lines
