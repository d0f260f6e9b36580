"""Recordings made up from random numbers, with the shape of real ones: for tests, and to look at figures.

    python3 tests/bench/synthetic.py FILE [--texts 64] [--drafts 1] [--seed 0] [--agreement 0]
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import recording  # noqa: E402

WORDS = [" the", " door", " was", " open", ",", " and", " I", " am", " not", " a", " very", " good", " man", ".",
         "\n", " light", "ly", " $5", " ünder", " 中"]
CAP = 15


def header(n_drafts=1, scale=1.0):
    return {"target": {"model": f"made-up-{scale:g}", "dtype": "float32", "context": 1024},
            "drafts": [{"model": f"small-{draft}", "dtype": "float32", "context": 1024} for draft in range(n_drafts)],
            "acceptance": "greedy",
            "sampling": {"temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 0}, "max_draft_tokens": CAP,
            "vocab_size": 1024, "max_positions": 1024, "eos_token_ids": [0], "input": "made-up.jsonl",
            "environment": {"cpu": "made up", "ranks": 1}, "collectives": [],
            "costs": [{"schema_version": 1, "t_draft_ms": 0.05, "t_first_draft_ms": 0.08, "t_round_ms": 0.01,
                       "t_target_ms": [scale * (0.5 + 0.03 * rows) for rows in range(1, CAP + 2)]}
                      for _ in range(n_drafts)]}


def text(random, identity=0, places=96, n_drafts=1, agreement=0.0):
    """P(match) falls with the square root of the entropy; `agreement` moves it for all places."""
    token = random.integers(1, 1000, places)
    target_entropy = random.gamma(1.5, 1.3, places)
    columns = {"prompt_token": random.integers(1, 1000, 5), "token": token,
               "target_entropy": target_entropy.astype(np.float32),
               "target_log_probability": -random.gamma(1.0, 0.8, places).astype(np.float32),
               "target_margin": random.gamma(2.0, 1.0, places).astype(np.float32)}
    for draft in range(n_drafts):
        columns.update(draft_columns(random, f"draft.{draft}.", token, target_entropy, agreement - 0.5 * draft))
    fields = {"id": identity, "prompt_tokens": 5, "new_tokens": places, "finish_reason": "length",
              "max_new_tokens": places, "ignore_eos": False, "seed": 0, "temperature": 0,
              "pieces": [WORDS[number % len(WORDS)] for number in token]}
    return recording.Text(fields, columns)


def draft_columns(random, prefix, token, target_entropy, agreement):
    places = len(token)
    entropy = np.abs(target_entropy * random.uniform(0.7, 1.3, places) + random.normal(0.3, 0.3, places))
    matched = random.random(places) < 1 / (1 + np.exp(-(2.5 + agreement - 1.4 * np.sqrt(entropy))))
    missed = int(np.count_nonzero(~matched))
    lengths = random.integers(0, CAP, missed)
    rank = np.where(matched, 0, random.integers(1, 9, places))

    def positive(count, size=1.0):
        return random.gamma(1.5, size, count).astype(np.float32)

    values = {"token": np.where(matched, token, token % 999 + 1), "entropy": entropy.astype(np.float32),
              "probability": np.exp(-0.5 * entropy).astype(np.float32), "log_probability": -positive(places),
              "cross_entropy": (target_entropy + positive(places, 0.4)).astype(np.float32),
              "overlap": matched.astype(np.float32), "margin": positive(places), "rank": rank,
              "top_token": random.integers(1, 1000, recording.TOP * places),
              "top_log_probability": -positive(recording.TOP * places), "astray_length": lengths,
              "astray_token": random.integers(1, 1000, lengths.sum()), "astray_entropy": positive(lengths.sum(), 2.0),
              "astray_probability": random.random(lengths.sum()).astype(np.float32)}
    return {prefix + name: column for name, column in values.items()}


def texts(n_texts=64, n_drafts=1, seed=0, agreement=0.0, places=96):
    random = np.random.default_rng(seed)
    return [text(random, identity, places, n_drafts, agreement) for identity in range(n_texts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--drafts", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--agreement", type=float, default=0.0, help="moves the share of matches")
    parser.add_argument("--scale", type=float, default=1.0, help="of the target's costs")
    options = parser.parse_args()
    recording.write_recording(options.file, header(options.drafts, options.scale),
                              texts(options.texts, options.drafts, options.seed, options.agreement))


if __name__ == "__main__":
    main()
