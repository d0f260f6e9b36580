"""Are simulated rounds those of real runs, and is simulated time measured time? Every rule at several settings, greedy and
sampled at temperature 1 with gumbel: counts must be equal as integers, milliseconds a token are set side by side.

Records the prompts, replays the settings (`entrodraft simulate`) and runs them (`entrodraft bench compare`), both with the
recording's costs. For the times all settings run on a few prompts at a time, and the counts are multiplied by costs that
were measured right before and right after: a machine's speed moves by a tenth from one minute to the next.
"""
import argparse
import json
import pathlib
import statistics
import tempfile

from runs import DEMO, ROOT, run

COUNTS = ("new_tokens", "rounds", "drafted", "accepted", "target_passes", "draft_passes", "passes_of_rows")
CAPS = (2, 4, 15)  # of rules that have nothing to set but the cap
SLICE = 16  # prompts that run between two measurements of costs


def ours(options, *arguments):
    """What a command of ours prints."""
    return run([options.binary, *arguments]).stdout


def models(options):
    dtype = ("--dtype", options.dtype) if options.dtype else ()
    return ("--target", options.target, "--draft", options.draft, "--threads", options.threads, *dtype)


def recorded(options, work, temperature, prompts, *limits):
    """A recording, and the costs of rounds that it holds as a file of their own."""
    recording, costs = work / "recording.edr", work / "costs.json"
    recording.unlink(missing_ok=True)
    ours(options, "record", *models(options), "--input", prompts, "--output", recording, "--temperature", temperature,
        "--max-new-tokens", options.max_new_tokens, "--quiet", *limits)
    head = json.loads(ours(options, "simulate", "--recording", recording, "--rules", "oracle", "--json"))
    costs.write_text(json.dumps(head["costs"]))
    return recording, costs


def costs_now(options, work, temperature, prompts):
    """What rounds cost at this moment: the machine is now faster, now slower, for seconds or for minutes."""
    (work / "now").mkdir(exist_ok=True)
    return json.loads(recorded(options, work / "now", temperature, prompts, "--prompts", 2)[1].read_text())


def ms_per_token(setting, costs):
    """Counts times costs, docs/reference.md, Simulation. Of rules that keep at least one token of each draft."""
    first = costs.get("t_first_draft_ms", costs["t_draft_ms"])
    rows = setting["passes_of_rows"]
    target = sum(n * costs["t_target_ms"][min(r, len(costs["t_target_ms"])) - 1] for r, n in enumerate(rows) if r)
    drafting = sum(rows[2:])
    draft = drafting * first + (setting["draft_passes"] - drafting) * costs["t_draft_ms"]
    return (target + draft + setting["rounds"] * costs.get("t_round_ms", 0)) / setting["new_tokens"]


def simulated(options, recording, costs, rules, cap):
    result = json.loads(ours(options, "simulate", "--recording", recording, "--rules", rules, "--max-draft-tokens", cap,
                            "--costs", costs, "--json"))
    return {setting["setting"]: setting for setting in result["settings"]}


def measured(options, work, costs, temperature, prompts, rules, cap):
    output = work / "compare.json"
    ours(options, "bench", "compare", *models(options), "--input", prompts, "--max-new-tokens", options.max_new_tokens,
        "--temperatures", temperature, "--rules", rules, "--max-draft-tokens", cap, "--costs", costs,
        "--output", output, "--quiet")
    (result,) = json.loads(output.read_text())["temperatures"]
    return {setting["setting"].removeprefix("model, ").removesuffix(", gumbel"): setting
            for setting in result["settings"] if not setting["kind"]}


def spread(settings, n):
    """Of each rule's settings up to n, from the first to the last, as --rules takes them."""
    by_rule = {}
    for setting in settings:
        by_rule.setdefault(setting["rule"], []).append(setting["setting"])
    return {rule: [texts[i] for i in sorted({round(k * (len(texts) - 1) / max(n - 1, 1)) for k in range(n)})]
            for rule, texts in by_rule.items() if rule not in ("plain", "oracle")}


