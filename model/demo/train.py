#!/usr/bin/env python3
"""Trains the demo models: a byte-level BPE; Llamas of 8.7 M (target), 1 M (draft) and 0.2 M (smallest) parameters.

Not part of the product: it runs once, its output is committed under model/demo/{target,draft,smallest}.
The target learns from the text alone. Who drafts is verified by agreement, so the other two learn from
a teacher's distribution as well (LEARNS_FROM): the draft from the target, by which its chains are
verified, and the smallest from the draft, which verifies the smallest's chains in a cascade.

    python train.py --text train.txt --heldout heldout.txt --work work tokenizer
    python train.py --text train.txt --heldout heldout.txt --work work target --steps 3000
    python train.py --text train.txt --heldout heldout.txt --work work draft  --steps 2500
    python train.py --text train.txt --heldout heldout.txt --work work smallest --steps 3000
    python train.py --text train.txt --heldout heldout.txt --work work export --out model/demo

Every subcommand can be killed and started again: it goes on from its last checkpoint.
Needs: torch, transformers, tokenizers, safetensors, numpy (PyPI).
"""

import argparse
import json
import math
import pathlib
import shutil
import time

import numpy as np
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCAB_SIZE = 4096
END_OF_TEXT = "<|endoftext|>"
SHAPES = {
    "target": dict(hidden_size=320, intermediate_size=768, num_hidden_layers=6,
                   num_attention_heads=8, num_key_value_heads=4, head_dim=64),
    "draft": dict(hidden_size=128, intermediate_size=320, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=64),
    "smallest": dict(hidden_size=48, intermediate_size=128, num_hidden_layers=1,
                     num_attention_heads=4, num_key_value_heads=2, head_dim=16),
}
LEARNING_RATE = {"target": 2e-3, "draft": 3e-3, "smallest": 6e-3}
LEARNS_FROM = {"target": (None, 0.0), "draft": ("target", 0.5), "smallest": ("draft", 1.0)}  # teacher, its share
PAIRS = (("target", "draft"), ("draft", "smallest"), ("target", "smallest"))  # who verifies, who drafts
WINDOWS = (256, 512, 1024)  # tokens of a sequence, drawn for each step
STEP_TOKENS = {"target": 4096, "draft": 4096, "smallest": 2048}
CHECKPOINT_EVERY = 250


def build_tokenizer(args):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=[END_OF_TEXT],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train([args.text], trainer)
    args.work.mkdir(parents=True, exist_ok=True)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END_OF_TEXT,
                            bos_token=END_OF_TEXT).save_pretrained(args.work / "tokenizer")
    for name in ("text", "heldout"):
        text = pathlib.Path(getattr(args, name)).read_text(encoding="utf-8")
        ids = []
        for start in range(0, len(text), 1 << 20):
            ids += tokenizer.encode(text[start:start + (1 << 20)]).ids
        np.array(ids, dtype=np.uint16).tofile(args.work / f"{name}.u16")
        print(name, len(ids), "tokens")


def load_ids(args, name):
    return torch.from_numpy(np.fromfile(args.work / f"{name}.u16", dtype=np.uint16).astype(np.int64))


def new_model(kind):
    config = LlamaConfig(vocab_size=VOCAB_SIZE, max_position_embeddings=4096, rope_theta=10000.0,
                         rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0,
                         initializer_range=0.02, **SHAPES[kind])
    return LlamaForCausalLM(config)


@torch.no_grad()
def heldout_loss(model, ids, window, windows=64):
    """Mean cross-entropy in nats over evenly spaced windows, each scored whole."""
    model.eval()
    starts = np.linspace(0, len(ids) - window - 1, windows).astype(int)
    total = 0.0
    for start in starts:
        rows = ids[start:start + window + 1].unsqueeze(0)
        total += F.cross_entropy(model(rows[:, :-1]).logits[0].float(), rows[0, 1:]).item()
    model.train()
    return total / windows


@torch.no_grad()
def agreement(verifier, drafter, ids, windows=64):
    """Share of equal arg maxes and mean sum of min(p, q), over evenly spaced windows of 256."""
    agree, overlap, count = 0, 0.0, 0
    for start in np.linspace(0, len(ids) - 258, windows).astype(int):
        rows = ids[start:start + 256].unsqueeze(0)
        p = verifier(rows).logits[0].float().softmax(-1)
        q = drafter(rows).logits[0].float().softmax(-1)
        agree += (p.argmax(-1) == q.argmax(-1)).sum().item()
        overlap += torch.minimum(p, q).sum().item()
        count += rows.shape[1]
    return {"greedy_agreement": round(agree / count, 4), "sum_min_p_q": round(overlap / count, 4)}


