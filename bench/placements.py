"""Where the draft is: on the coordinator beside its shard, on a rank of its own, or sharded across all ranks.

    python3 bench/placements.py [--binary build/entrodraft] [--ranks 2] [--pairs 5] [--stop-rule expected-gain]

The demo pair, greedy, one thread a rank, each bound to a core of its own. Runs of every placement and of decoding
without a draft take turns; printed are new tokens a second (medians) and the mean ratio to `colocated` with its 95 %
interval. Texts must be equal where the target is sharded across as many ranks. Needs an idle machine.
"""

import argparse
import pathlib
import statistics
import tempfile

from runs import DEMO, PAIRS, ROOT, generate, interval, texts_of, write_prompts

PLACEMENTS = ["colocated", "dedicated", "sharded"]
PLAIN = "no draft"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "build/entrodraft"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5, choices=PAIRS)
    parser.add_argument("--stop-rule", default="expected-gain")
    options = parser.parse_args()
    rates, texts = {name: [] for name in [*PLACEMENTS, PLAIN]}, {}
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        prompts, output = work / "prompts.jsonl", work / "output.jsonl"
        write_prompts(prompts, 1)
        names = list(rates)
        for turn in range(options.pairs):
            for name in names if turn % 2 == 0 else reversed(names):
                drafting = [] if name == PLAIN else ["--draft", DEMO / "draft", "--draft-placement", name,
                                                     "--stop-rule", options.stop_rule]
                rate, _ = generate(options.binary, options.ranks, prompts, output, "--threads", 1, *drafting)
                rates[name].append(rate)
                texts[name] = texts_of(output)
                output.unlink()
    for name in ("sharded", PLAIN):
        if texts[name] != texts["colocated"]:
            raise SystemExit(f"the texts of {name} and of colocated differ")
    print(f"{options.ranks} ranks, {options.stop_rule}\nplacement  tokens/s  over colocated")
    for name in names:
        ratios = [own / other for own, other in zip(rates[name], rates["colocated"])]
        print(f"{name:9}  {statistics.median(rates[name]):8.0f}  {interval(ratios)}")


if __name__ == "__main__":
    main()
