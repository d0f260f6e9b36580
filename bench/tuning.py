"""Does `tune` find the best? Settings chosen by `entrodraft tune` on one half of the prompts, against a sweep of forty settings
that are all run for real on the other half: counts of these runs times one costs file.
"""
import json
import pathlib
import tempfile

from simulation import models, ms_per_token, parser_of, run

SWEEP = [*(f"static:{tau}" for tau in (1, 2, 2.25, 3, 4, 5)),
         *(f"moving-average:{factor}:{window}" for factor in (0.4, 0.8, 1.2) for window in (1, 3, 7)),
         *(f"cumulative:{tau}:{window}" for tau in (10, 30, 50) for window in (1, 7)),
         *(f"constant:{k}" for k in (1, 2, 3, 4, 5, 7)),
         "heuristic:2", "heuristic:5", "adaptive:2", "adaptive:3",
         "confidence:0.05", "confidence:0.1", "confidence:0.2", "confidence:0.4",
         "svip:0.5", "svip:0.8", "svip:1", "adaedl:0.02", "adaedl:0.05"]


def rule_text(winner):
    return ":".join([winner["rule"], *(str(value) for value in winner["parameters"].values())])


def one(options, work, temperature):
    report = work / f"tune-{temperature}.json"
    sampling = ("--temperature", temperature, "--max-new-tokens", options.max_new_tokens)
    print(run(options, "tune", *models(options), "--input", options.prompts, *sampling, "--output", work / "best.conf",
              "--report", report, "--repetitions", options.repetitions, "--quiet"))
    tuned = json.loads(report.read_text())
    costs = work / "costs.json"
    costs.write_text(json.dumps(tuned["costs"]))
    held_out = work / "held-out.jsonl"
    held_out.write_text("".join(pathlib.Path(options.prompts).read_text().splitlines(keepends=True)[1::2]))
    output = work / "sweep.json"
    rules = [*SWEEP, "expected-gain", rule_text(tuned["winner"])]
    run(options, "bench", "compare", *models(options), "--input", held_out, "--temperatures", temperature, "--acceptances",
        "gumbel", "--max-new-tokens", options.max_new_tokens, "--rules", ",".join(rules), "--costs", costs, "--output",
        output, "--quiet")
    (result,) = json.loads(output.read_text())["temperatures"]
    settings = [s for s in result["settings"] if not s["kind"] and s["setting"].startswith("model")]
    cost = [(ms_per_token(setting, tuned["costs"]), setting["setting"]) for setting in settings]
    sweep, winner = cost[:-1], cost[-1]
    print(f"temperature {temperature}: best of {len(sweep)} settings, all run: {min(sweep)[1]}, {min(sweep)[0]:.4f} ms a token by "
          f"counts times costs")
    print(f"the winner of tune: {winner[1]}, {winner[0]:.4f} ms: {winner[0] / min(sweep)[0]:.4f} of the best")


def main():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for temperature in options.temperatures.split(","):
            one(options, pathlib.Path(scratch), temperature)


if __name__ == "__main__":
    main()