def train(args, kind):
    torch.manual_seed(1 if kind == "target" else 2)
    generator = torch.Generator().manual_seed(3)
    ids, heldout = load_ids(args, "text"), load_ids(args, "heldout")
    model = new_model(kind)
    print(kind, sum(p.numel() for p in model.parameters()), "parameters", flush=True)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                   {"params": plain, "weight_decay": 0.0}],
                                  lr=LEARNING_RATE[kind], betas=(0.9, 0.95))
    teacher_kind, share = LEARNS_FROM[kind]
    teacher = None
    if teacher_kind is not None:
        teacher = new_model(teacher_kind)
        teacher.load_state_dict(torch.load(args.work / f"{teacher_kind}.pt")["model"])
        teacher.eval()
    checkpoint = args.work / f"{kind}.pt"
    step = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        generator.set_state(state["generator"])
        step = state["step"]
        print("resumed at step", step, flush=True)

    def save():
        partial = checkpoint.with_suffix(".partial")
        torch.save(dict(model=model.state_dict(), optimizer=optimizer.state_dict(),
                        generator=generator.get_state(), step=step), partial)
        partial.replace(checkpoint)

    warmup, began, first = 100, time.time(), step
    model.train()
    while step < args.steps:
        fraction = step / args.steps
        rate = LEARNING_RATE[kind] * min(1.0, (step + 1) / warmup) * max(0.02, 1.0 - fraction)
        for group in optimizer.param_groups:
            group["lr"] = rate
        window = WINDOWS[torch.randint(len(WINDOWS), (1,), generator=generator).item()]
        sequences = STEP_TOKENS[kind] // window
        starts = torch.randint(len(ids) - window - 1, (sequences,), generator=generator)
        rows = torch.stack([ids[s:s + window + 1] for s in starts])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(rows[:, :-1], use_cache=False).logits.flatten(0, 1)
            if teacher is not None:
                with torch.no_grad():
                    wanted = teacher(rows[:, :-1], use_cache=False).logits.flatten(0, 1)
        tokens = rows[:, 1:].flatten()
        if teacher is None:
            loss = F.cross_entropy(logits.float(), tokens)
        else:  # gradients as of (1 - share) cross-entropy + share Kullback-Leibler, in one pass over the logits
            wanted = wanted.float().softmax(-1).mul_(share)
            wanted[torch.arange(len(tokens)), tokens] += 1.0 - share
            loss = F.cross_entropy(logits.float(), wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f} {(time.time() - began) / (step - first):.3f} s/step", flush=True)
        if step % CHECKPOINT_EVERY == 0 or step == args.steps:
            save()
            print(f"step {step} held-out loss {heldout_loss(model, heldout, 256, 32):.3f}", flush=True)
            if teacher is not None:
                print(f"step {step} with {teacher_kind}: {agreement(teacher, model, heldout, 32)}", flush=True)


@torch.no_grad()
def export(args):
    """Writes the models in float16 with their tokenizer, and says what they are worth."""
    heldout = load_ids(args, "heldout")
    models, lines = {}, {}
    for kind in SHAPES:
        model = new_model(kind)
        model.load_state_dict(torch.load(args.work / f"{kind}.pt")["model"])
        model = model.half()
        model.config.dtype = "float16"
        out = args.out / kind
        out.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(out)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(args.work / "tokenizer" / name, out / name)
        models[kind] = LlamaForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
        lines[kind] = {"parameters": sum(p.numel() for p in model.parameters()),
                       **{f"heldout_loss_{w}": round(heldout_loss(models[kind], heldout, w), 4)
                          for w in (256, 1024)}}
    for verifier, drafter in PAIRS:
        lines[f"{verifier}, {drafter}"] = agreement(models[verifier], models[drafter], heldout)
    print(json.dumps(lines, indent=2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    parser.add_argument("--heldout", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("what", choices=["tokenizer", *SHAPES, "export"])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("model/demo"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.what == "tokenizer":
        build_tokenizer(args)
    elif args.what == "export":
        export(args)
    else:
        train(args, args.what)


if __name__ == "__main__":
    main()
