"""Do two replicas on two cores serve a file of prompts 1.8 times as fast as one on one core?

    python3 bench/replicas.py [--binary build/entrodraft] [--replicas 2] [--pairs 5] [--max-new-tokens 128] [--times 4]

The demo pair, greedy, one thread a replica, each bound to a core of its own (mpirun --bind-to core). Runs of one and of
several replicas alternate; of each pair the ratio of tokens a second, by the time between the first round and the last
result (the summary's own), is printed, then their median. The texts of both must be equal. Needs an idle machine and
the standard library only.
"""

import argparse
import pathlib
import statistics
import tempfile

from runs import DEMO, ROOT, generate, texts_of, write_prompts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "build/entrodraft"))
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--times", type=int, default=4, help="how often the demo's prompts are asked for [4]")
    options = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        prompts = work / "prompts.jsonl"
        write_prompts(prompts, options.times)
        for pair in range(options.pairs):
            rates, busy = {}, ""
            for replicas in (1, options.replicas) if pair % 2 == 0 else (options.replicas, 1):
                rates[replicas], summary = generate(
                    options.binary, replicas, prompts, work / f"{replicas}-{pair}.jsonl", "--draft", DEMO / "draft",
                    "--threads", 1, "--max-new-tokens", options.max_new_tokens, "--replicas", replicas)
                if replicas > 1:
                    busy = ", ".join(f"{100 * seconds / summary['seconds']:.0f} %"
                                     for seconds in summary["replicas_busy_seconds"])
            if texts_of(work / f"1-{pair}.jsonl") != texts_of(work / f"{options.replicas}-{pair}.jsonl"):
                raise SystemExit("the texts of one replica and of several differ")
            ratios.append(rates[options.replicas] / rates[1])
            print(f"pair {pair}: {rates[1]:.1f} and {rates[options.replicas]:.1f} new tokens a second, "
                  f"{ratios[-1]:.3f} times; busy {busy}", flush=True)
    print(f"median {statistics.median(ratios):.3f} times with {options.replicas} replicas, least {min(ratios):.3f}")


if __name__ == "__main__":
    main()
