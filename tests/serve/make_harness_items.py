#!/usr/bin/env python3
"""Makes clients/items.jsonl, what lm-eval asks of the demo target, with transformers' answers in float32.

    python3 tests/serve/make_harness_items.py

Each line has a context, four choices with their log-likelihoods, and the greedy text up to a full stop or 12 tokens.
"""

import json
import pathlib
import random

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "model/demo/target"
WORDS = "the door island letter night window river stone garden house morning wind".split()
BEGINNINGS = ["It was a dark", "The ferry left the", "She opened the", "Nobody saw the", "When the rain had ended, the"]


def main():
    chance = random.Random(3)
    model = AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(TARGET / "tokenizer.json"))

    def ids_of(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    @torch.no_grad()
    def log_likelihood(context, choice):
        ids, n = ids_of(context + choice), len(ids_of(context))
        log_probs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
        return round(sum(log_probs[i - 1, ids[i]].item() for i in range(n, len(ids))), 6)

    @torch.no_grad()
    def text_after(context):
        ids = ids_of(context)
        new = []
        for _ in range(12):
            new.append(model(torch.tensor([ids + new])).logits[0, -1].argmax().item())
            text = tokenizer.decode(new)
            if "." in text:
                return text[:text.index(".")]
        return tokenizer.decode(new)

    with (HERE / "clients/items.jsonl").open("w") as file:
        for i in range(100):
            context = f"{chance.choice(BEGINNINGS)} {chance.choice(WORDS)}" + (" and the" if i % 2 else "")
            choices = [f" {word}" for word in chance.sample(WORDS, 4)]
            item = {"context": context, "choices": choices, "answer": i % 4, "text": text_after(context),
                    "log_likelihoods": [log_likelihood(context, choice) for choice in choices]}
            file.write(json.dumps(item) + "\n")


if __name__ == "__main__":
    main()
