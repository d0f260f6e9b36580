"""Writes logprobs_golden.json: greedy texts of the golden Llamas and, of each of their tokens, the log-softmax of
transformers' logits in front of it: that of the token and the largest five. Read by logprobs_mpi.cpp.

    python tests/spec/make_logprobs_golden.py        (torch, transformers)

A text is cut where its two best logits are nearly equal, since float32 sums in another order may part there.
"""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent / "model" / "golden"
NEW_TOKENS = 24
TOP = 5
NEAR = 1e-3


def text_of(model, prompt):
    tokens, emitted, top = [], [], []
    while len(tokens) < NEW_TOKENS:
        logits = model(torch.tensor([prompt + tokens])).logits[0, -1]
        logprobs = torch.log_softmax(logits, -1)
        values, ids = logprobs.topk(TOP)
        if values[0] - values[1] < NEAR:
            break
        tokens.append(int(ids[0]))
        emitted.append(round(float(values[0]), 6))
        top.append([[int(i), round(float(v), 6)] for i, v in zip(ids, values)])
    return {"prompt": prompt, "tokens": tokens, "logprobs": emitted, "top": top}


def main():
    torch.set_num_threads(1)
    expected = json.loads((GOLDEN / "expected.json").read_text())
    prompts = [one["prompt"] for one in expected["llama-target"][:4]]
    made = {}
    for name in ("llama-target", "llama-draft"):
        model = AutoModelForCausalLM.from_pretrained(GOLDEN / name, dtype=torch.float32)
        with torch.no_grad():
            made[name] = [text_of(model, prompt) for prompt in prompts]
        print(name, [len(one["tokens"]) for one in made[name]])
    (HERE / "logprobs_golden.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
