#!/usr/bin/env python3
"""Gradients of the families' checkpoints by transformers' autograd, for trainer_test.cpp: gradients.json.

    python tests/model/make_gradients.py [NAME ...]        (torch, transformers, safetensors)

The loss is a family's sum over the places of its first text of a distance between a made-up target distribution and the model's, in which
all but three tokens count as one: forward KL of every checkpoint, and all losses of llama's. Of each tensor's gradient the file
has its norm and its products with four vectors of signs, from which the test tells how far another gradient is away.
"""

import json
import pathlib
import sys
import tempfile

import numpy
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

HERE = pathlib.Path(__file__).resolve().parent
N_TOKENS = 32  # no more than dynamic RoPE leaves as they are
LEAST_LOG = -30  # the trainer's floor (model/torch/losses.cpp), which models of random weights reach
PROBABILITIES = (0.5, 0.25, 0.125)  # of the top tokens; the rest has what is left


def top_tokens(place, known):
    return [(place * 7 + 3 + i) % known for i in range(len(PROBABILITIES))]


def signs(count, which):
    """[count] of -1 and 1: as in trainer_test.cpp."""
    x = (numpy.arange(count, dtype=numpy.uint64) * 2654435761 + which * 40503) & 0xFFFFFFFF
    x ^= x >> numpy.uint64(15)
    x = (x * 2246822519) & 0xFFFFFFFF
    x ^= x >> numpy.uint64(13)
    return (x & 1).astype(numpy.float64) * 2 - 1


def losses(logits, known):
    log_q = torch.log_softmax(logits, 1)
    tokens = torch.tensor([top_tokens(place, known) for place in range(len(logits))])
    rest = logits.scatter(1, tokens, float("-inf")).logsumexp(1, keepdim=True) - logits.logsumexp(1, keepdim=True)
    log_q = torch.cat([log_q.gather(1, tokens), rest], 1).clamp_min(LEAST_LOG)
    p = torch.tensor([*PROBABILITIES, 1 - sum(PROBABILITIES)]).expand(len(logits), -1)
    q, log_p = log_q.exp(), p.log()
    mean = (p + q) / 2
    return {
        "forward-kl": (p * (log_p - log_q)).sum(),
        "reverse-kl": (q * (log_q - log_p)).sum(),
        "jsd": (p * (log_p - mean.log()) + q * (log_q - mean.log())).sum() / 2,
        "tvd": (p - q).abs().sum() / 2,
        "log-alpha": -torch.minimum(p, q).sum(1).log().sum(),
    }


def gradients(directory, loss, text, known, source=None):
    """Under the names of the checkpoint's file; `source`: of a model with an encoder, which has read it."""
    if source is None:
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, experts_implementation="eager").eval()
    else:
        model = AutoModelForSeq2SeqLM.from_pretrained(directory, dtype=torch.float32).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # or that row's gradient is left out
    biases = [buffer.requires_grad_() for name, buffer in model.named_buffers() if name == "final_logits_bias"]
    read = dict(input_ids=torch.tensor([text])) if source is None else \
        dict(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([text]))
    logits = model(**read, use_cache=False).logits[0, :-1].float()
    value = losses(logits, known)[loss]
    value.backward()
    with torch.no_grad():
        for parameter in [*model.parameters(), *biases]:
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):  # which files hold, and no loss depends on
                buffer.zero_()
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        saved = load_file(f"{scratch}/model.safetensors")
    found = {}
    for name in load_file(directory / "model.safetensors"):
        same = [other for other in saved if other == name or other.endswith("." + name)]
        if len(same) == 1:
            found[name] = saved[same[0]].double().flatten().numpy()
    return value.item(), found


def summary(gradient):
    products = [float(gradient @ signs(len(gradient), which)) for which in range(4)]
    return [float(f"{number:.7g}") for number in [float(numpy.linalg.norm(gradient)), *products]]


def main():
    torch.set_num_threads(1)
    file = HERE / "gradients.json"
    made = json.loads(file.read_text()) if sys.argv[1:] and file.exists() else {}
    for pair in sorted((HERE / "families").iterdir()):
        if sys.argv[1:] and pair.name not in sys.argv[1:]:
            continue
        expected = json.loads((pair / "expected.json").read_text())
        for which in ("target", "draft"):
            text = expected[which]["texts"][0]["tokens"][:N_TOKENS]
            for loss in ("forward-kl", "reverse-kl", "jsd", "tvd", "log-alpha") if pair.name == "llama" else ("forward-kl",):
                value, found = gradients(pair / which, loss, text, expected["tokenizer_size"])
                made[f"{pair.name}/{which}/{loss}"] = {
                    "loss": value, "gradients": {name: summary(gradient) for name, gradient in sorted(found.items())}}
                print(pair.name, which, loss, value, len(found), flush=True)
    for pair in sorted((HERE / "encoder_decoders").iterdir()):
        if sys.argv[1:] and pair.name not in sys.argv[1:]:
            continue
        expected = json.loads((pair / "expected.json").read_text())
        for which in ("target", "draft"):
            text = expected[which]["texts"][0]
            value, found = gradients(pair / which, "forward-kl", text["tokens"][:N_TOKENS], expected["tokenizer_size"], text["source"])
            made[f"encoder_decoders/{pair.name}/{which}"] = {
                "loss": value, "gradients": {name: summary(gradient) for name, gradient in sorted(found.items())}}
            print(pair.name, which, value, len(found), flush=True)
    lines = [f" {json.dumps(key)}: {json.dumps(made[key], separators=(',', ':'))}" for key in sorted(made)]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
