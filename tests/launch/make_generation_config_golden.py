"""Writes generation_config_golden.json: what transformers' generate() says of models whose generation_config.json asks
for one thing or another. transformers reads the file itself. Read by generation_config_test.cpp.

    python tests/launch/make_generation_config_golden.py        (torch, transformers)

A prompt is left out where the two best scores of a step are nearly equal, since float32 sums in another order may part
there.
"""

import json
import pathlib
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
NEW_TOKENS = 24
NEAR = 3e-4  # of the largest score

PROMPTS = ["The ferry left the harbour at", "Once upon a time there was", "She said that the ferry, the ferry,"]
ENCODER_DECODERS = {name: f"tests/model/encoder_decoders/{name}/target" for name in ("bart", "t5", "marian")}


def decoder_only_cases(plain):
    """`plain`: the first prompt's text without any field."""
    a, b, c, d = plain[:4]
    return [
        {"repetition_penalty": 1.1},
        {"encoder_repetition_penalty": 1.4},
        {"no_repeat_ngram_size": 2},
        {"encoder_no_repeat_ngram_size": 1},
        {"encoder_no_repeat_ngram_size": 2},
        {"suppress_tokens": [a, c, -1]},
        {"begin_suppress_tokens": [a]},
        {"bad_words_ids": [[c], [0]]},
        {"bad_words_ids": [[a, b], [b, c, d]]},
        {"sequence_bias": [[[a], -1.5], [[a, b], -9.0], [[b, c, d], -9.0], [[d], 0.75], [[c, d], 2.0]]},
        {"eos_token_id": [d, 0], "min_new_tokens": 9},
        {"eos_token_id": [d, 0], "min_length": 14},
        {"eos_token_id": d, "exponential_decay_length_penalty": [2, 1.6]},
        {"exponential_decay_length_penalty": [-3, 0.9]},
        {"forced_eos_token_id": 0},
        {"forced_eos_token_id": [5, 0], "suppress_tokens": [5]},
        {"forced_bos_token_id": b, "begin_suppress_tokens": [c]},
        {"repetition_penalty": 1.2, "encoder_repetition_penalty": 1.1, "no_repeat_ngram_size": 3,
         "sequence_bias": [[[a, b], -3.0]], "bad_words_ids": [[d]], "min_new_tokens": 5,
         "exponential_decay_length_penalty": [6, 1.2], "suppress_tokens": [c], "begin_suppress_tokens": [a],
         "forced_eos_token_id": 0},
    ]


def all_cases():
    """With --generation-config all, where no argument says how long texts are."""
    return [{"max_new_tokens": 7}, {"max_length": 21}, {"max_length": 21, "forced_eos_token_id": 0},
            {"do_sample": True, "top_k": 1, "temperature": 0.7, "max_new_tokens": 9}]


def beam_cases(plain):
    a, b, c, d = plain[:4]
    return [
        {"length_penalty": 3.0, "early_stopping": True, "eos_token_id": [d, 0]},
        {"length_penalty": -1.0, "early_stopping": "never", "eos_token_id": [d, 0], "min_new_tokens": 4},
        {"sequence_bias": [[[a, b], -6.0]], "bad_words_ids": [[b, c], [d]], "begin_suppress_tokens": [a]},
        {"encoder_repetition_penalty": 1.3, "encoder_no_repeat_ngram_size": 2, "suppress_tokens": [c]},
        {"forced_eos_token_id": 0, "exponential_decay_length_penalty": [4, 1.1], "repetition_penalty": 1.1},
    ]


def encoder_decoder_cases(name, plain):
    a, b, c = plain[:3]
    cases = [
        {"encoder_repetition_penalty": 1.5},
        {"encoder_no_repeat_ngram_size": 2},
        {"begin_suppress_tokens": [a], "bad_words_ids": [[b, c]]},
        {"min_length": 9, "repetition_penalty": 1.2},
        {"forced_eos_token_id": 2, "no_repeat_ngram_size": 2},
    ]
    if name == "bart":
        cases += [{"forced_bos_token_id": 9, "begin_suppress_tokens": [a], "forced_eos_token_id": 2, "min_length": 7},
                  {"forced_bos_token_id": 9, "min_new_tokens": 8, "exponential_decay_length_penalty": [3, 1.5]}]
    if name == "marian":
        cases = [{"bad_words_ids": [[1], [a, b]], "suppress_tokens": [c]}]
    return cases


