"""Writes sampling_golden.json: what transformers' warpers make of small rows of logits.

Temperature, then top-k, then top-p, then min-p, as GenerationMixin chains them, in float32 on CPU.
Run: python make_sampling_golden.py > sampling_golden.json   (needs torch and transformers 5)
"""

import json

import torch
import transformers
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


def warp(logits, temperature, top_k, top_p, min_p):
    scores = torch.tensor([logits], dtype=torch.float32)
    if temperature != 1.0:
        scores = TemperatureLogitsWarper(temperature)(None, scores)
    if top_k > 0:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1.0:
        scores = TopPLogitsWarper(top_p)(None, scores)
    if min_p > 0.0:
        scores = MinPLogitsWarper(min_p)(None, scores)
    return scores[0].double().softmax(-1).tolist()


def rows():
    """Named rows; every logit is a multiple of 1/64 so that it prints shortly and exactly."""
    generator = torch.Generator().manual_seed(7)

    def random(n, spread):
        return [round(v * spread * 64) / 64 for v in torch.randn(n, generator=generator).tolist()]

    yield "one", [0.5]
    yield "two equal", [1.0, 1.0]
    yield "all equal", [2.0] * 23  # no border falls on a whole token, where rounding would decide
    yield "ties at the border", [3.0, 1.0, 2.0, 2.0, 2.0, 0.0, 2.0, -1.0]
    yield "ties at the top", [4.0, 5.0, 5.0, 1.0, 5.0]
    yield "banned", [float("-inf"), 1.0, 0.5, float("-inf"), 2.0, float("-inf")]
    yield "peaked", [20.0] + random(30, 1.0)
    yield "flat", random(50, 0.25)
    yield "wide", random(50, 12.0)
    yield "shifted", [v + 512 for v in random(50, 3.0)]
    yield "coarse", [round(v) for v in random(70, 2.0)]
    yield "long", random(700, 3.0)
    # Neighbouring floats that one quotient covers: top-k must keep both, top-p must order them by id.
    near = 3.0
    step = 2.0**-22
    yield "near ties", [near, near + step, near + 2 * step, near + 3 * step, near + 4 * step, near + 5 * step, 1.0]


OPTIONS = [
    (1.0, 0, 1.0, 0.0),
    (0.5, 0, 1.0, 0.0),
    (1.5, 0, 1.0, 0.0),
    (1.0, 1, 1.0, 0.0),
    (1.0, 3, 1.0, 0.0),
    (0.7, 3, 1.0, 0.0),
    (1.7, 4, 1.0, 0.0),
    (1.0, 1000, 1.0, 0.0),
    (1.0, 0, 0.9, 0.0),
    (1.0, 0, 0.5, 0.0),
    (1.0, 0, 0.0, 0.0),
    (1.0, 0, 0.001, 0.0),
    (1.7, 0, 0.3, 0.0),
    (0.7, 0, 0.95, 0.0),
    (0.6, 20, 0.95, 0.0),
    (1.3, 5, 0.6, 0.0),
    (1.0, 0, 1.0, 0.1),
    (1.0, 0, 1.0, 1.0),
    (0.7, 0, 1.0, 0.003),
    (1.4, 0, 1.0, 0.03),
    (1.0, 6, 1.0, 0.2),
    (0.8, 0, 0.9, 0.07),
    (1.2, 12, 0.8, 0.05),
]


def main():
    cases = []
    for name, logits in rows():
        for temperature, top_k, top_p, min_p in OPTIONS:
            if len(logits) > 100 and top_p == 1.0 and min_p == 0.0 and not 0 < top_k < 100:
                continue  # nothing is filtered: 700 numbers that show little
            p = warp(logits, temperature, top_k, top_p, min_p)
            kept = [[i, float(f"{v:.9g}")] for i, v in enumerate(p) if v > 0]
            options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
            cases.append({"row": name, **options, "kept": kept})
    named = {name: [None if v == float("-inf") else v for v in logits] for name, logits in rows()}
    head = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0], "rows": named}
    print(json.dumps(head)[:-1] + ', "cases": [')
    print(",\n".join(json.dumps(case) for case in cases) + "\n]}")


main()
