#!/usr/bin/env python3
"""Writes a T5 of random weights in the shape of T5-small and a draft of a quarter of its cost, for transformers.py.

    python3 bench/peers/t5_pair.py OUT [--scale 0.85] [--sources 8]
    python3 bench/peers/transformers.py --target OUT/target --draft OUT/draft --prompts OUT/prompts.jsonl

Random weights accept nothing, or repeat one token for ever. So that something is accepted, the heads of both know one
and the same permutation: token t's row of the embedding is that of its successor in the head. Of the draft the
embedding is large beside what layers add, so that it always drafts the successor; of the target it has --scale times the usual
deviation, and the larger it is the more often the target agrees. What is accepted says nothing of trained models; what
a token costs is a T5-small's. No tokenizer. Needs bench/peers/requirements.txt; exits with 77 where a package is missing.
"""

import os
import sys

# In this folder, transformers.py is this file's neighbour and not the library.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [place for place in sys.path if os.path.abspath(place) != HERE]

import argparse  # noqa: E402
import json  # noqa: E402
import pathlib  # noqa: E402

try:
    import torch
    from safetensors.torch import save_file
    from transformers import T5Config, T5ForConditionalGeneration
except ImportError as missing:
    print(f"skipped: {missing}; see bench/peers/requirements.txt")
    sys.exit(77)

VOCAB = 32128
SHAPES = {"target": dict(d_model=512, d_kv=64, num_heads=8, d_ff=2048, num_layers=6),
          "draft": dict(d_model=256, d_kv=64, num_heads=4, d_ff=1024, num_layers=2)}
SOURCE = 64  # tokens


def write(directory, shape, scale, successor, seed):
    torch.manual_seed(seed)
    config = T5Config(vocab_size=VOCAB, tie_word_embeddings=False, decoder_start_token_id=0, **shape)
    model = T5ForConditionalGeneration(config)
    embedding = model.shared.weight.detach() * scale
    weights = {name: value for name, value in model.state_dict().items()
               if not name.endswith("embed_tokens.weight") and name != "lm_head.weight"}
    head = torch.empty_like(embedding)
    head[successor] = embedding
    weights.update({"shared.weight": embedding, "lm_head.weight": head / scale})
    model.save_pretrained(directory)
    save_file(weights, directory / "model.safetensors", {"format": "pt"})  # with a head, which transformers 5 ties
    fields = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**fields, "tie_word_embeddings": False}, indent=2) + "\n")
    print(directory, sum(value.numel() for value in weights.values()), "parameters")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--scale", type=float, default=0.85, help="of the target's embedding [0.85]")
    parser.add_argument("--sources", type=int, default=8, help=f"of {SOURCE} random tokens in OUT/prompts.jsonl [8]")
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(1)
    successor = torch.randperm(VOCAB, generator=generator)
    with torch.no_grad():
        for seed, (name, scale) in enumerate((("target", options.scale), ("draft", 4.0))):
            write(options.out / name, SHAPES[name], scale, successor, seed)
    sources = torch.randint(VOCAB, (options.sources, SOURCE), generator=generator).tolist()
    (options.out / "prompts.jsonl").write_text("".join(
        json.dumps({"id": number, "prompt_token_ids": source}) + "\n" for number, source in enumerate(sources)))


if __name__ == "__main__":
    main()
