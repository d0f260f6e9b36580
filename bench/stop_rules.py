"""Is `expected-gain`, untuned, as fast as the best tuned rule, and never slower than plain decoding?

    python3 bench/stop_rules.py [--binary build/entrodraft] [--threads 2] [--dtype float32] [--pairs 5] [--work DIR]

1. One costs file (bench latency), then every rule over a grid of settings (bench compare --tune --costs) at temperatures
   0 and 1: counts times costs, the best setting of each rule.
2. Wall time of expected-gain against the best of the others and against `heuristic`, in as many interleaved runs as
   --pairs says: mean of the ratios and its 95 % interval (Student's t).
3. The same against plain decoding with a useless draft (random weights) and with the target as its own draft.
Everything is printed as it comes; the JSON of each run stays in --work.
"""

import argparse
import json
import pathlib
import random
import shutil
import struct
import tempfile

from runs import DEMO, PAIRS, ROOT, interval, run


def bench(options, *arguments):
    """What a bench of ours prints."""
    dtype = ["--dtype", options.dtype] if options.dtype else []
    return run([options.binary, "bench", *arguments, "--threads", options.threads, *dtype]).stdout


def compare(options, name, draft, *arguments):
    """Settings of each temperature by name, without the acceptance that ends it where texts are drawn."""
    out = options.work / f"{name}.json"
    bench(options, "compare", "--target", DEMO / "target", "--draft", draft, "--input", DEMO / "prompts.jsonl",
        "--prompts", options.prompts, "--quiet", "--output", out, *arguments)
    results = json.loads(out.read_text())["temperatures"]
    for result in results:
        for setting in result["settings"]:
            setting["setting"] = setting["setting"].removesuffix(", gumbel")
    return [(result["temperature"], {setting["setting"]: setting for setting in result["settings"]}) for result in results]


def random_draft(work):
    """The demo's draft with random weights of the usual size."""
    directory = work / "random-draft"
    shutil.copytree(DEMO / "draft", directory, dirs_exist_ok=True)
    file = directory / "model.safetensors"
    data = file.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    count = (len(data) - begin) // 2
    deviate = random.Random(1).gauss
    file.write_bytes(data[:begin] + struct.pack(f"<{count}e", *(deviate(0, 0.05) for _ in range(count))))
    return directory


def tuned(options, costs):
    best = {}
    for temperature, settings in compare(options, "tuned", DEMO / "draft", "--tune", "--costs", costs):
        rules = {}
        for name, setting in settings.items():
            if name.startswith("model") and not setting["kind"]:
                kind = name.split(", ")[1].split(":")[0]
                if kind not in rules or setting["predicted_speedup"] > rules[kind]["predicted_speedup"]:
                    rules[kind] = setting
        print(f"\ntemperature {temperature}, counts times costs, the best setting of each rule")
        print(f"{'setting':48} speed-up  share of oracle  tokens/pass  measured")
        for setting in sorted(rules.values(), key=lambda s: -s["predicted_speedup"]):
            print(f"{setting['setting']:48} {setting['predicted_speedup']:8.3f}  "
                  f"{setting['share_of_oracle_speedup']:15.3f}  "
                  f"{setting['tokens_per_target_pass']:11.2f}  {setting['speedup']:8.3f}")
        others = [s for kind, s in rules.items() if kind != "expected-gain"]
        best[temperature] = max(others, key=lambda s: s["predicted_speedup"])["setting"]
        gain, heuristic = rules["expected-gain"]["predicted_speedup"], rules["heuristic"]["predicted_speedup"]
        print(f"expected-gain over the best other: {gain / max(s['predicted_speedup'] for s in others):.3f}, "
              f"over heuristic: {gain / heuristic:.3f}")
    return best


def seed_of(temperature, seed):
    return ("--seed", seed) if temperature > 0 else ()  # which greedy text has not


def wall_time(options, best):
    print("\nwall time, expected-gain (measuring its own costs) over another: mean and 95 % interval")
    for temperature, name in best.items():
        ratios = {"best": [], "heuristic": [], "plain": []}
        rules = f"expected-gain,{name.removeprefix('model, ')},heuristic"
        for pair in range(options.pairs):
            ((_, settings),) = compare(options, f"pair-{temperature}-{pair}", DEMO / "draft", "--rules", rules,
                                       "--temperatures", temperature, *seed_of(temperature, pair))
            own = settings["model, expected-gain"]["speedup"]
            ratios["plain"].append(own)
            for key, other in (("best", name), ("heuristic", "model, heuristic:tokens=5")):
                ratios[key].append(own / settings[other]["speedup"])
        print(f"temperature {temperature}: {name}: {interval(ratios['best'])}; heuristic: "
              f"{interval(ratios['heuristic'])}; plain decoding: {interval(ratios['plain'])}")


def extremes(options):
    for what, draft in (("a useless draft", random_draft(options.work)), ("the target as its own draft", DEMO / "target")):
        for temperature in (0, 1):
            ratios = []
            for pair in range(options.pairs):
                ((_, settings),) = compare(options, f"extreme-{draft.name}-{temperature}-{pair}", draft, "--rules",
                                           "expected-gain", "--temperatures", temperature, *seed_of(temperature, pair),
                                           "--max-draft-tokens", 5)
                ratios.append(settings["model, expected-gain"]["speedup"])
            print(f"{what}, temperature {temperature}: {interval(ratios)} times plain decoding")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/entrodraft")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="")
    parser.add_argument("--pairs", type=int, default=5, choices=PAIRS)
    parser.add_argument("--work", type=pathlib.Path, help="for costs and JSON; a temporary directory without it")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--costs", type=pathlib.Path, help="measured first without it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        options.work = options.work or pathlib.Path(scratch)
        options.work.mkdir(parents=True, exist_ok=True)
        costs = options.costs or options.work / "costs.json"
        if not options.costs:
            print(bench(options, "latency", "--target", DEMO / "target", "--draft", DEMO / "draft", "--output", costs))
        best = tuned(options, costs)
        wall_time(options, best)
        extremes(options)


if __name__ == "__main__":
    main()