def batches(options, recording):
    """[(rules, cap)]: three settings of each rule that the program has a grid for, the others under several caps."""
    grid = json.loads(ours(options, "simulate", "--recording", recording, "--rules", "grid", "--json"))["settings"]
    rules = spread(grid, 3)
    with_grid = [text for texts in rules.values() for text in texts if ":" in text]
    return [(",".join(with_grid), max(CAPS))] + [(text, cap) for texts in rules.values() for text in texts
                                                 if ":" not in text for cap in CAPS]


def check_counts(options, work, recording, costs, temperature):
    """Every setting replayed and run on all prompts: {(name, cap): its counts}, and those that differ."""
    counted, different = {}, set()
    for rules, cap in batches(options, recording):
        replayed = simulated(options, recording, costs, rules, cap)
        for name, setting in measured(options, work, costs, temperature, options.prompts, rules, cap).items():
            counted.setdefault((name, cap), setting)
            if any(replayed[name][count] != setting[count] for count in COUNTS):
                different.add((name, cap))
    return counted, different


def check_times(options, work, recording, costs, temperature):
    """{(name, cap): [(counts times costs, measured)]}, ms a token, slice by slice of the prompts: costs are measured
    before and after each slice's runs, on its first two prompts."""
    lines = pathlib.Path(options.prompts).read_text().splitlines(keepends=True)
    times, prompts, all_rules = {}, work / "slice.jsonl", batches(options, recording)
    for _ in range(options.repetitions):
        for at in range(0, len(lines), SLICE):
            prompts.write_text("".join(lines[at:at + SLICE]))
            before = costs_now(options, work, temperature, prompts)
            runs = {}
            for rules, cap in all_rules:
                for name, setting in measured(options, work, costs, temperature, prompts, rules, cap).items():
                    runs.setdefault((name, cap), setting)
            after = costs_now(options, work, temperature, prompts)
            for key, setting in runs.items():
                foretold = (ms_per_token(setting, before) + ms_per_token(setting, after)) / 2
                times.setdefault(key, []).append((foretold, setting["ms_per_token"]))
    return times


def compare(options, work, temperature):
    recording, costs = recorded(options, work, temperature, options.prompts)
    print(f"\ntemperature {temperature}: costs {costs.read_text()}")
    counted, different = check_counts(options, work, recording, costs, temperature)
    times = check_times(options, work, recording, costs, temperature)
    ratios = []
    print(f"{'setting':46} cap  passes of the target  of the draft  equal  simulated ms  measured ms  measured/simulated")
    for (name, cap), setting in counted.items():
        foretold, took = (statistics.mean(column) for column in zip(*times[name, cap]))
        ratios.append(took / foretold)
        print(f"{name:46} {cap:3}  {setting['target_passes']:20}  {setting['draft_passes']:12}  "
              f"{'NO' if (name, cap) in different else 'yes':>5}  {foretold:12.4f}  {took:11.4f}  {took / foretold:18.3f}")
    within = sum(abs(ratio - 1) <= 0.05 for ratio in ratios)
    print(f"temperature {temperature}: {len(ratios)} settings, {len(different)} with other counts; measured over simulated "
          f"{min(ratios):.3f} to {max(ratios):.3f}, median {statistics.median(ratios):.3f}, {within} within 5 %", flush=True)
    return len(different)


def parser_of(description):
    """The options of a bench over the demo pair, which models() turns into ours."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--binary", default=str(ROOT / "build/entrodraft"))
    parser.add_argument("--target", default=str(DEMO / "target"))
    parser.add_argument("--draft", default=str(DEMO / "draft"))
    parser.add_argument("--prompts", default=str(DEMO / "prompts.jsonl"))
    parser.add_argument("--temperatures", default="0,1")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="")
    return parser


def main():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        different = sum(compare(options, pathlib.Path(scratch), temperature)
                        for temperature in options.temperatures.split(","))
    raise SystemExit(1 if different else 0)


if __name__ == "__main__":
    main()
