"""What batches bring, and whether drafting shrinks as they grow: `expected-gain` against plain decoding.

    python3 bench/batches.py [--binary build/entrodraft] [--batches 1,4,16] [--pairs 5] [--threads 2] [--times 2]

The demo pair, greedy, one rank. For every batch size runs with the draft and without alternate; printed are new
tokens a second (medians), the mean of the pairs' ratios with its 95 % interval, how many tokens were drafted a round of
a sequence, and whether every text is, token for token, that of batch 1 without a draft; then each pair's ratio and
drafted tokens. Needs an idle machine.
"""

import argparse
import pathlib
import statistics
import tempfile

from runs import DEMO, PAIRS, ROOT, generate, interval, texts_of, write_prompts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "build/entrodraft"))
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--pairs", type=int, default=5, choices=PAIRS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--times", type=int, default=2, help="how often the demo's prompts are asked for [2]")
    options = parser.parse_args()
    print("batch  plain tokens/s  drafting tokens/s  drafting / plain       drafted a round  texts      pairs")
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        prompts, output = work / "prompts.jsonl", work / "output.jsonl"
        write_prompts(prompts, options.times)
        generate(options.binary, 0, prompts, output, "--threads", options.threads)
        expected = sorted(texts_of(output))
        output.unlink()
        for batch in map(int, options.batches.split(",")):
            rates, drafted, equal = {False: [], True: []}, [], True
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
            ratios = [with_draft / plain for plain, with_draft in zip(rates[False], rates[True])]
            print(f"{batch:5}  {statistics.median(rates[False]):14.0f}  {statistics.median(rates[True]):17.0f}  "
                  f"{interval(ratios):21}  {statistics.mean(drafted):15.2f}  {'equal' if equal else 'DIFFERENT':9}  "
                  + " ".join(f"{ratio:.2f}/{tokens:.1f}" for ratio, tokens in zip(ratios, drafted)), flush=True)


if __name__ == "__main__":
    main()