class Maker:
    def __init__(self, directory, load):
        self.directory, self.load = ROOT / directory, load
        file = self.directory / "generation_config.json"
        self.base = json.loads(file.read_text()) if file.exists() else None

    def file_of(self, fields):
        if self.base is None:  # where there is no such file these are config.json's
            config = json.loads((self.directory / "config.json").read_text())
            names = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
            return {**{name: config[name] for name in names if name in config}, **fields}
        base = {name: value for name, value in self.base.items() if name not in ("_from_model_config", "num_beams")}
        return {**base, **fields}

    def texts(self, fields, prompts, **arguments):
        """One of each prompt; None where a step is nearly a tie."""
        with tempfile.TemporaryDirectory() as copy:
            for file in self.directory.iterdir():
                if file.name != "generation_config.json":
                    (pathlib.Path(copy) / file.name).symlink_to(file)
            (pathlib.Path(copy) / "generation_config.json").write_text(json.dumps(self.file_of(fields)))
            model = self.load.from_pretrained(copy, dtype=torch.float32, attn_implementation="eager").eval()
        return [self.text(model, prompt, arguments) for prompt in prompts]

    def text(self, model, prompt, arguments):
        made = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                              use_cache=False, return_dict_in_generate=True, output_scores=True, pad_token_id=0,
                              **arguments)
        begin = 1 if model.config.is_encoder_decoder else len(prompt)
        tokens = made.sequences[0, begin:].tolist()
        if arguments.get("num_beams", 1) > 1:
            return tokens
        for scores in made.scores:
            best, second = scores[0].topk(2).values.tolist()
            if best - second < NEAR * max(abs(best), 1):
                return None
        return tokens


def case(maker, name, fields, prompts, options, forced=0, **arguments):
    """`forced`: first tokens that are no new ones here."""
    texts = maker.texts(fields, prompts, **arguments)
    kept = [(prompt, text[forced:]) for prompt, text in zip(prompts, texts) if text is not None]
    assert kept, fields
    print(name, json.dumps(fields), options, [len(text) for _, text in kept], flush=True)
    return {"model": name, "file": maker.file_of(fields), "options": options,
            "prompts": [prompt for prompt, _ in kept], "tokens": [text for _, text in kept]}


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    demo = "model/demo/target"
    tokenizer = AutoTokenizer.from_pretrained(ROOT / demo)
    prompts = [tokenizer(text).input_ids for text in PROMPTS] + [[262]]
    maker = Maker(demo, AutoModelForCausalLM)
    length = ["--max-new-tokens", str(NEW_TOKENS)]
    greedy = {"do_sample": False, "max_new_tokens": NEW_TOKENS}
    plain = maker.texts({}, prompts[:1], **greedy)[0]
    cases = [case(maker, demo, fields, prompts, length, **greedy) for fields in decoder_only_cases(plain)]
    cases += [case(maker, demo, fields, prompts, ["--generation-config", "all"]) for fields in all_cases()]
    cases += [case(maker, demo, fields, prompts, [*length, "--num-beams", "3"], num_beams=3, **greedy)
              for fields in beam_cases(plain)]
    for name, directory in ENCODER_DECODERS.items():
        maker = Maker(directory, AutoModelForSeq2SeqLM)
        expected = json.loads((ROOT / directory / ".." / "expected.json").read_text())
        sources = [text["source"] for text in expected["target"]["texts"]]
        plain = maker.texts({}, sources[:1], do_sample=False, max_new_tokens=12)[0]
        for fields in encoder_decoder_cases(name, plain):
            forced = 1 if "forced_bos_token_id" in fields else 0  # here a forced BOS is no new token
            cases.append(case(maker, directory, fields, sources, ["--max-new-tokens", str(12 - forced)], forced,
                              do_sample=False, max_new_tokens=12))
    golden = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    lines = ",\n".join(json.dumps(one) for one in cases)
    (HERE / "generation_config_golden.json").write_text(json.dumps(golden)[:-1] + ', "cases": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
