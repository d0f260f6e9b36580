"""What batches bring, and whether drafting shrinks as they grow: `expected-gain` against plain decoding.

    python3 bench/batches.py [--binary build/entrodraft] [--batches 1,4,16] [--pairs 5] [--threads 2] [--times 2] [--costs FILE]

The demo pair, greedy, one rank. For every batch size runs with the draft and without alternate; printed are new
tokens a second (medians), the mean of the pairs' ratios with its 95 % interval, how many tokens were drafted a round of
a sequence, and whether every text is, token for token, that of batch 1 without a draft; then each pair's ratio and
drafted tokens. Beside it what SmartSpec (Liu et al. 2024) would do at the costs of passes and the runs' acceptance: the one
draft length of all sequences with the most goodput, expected tokens over the time of the passes, and its goodput over
that of plain decoding. Needs an idle machine.
"""

import argparse
import json
import pathlib
import statistics
import tempfile

from runs import DEMO, PAIRS, ROOT, generate, interval, run, texts_of, write_prompts
from theory import PassTimes, best_goodput

MAX_ROWS = 128  # of a pass
TIMED_ROWS = "1,2,4,8,16,32,64,128"


def pass_times(costs):
    """Of target and draft."""
    one, row = costs["t_draft_ms"], costs.get("t_draft_row_ms", 0)
    return PassTimes(costs["t_target_ms"]), PassTimes([one, one + row])


def measured_costs(options, work):
    path = work / "costs.json"
    run([options.binary, "bench", "latency", "--target", DEMO / "target", "--draft", DEMO / "draft", "--threads",
         options.threads, "--rows", TIMED_ROWS, "--tree", "2,1", "--output", path])
    return path


def smartspec(alpha, batch, times):
    """Two columns; nothing is known where nothing was verified."""
    if alpha is None:
        return f"{'-':>11}  {'-':>15}"
    k, ratio = best_goodput(alpha, batch, *times, MAX_ROWS)
    return f"{k:11}  {ratio:15.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "build/entrodraft"))
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--pairs", type=int, default=5, choices=PAIRS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--times", type=int, default=2, help="how often the demo's prompts are asked for [2]")
    parser.add_argument("--costs", type=pathlib.Path, help="of passes, for SmartSpec's goodput [measured first]")
    options = parser.parse_args()
    print("batch  plain tokens/s  drafting tokens/s  drafting / plain       drafted a round  SmartSpec k  goodput / plain  "
          "texts      pairs")
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        prompts, output = work / "prompts.jsonl", work / "output.jsonl"
        write_prompts(prompts, options.times)
        costs = options.costs or measured_costs(options, work)
        times = pass_times(json.loads(costs.read_text(encoding="utf-8")))
        generate(options.binary, 0, prompts, output, "--threads", options.threads)
        expected = sorted(texts_of(output))
        output.unlink()
        for batch in map(int, options.batches.split(",")):
            rates, drafted, alphas, equal = {False: [], True: []}, [], [], True
            for pair in range(options.pairs):
                for drafts in (False, True) if pair % 2 == 0 else (True, False):
                    rate, summary = generate(options.binary, 0, prompts, output, "--threads", options.threads,
                                             "--batch-size", batch, *(["--draft", DEMO / "draft"] if drafts else []))
                    output_texts = sorted(texts_of(output))
                    output.unlink()
                    rates[drafts].append(rate)
                    equal = equal and output_texts == expected
                    if drafts:
                        drafted.append(summary["drafted"] / summary["rounds"])
                        alphas += [summary["alpha"]] if summary["alpha"] is not None else []
            ratios = [with_draft / plain for plain, with_draft in zip(rates[False], rates[True])]
            alpha = statistics.mean(alphas) if alphas else None
            print(f"{batch:5}  {statistics.median(rates[False]):14.0f}  {statistics.median(rates[True]):17.0f}  "
                  f"{interval(ratios):21}  {statistics.mean(drafted):15.2f}  {smartspec(alpha, batch, times)}  {'equal' if equal else 'DIFFERENT':9}  "
                  + " ".join(f"{ratio:.2f}/{tokens:.1f}" for ratio, tokens in zip(ratios, drafted)), flush=True)


if __name__ == "__main__":
    main()
