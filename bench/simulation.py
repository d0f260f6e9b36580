"""Are simulated rounds those of real runs, and is simulated time measured time? Every rule at several settings, greedy and
sampled at temperature 1 with gumbel: counts must be equal as integers, milliseconds a token are set side by side.

Records the prompts, replays the settings (`entrodraft simulate`) and runs them (`entrodraft bench compare`), both with the
recording's costs.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNTS = ("new_tokens", "rounds", "drafted", "accepted", "target_passes", "draft_passes", "passes_of_rows")
SETTINGS = ("static:1.5", "static:2.25", "static:4",
            "moving-average:0.4:3", "moving-average:0.5:7", "moving-average:1:5",
            "cumulative:5:3", "cumulative:10:7", "cumulative:30:7",
            "constant:2", "constant:5", "constant:9",
            "heuristic:2", "heuristic:5", "heuristic:10",
            "adaptive:1", "adaptive:3", "adaptive:6",
            "confidence:0.1", "confidence:0.3", "confidence:0.4",
            "svip:0.3", "svip:0.5", "svip:0.8",
            "adaedl:0.02", "adaedl:0.1", "adaedl:0.2")
GAIN_CAPS = (2, 4, 15)  # expected-gain has nothing to set but the cap


def run(options, *arguments):
    command = [options.binary, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def models(options):
    dtype = ("--dtype", options.dtype) if options.dtype else ()
    return ("--target", options.target, "--draft", options.draft, "--threads", options.threads, *dtype)


def recorded(options, work, temperature):
    """The recording, and the costs that it holds as a file of their own."""
    recording, costs = work / f"t{temperature}.edr", work / f"costs-{temperature}.json"
    run(options, "record", *models(options), "--input", options.prompts, "--output", recording, "--temperature",
        temperature, "--max-new-tokens", options.max_new_tokens, "--quiet")
    plain = json.loads(run(options, "simulate", "--recording", recording, "--rules", "oracle", "--json"))
    costs.write_text(json.dumps(plain["costs"]))
    return recording, costs


def simulated(options, recording, costs, rules, cap):
    result = json.loads(run(options, "simulate", "--recording", recording, "--rules", rules, "--max-draft-tokens", cap,
                            "--costs", costs, "--json"))
    return {setting["setting"]: setting for setting in result["settings"]}


def measured(options, work, costs, temperature, rules, cap):
    output = work / "compare.json"
    run(options, "bench", "compare", *models(options), "--input", options.prompts, "--max-new-tokens",
        options.max_new_tokens, "--temperatures", temperature, "--acceptances", "gumbel", "--rules", rules,
        "--max-draft-tokens", cap, "--costs", costs, "--output", output, "--quiet")
    (result,) = json.loads(output.read_text())["temperatures"]
    return {setting["setting"].removeprefix("model, ").removesuffix(", gumbel"): setting
            for setting in result["settings"] if not setting["kind"]}


def compare(options, work, temperature):
    recording, costs = recorded(options, work, temperature)
    print(f"\ntemperature {temperature}: costs {costs.read_text()}")
    batches = [(",".join(SETTINGS), 15)] + [("expected-gain", cap) for cap in GAIN_CAPS]
    different, ratios = 0, []
    print(f"{'setting':46} cap  passes of the target  of the draft  equal  simulated ms  measured ms  measured/simulated")
    for rules, cap in batches:
        replayed = simulated(options, recording, costs, rules, cap)
        real = measured(options, work, costs, temperature, rules, cap)
        for name, setting in real.items():
            if name == "plain" and cap != 15:
                continue
            own = replayed[name]
            equal = all(own[count] == setting[count] for count in COUNTS)
            different += not equal
            ratio = setting["ms_per_token"] / own["ms_per_token"]
            ratios.append(ratio)
            print(f"{name:46} {cap:3}  {setting['target_passes']:20}  {setting['draft_passes']:12}  "
                  f"{'yes' if equal else 'NO':>5}  {own['ms_per_token']:12.4f}  {setting['ms_per_token']:11.4f}  {ratio:18.3f}")
    print(f"temperature {temperature}: {len(ratios)} settings, {different} with other counts; measured over simulated "
          f"{min(ratios):.3f} to {max(ratios):.3f}, median {statistics.median(ratios):.3f}")
    return different


def parser_of(description):
    """The options of a bench over the demo pair, which models() turns into ours."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--binary", default=str(ROOT / "build/entrodraft"))
    parser.add_argument("--target", default=str(ROOT / "model/demo/target"))
    parser.add_argument("--draft", default=str(ROOT / "model/demo/draft"))
    parser.add_argument("--prompts", default=str(ROOT / "model/demo/prompts.jsonl"))
    parser.add_argument("--temperatures", default="0,1")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="")
    return parser


def main():
    options = parser_of(__doc__.splitlines()[0]).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        different = sum(compare(options, pathlib.Path(scratch), temperature)
                        for temperature in options.temperatures.split(","))
    raise SystemExit(1 if different else 0)


if __name__ == "__main__":
    main()
