#!/usr/bin/env python3
"""How fast is entrodraft beside every mode of transformers' assisted generation, with the same text?

    python3 bench/peers/transformers.py [--binary build/entrodraft] [--dtypes float32,bfloat16,float16]
        [--repetitions 5] [--limit 64] [--rule static:2.25] [--modes constant] [--json FILE]
        [--device cuda] [--plain-only] [--num-beams 4]
    python3 bench/peers/transformers.py --golden tests/spec/demo_greedy.json

Both decode the same prompts greedily on the same threads, or the same GPU, in turns (side_by_side.py says how). Time is that of a
whole sequence per new token: generate() here, stats.seconds there. Texts come first. In float32 a text may part
from ours only where transformers' own two best logits lie closer than 1e-4 of the row's largest, and in one text of
64 at most; a worse difference ends the run with 1. In half precision transformers rounds activations as well, so
that texts part: they are counted. The second form only writes transformers' greedy continuations in float32, with
the relative margin of every token. Needs bench/peers/requirements.txt; exits with 77 where a package is missing.
Where scikit-learn is installed, transformers moves the confidence threshold as it goes.
"""

import os
import sys

# In this folder, transformers.py is this file and not the library.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [place for place in sys.path if os.path.abspath(place) != HERE]

import argparse  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import pathlib  # noqa: E402
import time  # noqa: E402

try:
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}; see bench/peers/requirements.txt")
    sys.exit(77)

sys.path.append(HERE)
import side_by_side  # noqa: E402
from side_by_side import DRAFT, LOOKUP, PLAIN, Answer  # noqa: E402

TIE = 1e-4  # of a row's largest logit: below it, float32 rounding may choose the other token
DTYPES = ("float32", "bfloat16", "float16")
ROUNDING = "transformers rounds activations to {0} too, ours are float32"
NEAR_BEAMS = "of beams whose scores are as good as equal rounding chooses"
DRAFT_SETTINGS = ("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold")


def load(directory, dtype, device="cpu"):
    has_encoder = transformers.AutoConfig.from_pretrained(directory).is_encoder_decoder
    kind = transformers.AutoModelForSeq2SeqLM if has_encoder else transformers.AutoModelForCausalLM
    model = kind.from_pretrained(directory, dtype=getattr(torch, dtype)).eval().to(device)
    model.generation_config.eos_token_id = None  # both sides ignore EOS: equal lengths
    return model


def generate(model, prompt, n, **options):
    """(new tokens, seconds)"""
    ids = torch.tensor([prompt], device=model.device)
    began = time.perf_counter()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=n,
                         pad_token_id=0, **options)
    before = 1 if model.config.is_encoder_decoder else len(prompt)
    tokens = out[0, before:].tolist()  # a GPU has done them all when they are here
    return tokens, time.perf_counter() - began


def margins(model, prompt, tokens):
    """Best less second-best logit over the largest magnitude, at each new token, from one pass over the text."""
    read, more = (prompt, {}) if not model.config.is_encoder_decoder else ([model.config.decoder_start_token_id], {
        "input_ids": torch.tensor([prompt], device=model.device)})
    ids = torch.tensor([read + tokens[:-1]], device=model.device)
    logits = (model(**more, decoder_input_ids=ids) if more else model(ids)).logits[0, len(read) - 1:]
    best = logits.topk(2, dim=-1).values
    return ((best[:, 0] - best[:, 1]) / logits.abs().amax(-1)).tolist()


class Transformers:
    ours, stays = False, True  # all modes share two models

    def __init__(self, name, group, target, **options):
        self.name, self.group, self.target, self.options = f"transformers {name}", group, target, options

    def start(self):
        pass

    def stop(self):
        pass

    def ask(self, prompt, new_tokens):
        tokens, seconds = generate(self.target, prompt, new_tokens, **self.options)
        return Answer(tokens, seconds, seconds)


class Assisted(Transformers):
    """generate() with assistant_model. All modes share the draft's generation_config, and some change it as they go:
    each has settings of its own and keeps what became of them."""

    def __init__(self, name, target, draft, *settings):
        super().__init__(f"assisted, {name}", DRAFT, target, assistant_model=draft)
        self.settings = dict(zip(DRAFT_SETTINGS, settings))
        self.config = draft.generation_config

    def ask(self, prompt, new_tokens):
        for key, value in self.settings.items():
            setattr(self.config, key, value)
        answer = super().ask(prompt, new_tokens)
        self.settings = {key: getattr(self.config, key) for key in self.settings}
        return answer


