"""What drafting ahead brings: a drafter on a rank of its own that prepares the next round while the target scores.

    python3 bench/draft_ahead.py [--binary build/entrodraft] [--pairs 5] [--work DIR]

1. Simulated costs, real counts: bench compare with exactly as many hidden passes a round as a target pass has time for
   (t_target = 10 and 20 t_draft, rows free: a GPU's case). A round costs t_target and its unhidden draft passes; each
   side has its own best rule: constant 1 to 12 or expected-gain.
2. Two ranks, drafter and target on a core each: hit rate, ms a round against t_target(k + 1) and the messages of a round
   as bench latency measures them, and ahead against not ahead in interleaved runs (mean ratio, 95 % interval).
Everything is printed as it comes.
"""

import argparse
import json
import pathlib
import tempfile

from runs import AS_ROOT, DEMO, PAIRS, ROOT, interval, run


def ranks_run(options, binding, *arguments):
    return run(["mpirun", *AS_ROOT, "-n", 2, *binding, options.binary, *arguments]).stdout


def compare(options, binding, *arguments):
    out = options.work / "compare.json"
    ranks_run(options, binding, "bench", "compare", "--target", DEMO / "target", "--draft", DEMO / "draft", "--input",
        DEMO / "prompts.jsonl", "--draft-placement", "dedicated", "--threads", 1, "--quiet", "--output", out,
        "--prompts", options.prompts, *arguments)
    return [(result["temperature"],
             {setting["setting"]: setting for setting in result["settings"]
              if not setting["kind"] and not setting["setting"].startswith("plain")})
            for result in json.loads(out.read_text())["temperatures"]]


def write_costs(options, t_target):
    """A draft pass 0.05 ms, a target pass t_target of them, whatever its rows."""
    costs = {"schema_version": 1, "t_draft_ms": 0.05, "t_target_ms": [0.05 * t_target] * 16}
    options.costs.write_text(json.dumps(costs))


def simulated(options):
    rules = ",".join([*(f"constant:{k}" for k in range(1, 13)), "expected-gain"])
    print("simulated: real counts, t_draft = 1, rows free; tokens a unit of time at the best of constant 1 to 12 and "
          "expected-gain")
    print("t_target  temperature  outcomes  hit rate  rule ahead          rule not ahead      ahead / not ahead")
    for t_target in (10, 20):
        write_costs(options, t_target)
        ahead = ",".join(["0", *(f"{outcomes}:passes={t_target}" for outcomes in (8, 16, 32))])
        results = compare(options, ["--oversubscribe", "--bind-to", "none"], "--rules", rules, "--draft-ahead", ahead,
                          "--costs", options.costs)
        for temperature, settings in results:
            best = {}
            for name, setting in settings.items():
                outcomes = int(name.split("ahead of ")[1].split(",")[0]) if "ahead of" in name else 0
                rule = name.split(", ")[1]
                time = setting["target_passes"] * t_target + setting["draft_passes"]
                speed = setting["new_tokens"] / time
                if outcomes not in best or speed > best[outcomes][0]:
                    best[outcomes] = (speed, rule, setting.get("ahead", {}).get("hit_rate", 0))
            for outcomes in (8, 16, 32):
                speed, rule, hit_rate = best[outcomes]
                print(f"{t_target:8}  {temperature:11}  {outcomes:8}  {hit_rate:8.3f}  {rule:18}  {best[0][1]:18}  "
                      f"{speed / best[0][0]:17.3f}", flush=True)


def measured(options):
    rule = "constant:3"
    latency = json.loads(ranks_run(options, ["--bind-to", "core"], "bench", "latency", "--target", DEMO / "target", "--draft",
                             DEMO / "draft", "--draft-placement", "dedicated", "--threads", 1, "--json"))
    t_target = latency["target"][3]["median_ms"]
    messages = sum(row["median_ms"] for row in latency["collectives"]
                   if row["name"].startswith(("broadcast", "gather of candidates")))
    print(f"\ntwo ranks of a core each: t_target(4) {t_target:.4f} ms, broadcast and gather {messages:.4f} ms")
    for temperature in (0, 1):
        ratios, rounds, hits = [], [], []
        for pair in range(options.pairs):
            ((_, settings),) = compare(options, ["--bind-to", "core"], "--rules", rule, "--draft-ahead", "0,8",
                                       "--temperatures", temperature, "--costs", options.costs,
                                       *(("--seed", pair) if temperature > 0 else ()))  # greedy text has none
            without = next(s for name, s in settings.items() if "ahead" not in name)
            ahead = next(s for name, s in settings.items() if "ahead" in name)
            ratios.append(without["ms_per_token"] / ahead["ms_per_token"])
            rounds.append(ahead["ms_per_token"] * ahead["new_tokens"] / ahead["target_passes"])
            hits.append(ahead["ahead"]["hit_rate"])
        print(f"temperature {temperature}: hit rate {sum(hits) / len(hits):.3f} with 8 outcomes, 3 drafted; "
              f"{sum(rounds) / len(rounds):.4f} ms a round, {sum(rounds) / len(rounds) / (t_target + messages):.3f} of "
              f"t_target and messages; over not ahead {interval(ratios)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/entrodraft")
    parser.add_argument("--pairs", type=int, default=5, choices=PAIRS)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--work", type=pathlib.Path, help="for JSON; a temporary directory without it")
    parser.add_argument("--only", choices=["simulated", "measured"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        options.work = options.work or pathlib.Path(scratch)
        options.work.mkdir(parents=True, exist_ok=True)
        options.costs = options.work / "costs.json"  # spares measuring, where no rule looks at costs
        write_costs(options, 10)
        if options.only != "measured":
            simulated(options)
        if options.only != "simulated":
            measured(options)


if __name__ == "__main__":
    main()
