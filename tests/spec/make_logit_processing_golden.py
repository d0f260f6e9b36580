"""Writes logit_processing_golden.json: what transformers' processors make of small rows of logits after a prefix.

Chained in the order of GenerationMixin._get_logits_processor, in float32 on CPU. Presence and frequency penalties, which
transformers lacks, are computed as vLLM defines them, after the repetition penalty and before the bans.
Run: python make_logit_processing_golden.py > logit_processing_golden.json   (needs torch and transformers 5)
"""

import json
import random

import torch
import transformers
from transformers.generation.logits_process import (
    LogitsProcessor,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

VOCAB = 24
EOS = [2, 7]


class CountPenalties(LogitsProcessor):
    def __init__(self, n_prompt, presence, frequency):
        self.n_prompt, self.presence, self.frequency = n_prompt, presence, frequency

    def __call__(self, input_ids, scores):
        counts = torch.bincount(input_ids[0, self.n_prompt :], minlength=VOCAB)[None]
        scores = scores - self.frequency * counts
        return scores - self.presence * (counts > 0)


def process(prompt, text, logits, options):
    processors = LogitsProcessorList()
    if options["logit_bias"]:
        processors.append(SequenceBiasLogitsProcessor([[[token], bias] for token, bias in options["logit_bias"]]))
    if options["repetition_penalty"] != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(options["repetition_penalty"]))
    if options["presence_penalty"] or options["frequency_penalty"]:
        processors.append(CountPenalties(len(prompt), options["presence_penalty"], options["frequency_penalty"]))
    if options["no_repeat_ngram_size"]:
        processors.append(NoRepeatNGramLogitsProcessor(options["no_repeat_ngram_size"]))
    not_eos = [token for token in options["banned_tokens"] if token not in EOS]
    if not_eos:
        processors.append(NoBadWordsLogitsProcessor([[token] for token in not_eos], torch.tensor(EOS)))
    if options["min_new_tokens"]:
        processors.append(
            MinNewTokensLengthLogitsProcessor(len(prompt), options["min_new_tokens"], torch.tensor(EOS))
        )
    if options["banned_tokens"]:
        processors.append(SuppressTokensLogitsProcessor(options["banned_tokens"]))
    input_ids = torch.tensor([prompt + text])
    return processors(input_ids, torch.tensor([logits], dtype=torch.float32))[0].tolist()


def options_of(chance):
    """Options of which each is on about half the time; the first cases have one each."""
    names = ["bias", "repetition", "presence", "frequency", "ngram", "min_new", "banned"]
    for only in names + [None] * 33:

        def on(name):
            return name == only or (only is None and chance.random() < 0.5)

        yield {
            "repetition_penalty": chance.choice([1.1, 1.5, 0.7]) if on("repetition") else 1.0,
            "presence_penalty": chance.choice([0.5, -0.25, 2.0]) if on("presence") else 0.0,
            "frequency_penalty": chance.choice([0.25, 1.3, -0.5]) if on("frequency") else 0.0,
            "no_repeat_ngram_size": chance.choice([1, 2, 2, 3, 4]) if on("ngram") else 0,
            "min_new_tokens": chance.choice([1, 6, 12]) if on("min_new") else 0,
            "logit_bias": (
                [[token, chance.randint(-40, 40) / 8] for token in sorted(chance.sample(range(VOCAB), 3))]
                if on("bias")
                else []
            ),
            "banned_tokens": sorted(chance.sample(range(VOCAB), chance.randint(1, 3))) if on("banned") else [],
        }


def main():
    chance = random.Random(11)
    cases = []
    for options in options_of(chance):
        spread = chance.choice([4, 6, 10])  # few distinct tokens, so that n-grams repeat
        ids = chance.sample(range(VOCAB), spread)
        prompt = [chance.choice(ids) for _ in range(chance.randint(1, 14))]
        text = [chance.choice(ids) for _ in range(chance.randint(0, 14))]
        logits = [chance.randint(-256, 256) / 32 for _ in range(VOCAB)]
        found = process(prompt, text, logits, options)
        found = [None if value == float("-inf") else float(f"{value:.9g}") for value in found]
        cases.append({"options": options, "prompt": prompt, "text": text, "logits": logits, "processed": found})
    head = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0], "eos": EOS}
    print(json.dumps(head)[:-1] + ', "cases": [')
    print(",\n".join(json.dumps(case) for case in cases) + "\n]}")


main()
