"""Writes beams_golden.json: what transformers' beam search finds with the targets of all families and encoder-decoders.
Read by beams_mpi.cpp.

    python tests/spec/make_beams_golden.py [--only NAME ...]       (torch, transformers)

Of each model: 12 prompts, cases of 2, 4 and 8 beams, length penalties 0.6, 1 and 2, early stopping true, false and
never. A prompt counts where float32 and float64 find the same texts in all cases, and scores no closer than NEAR lie
between each two of the beams that were kept and the first that was not: so float32 in another order finds them too.
"""

import argparse
import json
import pathlib

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent / "model"
NEW_TOKENS = 12
PROMPTS = 12
POOL = 16
LENGTHS = (5, 19)
BEAMS, PENALTIES, EARLY = (2, 4, 8), (0.6, 1.0, 2.0), (True, False, "never")
KEPT = 3  # texts of a case
CASES = [{"num_beams": beams, "length_penalty": penalty, "early_stopping": early}
         for beams in BEAMS for penalty in PENALTIES for early in EARLY]
# Of some models, with 4 beams: by the names of our input lines.
PROCESSED = [{"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2}, {"min_new_tokens": 9},
             {"logit_bias": [[5, 2.0], [17, -3.0]]},
             {"repetition_penalty": 0.8, "no_repeat_ngram_size": 3, "min_new_tokens": 4}]
PROCESSED_OF = ("gpt2", "llama", "t5")
# Of some models: the second token of prompts that have one is forced_bos_token_id.
FORCED = [({"num_beams": 4, "length_penalty": penalty, "early_stopping": early}, {"forced_bos": True})
          for penalty, early in ((2.0, False), (2.0, "never"), (-1.0, False))]
FORCED_OF = ("mbart",)


def load(directory, encoder, dtype):
    fields = json.loads((directory / "config.json").read_text())
    attention = "sdpa" if fields.get("alibi") else "eager"  # its eager path adds ALiBi twice
    kind = AutoModelForSeq2SeqLM if encoder else AutoModelForCausalLM
    experts = {} if encoder else {"experts_implementation": "eager"}  # the other has no float64
    model = kind.from_pretrained(directory, dtype=dtype, attn_implementation=attention, **experts).eval()
    model.generation_config = transformers.GenerationConfig()
    return model


@torch.no_grad()
def search(model, encoder, prompts, settings, eos, suppressed, case):
    """[prompt][text]: tokens and score, and of each text whether it is complete."""
    arguments = {name: case[name] for name in ("repetition_penalty", "no_repeat_ngram_size", "min_new_tokens")
                 if name in case}
    if "logit_bias" in case:
        arguments["sequence_bias"] = [[[token], bias] for token, bias in case["logit_bias"]]
    if getattr(model.config, "num_decoder_layers", None) != getattr(model.config, "num_layers", None):
        arguments["use_cache"] = False  # its cache has as many layers as the encoder
    if suppressed:
        arguments["suppress_tokens"] = suppressed
    ids = torch.tensor([prompt["tokens"] for prompt in prompts])
    start, new_tokens = ids.shape[1], NEW_TOKENS
    if case.get("forced_bos") and start > 1:
        arguments["forced_bos_token_id"] = prompts[0]["tokens"][1]
        ids, new_tokens = ids[:, :1], NEW_TOKENS + 1
    if encoder:
        sources = torch.tensor([prompt["source"] for prompt in prompts])
        arguments |= {"decoder_input_ids": ids, "attention_mask": torch.ones_like(sources),
                      "decoder_start_token_id": prompts[0]["tokens"][0]}
    else:
        sources = ids
        arguments["attention_mask"] = torch.ones_like(ids)
    made = model.generate(sources, do_sample=False, max_new_tokens=new_tokens, eos_token_id=eos, pad_token_id=eos[0],
                          num_return_sequences=min(KEPT, settings["num_beams"]), return_dict_in_generate=True,
                          output_scores=True, **settings, **arguments)
    n = min(KEPT, settings["num_beams"])
    found = []
    for row, score in zip(made.sequences.tolist(), made.sequences_scores.tolist()):
        tokens = row[start:]
        ends = [i for i, token in enumerate(tokens) if token in eos]
        found.append((tokens[:ends[0] + 1] if ends else tokens[:NEW_TOKENS], score))
    return [found[i:i + n] for i in range(0, len(found), n)]


def late_tokens(texts, n):
    """Tokens that end texts neither at once nor never."""
    first = {}
    for text in texts:
        for token in set(text):
            first.setdefault(token, []).append(text.index(token))
    wanted = sorted(first, key=lambda token: (-len(first[token]) if min(first[token]) > 0 else 0, token))
    return wanted[:n]


def expectations(directory, name, encoder):
    pair = json.loads((directory / "expected.json").read_text())
    model32, model64 = (load(directory / "target", encoder, dtype) for dtype in (torch.float32, torch.float64))
    known, width = pair["tokenizer_size"], model32.get_output_embeddings().weight.shape[0]
    generation = directory / "target" / "generation_config.json"
    banned = json.loads(generation.read_text()).get("bad_words_ids") or [] if generation.exists() else []
    suppressed = [*range(known, width), *(word[0] for word in banned)]
    texts = pair["target"]["texts"]

    def prompt_of(i, length):
        text = texts[i % len(texts)]
        if encoder:
            source = text["source"]
            at = i // len(texts) % max(1, len(source) - length)
            return {"source": source[at:at + length], "tokens": text["tokens"][:1 + i % 2]}
        at = (i // len(texts)) * 2 % (len(text["tokens"]) - length)
        return {"tokens": text["tokens"][at:at + length]}

    groups = []
    for g, length in enumerate(LENGTHS):
        group = [prompt_of(i, length) for i in range(POOL // len(LENGTHS))]
        by_shape = {}
        for prompt in group:
            shape = (tuple(prompt["tokens"]), len(prompt["source"])) if encoder else len(prompt["tokens"])
            by_shape.setdefault(shape, []).append(prompt)
        groups += by_shape.values()
    plain = {"num_beams": 4, "length_penalty": 1.0, "early_stopping": False}
    free = [text for group in groups for found in search(model32, encoder, group, plain, [width - 1], suppressed, {})
            for text, _ in found]
    eos = late_tokens(free, 1 + len(name) % 2)
    cases = [(settings, {}) for settings in CASES]
    if name in PROCESSED_OF:
        cases += [(plain, case) for case in PROCESSED]
    if name in FORCED_OF:
        cases += FORCED
    prompts, table, numbers, results = [], [], {}, [[] for _ in cases]
    for group in groups:
        agreed = [True] * len(group)
        found_in = []
        for settings, case in cases:
            found_in.append(search(model32, encoder, group, settings, eos, suppressed, case))
            if settings["early_stopping"] != "never" or settings["length_penalty"] != 1:
                continue  # these take no step that others do not take
            exact = search(model64, encoder, group, settings, eos, suppressed, case)
            for i, (a, b) in enumerate(zip(found_in[-1], exact)):
                agreed[i] = agreed[i] and [text for text, _ in a] == [text for text, _ in b]
        for i, prompt in enumerate(group):
            if not agreed[i] or prompt in prompts or len(prompts) == PROMPTS:
                continue
            prompts.append(prompt)
            for result, found in zip(results, found_in):
                result.append([])
                for tokens, score in found[i]:
                    number = numbers.setdefault(tuple(tokens), len(numbers))
                    if number == len(table):
                        table.append(tokens)
                    result[-1] += [number, round(score, 5)]
    assert len(prompts) == PROMPTS, (name, len(prompts))
    ended = sum(text[-1] in eos for text in table)
    print(f"{name}: eos {eos}, {len(table)} texts, {ended} of them ended", flush=True)
    assert 0 < ended < len(table), name
    return {"directory": f"{directory.parent.name}/{name}", "eos": eos, "prompts": prompts, "texts": table,
            "cases": [{**settings, **case, "found": found} for (settings, case), found in zip(cases, results)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*")
    only = parser.parse_args().only
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    file = HERE / "beams_golden.json"
    models = {}
    if only and file.exists():
        models = {model["directory"]: model for model in json.loads(file.read_text())["models"]}
    for folder, encoder in (("families", False), ("encoder_decoders", True)):
        for directory in sorted((MODEL / folder).iterdir()):
            if only and directory.name not in only:
                continue
            made = expectations(directory, directory.name, encoder)
            models[made["directory"]] = made
            lines = ",\n".join(json.dumps(model, separators=(",", ":")) for _, model in sorted(models.items()))
            head = json.dumps({"transformers": transformers.__version__, "max_new_tokens": NEW_TOKENS})[:-1]
            file.write_text(head + ', "models": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
