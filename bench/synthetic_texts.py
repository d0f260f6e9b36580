"""Recordings of no model (docs/formats.md): texts along which a draft of a given mean acceptance is right or wrong by
chance, so that `entrodraft simulate` can replay stop rules where there are no checkpoints.

Not a claim about any model. Entropies x are independent, Weibull of shape 1.3 and scale 3 nats (mean 2.8); a drafted token
matches with probability logistic(shift - 5.35 sqrt(x)): 90 % at 2 nats and 10 % at 5 where two thirds match in all, which is
about what Kluser 2024 saw. Needs the standard library only.
"""

import array
import json
import math
import random
import struct
import sys
import zlib

SHAPE, SCALE, SLOPE = 1.3, 3.0, 5.35
TEXT, WRONG = 1, 2  # token ids: the target's, and every mismatch
QUANTILES = 2_000  # that stand for the whole distribution of entropies
POOL = 65_536  # entropies that drafts behind a mismatch are read from
MOST_POSITIONS = 1 << 30  # that a recording may speak of
TOP = 8  # candidates that a recording keeps of each position
SHIFTS = (-50.0, 100.0)  # all acceptances from 0 to 1 lie between


def entropy_at(u):
    """Nats, below which a share u in [0, 1) of all entropies lies."""
    return SCALE * (-math.log1p(-u)) ** (1 / SHAPE)


def acceptance_of(shift):
    """The mean over all entropies of the probability to match; rises with the shift."""
    z = (shift - SLOPE * math.sqrt(entropy_at((i + 0.5) / QUANTILES)) for i in range(QUANTILES))
    return sum(1 / (1 + math.exp(-x)) for x in z) / QUANTILES


def bisected(rises, wanted, low, high, steps):
    """Where a rising function takes the wanted value."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < wanted else (low, middle)
    return (low + high) / 2


def shift_of(alpha):
    if alpha in (0, 1):
        return math.copysign(math.inf, alpha - 0.5)
    return bisected(acceptance_of, alpha, *SHIFTS, 45)


class Texts:
    """What is drawn by chance, once: `n_texts` texts of `new_tokens` tokens, drafts of at most `cap`. A text matches more
    of its draft's tokens as the shift rises, and nothing else of it changes."""

    def __init__(self, n_texts, new_tokens, cap, seed):
        chance = random.Random(seed)
        self.n_texts, self.new_tokens, self.cap = n_texts, new_tokens, cap
        self.entropies = [entropy_at(chance.random()) for _ in range(n_texts * new_tokens)]
        # A position matches from this shift on.
        self.thresholds = [SLOPE * math.sqrt(x) + logit(chance.random()) for x in self.entropies]
        pool = array.array("f", (entropy_at(chance.random()) for _ in range(POOL + cap)))
        self.pool, self.pool_probabilities = pool, array.array("f", (math.exp(-x) for x in pool))
        self.begins = [chance.randrange(POOL) for _ in self.entropies]

    def write(self, path, shift, costs):
        """The recording at this shift; `costs` as of a costs file."""
        with open(path, "wb") as file:
            file.write(packed(head(self.cap, costs), {}))
            for text in range(self.n_texts):
                file.write(packed(text_fields(text, self.new_tokens), self.columns(text, shift)))

    def columns(self, text, shift):
        """Of one text, [new_tokens] each but for the drafts behind mismatches."""
        n, first = self.new_tokens, text * self.new_tokens
        entropies = array.array("f", self.entropies[first:first + n])
        mismatches = [i for i in range(n) if not self.thresholds[first + i] < shift]
        token, rank = ints(TEXT, n), ints(0, n)
        lengths, after, probabilities = array.array("i"), array.array("f"), array.array("f")
        for i in mismatches:
            token[i], rank[i] = WRONG, 1
            length, begin = min(self.cap - 1, n - 1 - i), self.begins[first + i]
            lengths.append(length)
            after += self.pool[begin:begin + length]
            probabilities += self.pool_probabilities[begin:begin + length]
        zeros = floats(n)
        draft = {"token": token, "entropy": entropies, "probability": array.array("f", map(math.exp, negated(entropies))),
                 "log_probability": zeros, "cross_entropy": zeros, "overlap": zeros, "margin": zeros, "rank": rank,
                 "top_token": ints(-1, TOP * n), "top_log_probability": floats(TOP * n), "astray_length": lengths,
                 "astray_token": ints(WRONG, len(after)), "astray_entropy": after, "astray_probability": probabilities}
        target = {"prompt_token": ints(TEXT, 1), "token": ints(TEXT, n), "target_entropy": zeros,
                  "target_log_probability": zeros, "target_margin": zeros}
        return {**target, **{f"draft.0.{name}": column for name, column in draft.items()}}


def logit(u):
    return math.log(u / (1 - u)) if u > 0 else -math.inf


def negated(values):
    return (-x for x in values)


def ints(value, count):
    return array.array("i", [value]) * count


def floats(count):
    return array.array("f", [0.0]) * count


def head(cap, costs):
    model = {"model": "synthetic", "dtype": "none", "context": MOST_POSITIONS}
    return {"kind": "recording", "schema_version": 1, "target": model, "drafts": [model], "acceptance": "greedy",
            "sampling": {"temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 0}, "max_draft_tokens": cap,
            "vocab_size": WRONG + 1, "max_positions": MOST_POSITIONS, "eos_token_ids": [], "requests": {},
            "input": "synthetic", "environment": {}, "collectives": [], "costs": [costs]}


def text_fields(text, new_tokens):
    return {"kind": "text", "id": text, "prompt_tokens": 1, "new_tokens": new_tokens, "finish_reason": "length",
            "max_new_tokens": new_tokens, "ignore_eos": False, "seed": 0, "temperature": 0, "pieces": [""] * new_tokens}


def packed(fields, columns):
    """A block: length of the JSON, the JSON, the columns byte plane by byte plane, little-endian; compressed and framed."""
    kinds = {"i": "i32", "f": "f32"}
    named = [{"name": name, "type": kinds[values.typecode], "count": len(values)} for name, values in columns.items()]
    text = json.dumps({**fields, **({"columns": named} if columns else {})}).encode()
    raw = [struct.pack("<I", len(text)), text]
    for values in columns.values():
        if sys.byteorder == "big":
            values = values[:]
            values.byteswap()
        data = values.tobytes()
        raw += [data[plane::4] for plane in range(4)]
    block = zlib.compress(b"".join(raw), 0)
    return struct.pack("<4sII", b"EDR1", len(block), zlib.crc32(block)) + block
