"""Does `tune` find the best? Settings chosen by `entrodraft tune` on one half of the prompts, against a sweep of five
settings of each rule, from one end of what tune tried to the other, that are all run for real on the other half: counts
of these runs times one costs file. What tune's own runs counted of a rule must be what the sweep counts of it, or the
exit code is 1; of expected-gain, which measures its costs in tune and is given them in the sweep, both are printed.
"""
import json
import pathlib
import tempfile

from simulation import models, ms_per_token, ours, parser_of, spread

SWEPT = 5  # settings of a rule
COUNTS = ("new_tokens", "rounds", "drafted", "accepted", "target_passes", "draft_passes")
ROUNDING = 1e-9  # of two sums of the same products


def swept(options, work, temperature, costs, rules):
    """Settings of bench compare on the prompts that tune confirmed on, in the order of `rules`."""
    held_out, output = work / "held-out.jsonl", work / "sweep.json"
    held_out.write_text("".join(pathlib.Path(options.prompts).read_text().splitlines(keepends=True)[1::2]))
    ours(options, "bench", "compare", *models(options), "--input", held_out, "--temperatures", temperature,
         "--max-new-tokens", options.max_new_tokens, "--rules", ",".join(rules), "--costs",
         costs, "--output", output, "--quiet")
    (result,) = json.loads(output.read_text())["temperatures"]
    settings = [s for s in result["settings"] if not s["kind"] and s["setting"].startswith("model")]
    if len(settings) != len(rules):
        raise SystemExit(f"{len(settings)} settings came back of {len(rules)}")
    return settings


def differing(confirmed, settings, costs):
    """Lines on rules of which tune and the sweep say something else, and how many of them may not."""
    lines, wrong = [], 0
    for tuned, setting in zip(confirmed, settings):
        own, other = tuned["counts_times_costs_ms_per_token"], ms_per_token(setting, costs)
        if abs(own / other - 1) <= ROUNDING and all(tuned[count] == setting[count] for count in COUNTS):
            continue
        may = tuned["rule"] == "expected-gain"
        wrong += not may
        counts = ", ".join(f"{count} {tuned[count]} and {setting[count]}" for count in COUNTS)
        lines.append(f"{tuned['setting']}: {own:.4f} ms by tune's counts, {other:.4f} by the sweep's"
                     + ("" if may else f", WHICH MUST BE EQUAL: {counts}"))
    return lines, wrong


def one(options, work, temperature):
    """Prints what came of it; returns how many rules were counted otherwise by tune than by the sweep."""
    report, costs = work / f"tune-{temperature}.json", work / "costs.json"
    sampling = ("--temperature", temperature, "--max-new-tokens", options.max_new_tokens)
    print(ours(options, "tune", *models(options), "--input", options.prompts, *sampling, "--output", work / "best.conf",
               "--report", report, "--repetitions", options.repetitions, "--quiet"))
    tuned = json.loads(report.read_text())
    costs.write_text(json.dumps(tuned["costs"]))
    tried = sorted(tuned["simulated"], key=lambda setting: list((setting.get("parameters") or {}).values()))
    of_sweep = [text for texts in spread(tried, SWEPT).values() for text in texts]
    settings = swept(options, work, temperature, costs, [*of_sweep, *(each["setting"] for each in tuned["confirmed"])])
    sweep, confirmed = settings[:len(of_sweep)], settings[len(of_sweep):]
    names = [rule["setting"] for rule in tuned["confirmed"]]
    winner = confirmed[names.index(tuned["winner"]["setting"])]
    cost = [(ms_per_token(setting, tuned["costs"]), setting["setting"]) for setting in sweep]
    own = ms_per_token(winner, tuned["costs"])
    print(f"temperature {temperature}: the winner of tune: {winner['setting']}, {own:.4f} ms a token by counts times costs")
    for what, candidates in (("best", cost), ("best other setting", [c for c in cost if c[1] != winner["setting"]])):
        best, name = min(candidates)
        print(f"{what} of the {len(sweep)} settings of the sweep, all run: {name}, {best:.4f} ms; the winner takes "
              f"{own / best:.4f} of that")
    lines, wrong = differing(tuned["confirmed"], confirmed, tuned["costs"])
    print("\n".join([*lines, f"counts of tune and of the sweep: {len(confirmed) - len(lines)} of {len(confirmed)} equal"]),
          flush=True)
    return wrong


def main():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        wrong = sum(one(options, pathlib.Path(scratch), temperature) for temperature in options.temperatures.split(","))
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