def assisted_modes(target, draft):
    """Every schedule, with the threshold off (0) and on; its own default is 20 tokens at most, threshold 0.4."""
    modes = [Assisted("its defaults (20 tokens, confidence 0.4)", target, draft, 20, "constant", 0.4)]
    for schedule in ("heuristic", "heuristic_transient"):
        modes += [Assisted(f"{schedule} from 5", target, draft, 5, schedule, 0.0),
                  Assisted(f"{schedule} from 5, confidence 0.4", target, draft, 5, schedule, 0.4)]
    modes += [Assisted(f"constant {k}", target, draft, k, "constant", 0.0) for k in (1, 2, 3, 5, 10)]
    modes += [Assisted(f"constant 5, confidence {c}", target, draft, 5, "constant", c) for c in (0.2, 0.4, 0.6, 0.8)]
    return modes


def lookup_modes(target):
    return [Transformers(f"prompt lookup {tokens}, n-grams to {size}", LOOKUP, target,
                         prompt_lookup_num_tokens=tokens, max_matching_ngram_size=size)
            for tokens in (3, 5, 10) for size in (2, 4)]


def write_golden(options, prompts):
    target = load(options.target, "float32")
    sequences = []
    for id, prompt in prompts.items():
        tokens, _ = generate(target, prompt, options.new_tokens)
        relative = margins(target, prompt, tokens)
        rounded = [float(f"{margin:.3g}") for margin in relative]
        sequences.append({"id": id, "token_ids": tokens, "relative_margins": rounded})
    lines = ",\n".join("  " + json.dumps(sequence) for sequence in sequences)
    header = {"made_by": "bench/peers/transformers.py --golden", "transformers": transformers.__version__,
              "torch": torch.__version__, "dtype": "float32", "ignore_eos": True,
              "max_new_tokens": options.new_tokens}
    options.golden.write_text(json.dumps(header)[:-1] + f', "sequences": [\n{lines}\n]}}\n')
    print(f"{options.golden}: {len(sequences)} sequences of {options.new_tokens} tokens,",
          sum(min(s["relative_margins"]) < TIE for s in sequences), "with a tie")


def refuse_with_golden(parser, options):
    for name in ("draft", "binary", "dtypes", "block", "repetitions", "keep", "rule", "modes", "json", "device",
                 "plain_only", "num_beams"):
        if getattr(options, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} has no effect with --golden")


def compare(parser, options, prompts, dtype):
    """One dtype's table."""
    target = load(options.target, dtype, options.device)
    beams = options.num_beams > 1
    modes = [Transformers("plain", PLAIN, target, **({"num_beams": options.num_beams} if beams else {}))]
    if not options.plain_only and not beams:  # with beams transformers leaves its assistant out
        modes += [*assisted_modes(target, load(options.draft, dtype, options.device)), *lookup_modes(target)]
    contenders = side_by_side.chosen(parser, options, modes) + side_by_side.our_contenders(options, dtype)
    learns = importlib.util.find_spec("sklearn") is not None
    setting = side_by_side.environment(
        options, dtype, prompts, torch=torch.__version__, transformers=transformers.__version__,
        scikit_learn="installed" if learns else "not installed: constant confidence thresholds")
    print("\n" + ", ".join(f"{key} {value}" for key, value in setting.items()))
    side_by_side.warn_of_load("at the start")
    equal = {}

    def is_tie(name, id, tokens, at):
        margin = margins(target, prompts[id], tokens)[at]
        print(f"{name}: prompt {id} parts from ours at new token {at}, relative margin {margin:.1e}")
        return margin < TIE

    def check(results):
        reason = ROUNDING.format(dtype) if dtype != "float32" else NEAR_BEAMS if beams else None
        equal.update(side_by_side.check_texts(contenders, results, is_tie, lambda name: reason))

    return {"environment": setting,
            **side_by_side.measure(contenders, prompts, options, check, equal, f"{dtype}, beside transformers")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    side_by_side.add_options(parser, DTYPES, ["float32"])
    parser.add_argument("--golden", type=pathlib.Path,
                        help="write transformers' greedy continuations here, and time nothing")
    parser.add_argument("--num-beams", type=int, default=1, help="beams of both [1]")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of both [cpu]")
    options = parser.parse_args()
    if options.golden:
        refuse_with_golden(parser, options)
        side_by_side.check_counts(parser, options, "limit", "new_tokens", "threads")
        side_by_side.check_models(parser, options, "target")
    else:
        side_by_side.check_options(parser, options, DTYPES)
    prompts = side_by_side.read_prompts(parser, options)
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if options.golden:
        return write_golden(options, prompts)
    side_by_side.save(options.json, [compare(parser, options, prompts, dtype) for dtype in options.dtypes])


if __name__ == "__main__":
    main()
