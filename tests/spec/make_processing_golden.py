"""Writes processing_golden.json: greedy texts of transformers' generate() for the golden Llamas, with its processors
for repetition penalty, n-grams, biases, banned tokens and a least length. Read by processing_mpi.cpp.

    python tests/spec/make_processing_golden.py        (torch, transformers)

A text is cut where its two best logits are nearly equal, since float32 sums in another order may part there.
"""

import json
import pathlib

import torch
import transformers
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent / "model" / "golden"
NEW_TOKENS = 40
NEAR = 3e-4  # of the largest logit

PROMPTS = (0, 1, 3, 4)

# The last: all at once.
OPTIONS = [
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.9},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"min_new_tokens": 36},
    {"logit_bias": [[262, 4.0], [17, 3.0], [11, -6.0]]},
    {"banned": 3},
    {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "min_new_tokens": 36, "logit_bias": [[262, 2.0]],
     "banned": 2},
]


def late_token(texts):
    """A token of at least two texts that comes late in all: the end of text for these cases."""
    first = {}
    for text in texts:
        for token in set(text):
            first.setdefault(token, []).append(text.index(token))
    return max((min(places), token) for token, places in first.items() if len(places) > 1)[1]


def text_of(model, prompt, eos, options):
    arguments = {}
    for name in ("repetition_penalty", "no_repeat_ngram_size", "min_new_tokens"):
        if name in options:
            arguments[name] = options[name]
    if options.get("logit_bias"):
        arguments["sequence_bias"] = [[[token], bias] for token, bias in options["logit_bias"]]
    if options.get("banned_tokens"):
        arguments["suppress_tokens"] = options["banned_tokens"]
    made = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                          do_sample=False, max_new_tokens=NEW_TOKENS, eos_token_id=eos, pad_token_id=eos,
                          return_dict_in_generate=True, output_scores=True, **arguments)
    tokens = made.sequences[0, len(prompt):].tolist()
    for i, scores in enumerate(made.scores):
        best, second = scores[0].topk(2).values.tolist()
        if best - second < NEAR * max(abs(best), 1):
            return tokens[:i], False
    return tokens, True


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    expected = json.loads((GOLDEN / "expected.json").read_text())
    golden = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0], "models": {}}
    for name in ("llama-target", "llama-draft"):
        model = AutoModelForCausalLM.from_pretrained(GOLDEN / name, dtype=torch.float32).eval()
        eos = late_token([expected[name][number]["greedy"][:NEW_TOKENS] for number in PROMPTS])
        cases = []
        for options in OPTIONS:
            for number in PROMPTS:
                one = {key: value for key, value in options.items() if key != "banned"}
                if "banned" in options:  # what would have been said
                    plain = [token for token in expected[name][number]["greedy"] if token != eos]
                    one["banned_tokens"] = sorted(set(plain[:options["banned"]]))
                prompt = expected[name][number]["prompt"]
                tokens, whole = text_of(model, prompt, eos, one)
                cases.append({"options": one, "prompt": prompt, "tokens": tokens, "whole": whole,
                              "changed": tokens != expected[name][number]["greedy"][:len(tokens)]})
        golden["models"][name] = {"eos": eos, "cases": cases}
        print(name, "eos", eos, "lengths", [len(case["tokens"]) for case in cases],
              "changed", sum(case["changed"] for case in cases))
    with open(HERE / "processing_golden.json", "w") as file:
        file.write(json.dumps({key: golden[key] for key in ("transformers", "torch")})[:-1] + ', "models": {\n')
        for i, (name, model) in enumerate(golden["models"].items()):
            file.write(json.dumps(name) + ': {"eos": ' + str(model["eos"]) + ', "cases": [\n')
            file.write(",\n".join(json.dumps(case) for case in model["cases"]))
            file.write("\n]}" + (",\n" if i == 0 else "\n"))
        file.write("}}\n")


if __name__ == "__main__":
    main()
