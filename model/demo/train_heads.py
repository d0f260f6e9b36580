#!/usr/bin/env python3
"""Trains the demo target's speculation heads: an EAGLE-3 head and four Medusa heads, in their authors' layouts.

Not part of the product: it runs once, its output is committed under model/demo/{eagle3,medusa}. Both heads learn the
target's distribution, on the text that trained it and on continuations that it wrote itself (half of them greedy).
EAGLE-3 learns by training-time test: step j of a chain reads the features that step j - 1 put out. Both are trained in
one pass over the target's hidden states; the learning rate falls linearly over --minutes.

    python train_heads.py --text train.txt --work work continue --minutes 5
    python train_heads.py --text train.txt --work work train --minutes 42
    python train_heads.py --work work export
    python train_heads.py measure

`train` writes its state now and then, and export takes the last one. Needs: torch, transformers, tokenizers,
safetensors, numpy (PyPI).
"""

import argparse
import json
import math
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
AUX_LAYERS = (2, 4, 5)   # EAGLE-3 reads the inputs of these layers; the usual 2, N / 2, N - 3 are two layers of six
DRAFT_VOCAB = 3072
CHAIN = 4                # steps of training-time test
STEP_DECAY = 0.8         # of the loss's weight, from one step or Medusa head to the next
MEDUSA_HEADS = 4
WINDOW, SEQUENCES = 256, 6
PROMPT = 25
LEARNING_RATE = {"eagle3": 1.5e-3, "medusa": 2e-3}
SAVE_EVERY = 100

EAGLE3_CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 320,
    "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 40, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 4096, "vocab_size": 4096,
    "draft_vocab_size": DRAFT_VOCAB, "eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS), "bos_token_id": 0,
    "eos_token_id": 0, "tie_word_embeddings": False, "torch_dtype": "float16",
}
MEDUSA_CONFIG = {"base_model_name_or_path": "../target", "medusa_num_heads": MEDUSA_HEADS, "medusa_num_layers": 1,
                 "torch_dtype": "float16"}


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x.float(), self.weight.shape, self.weight, EAGLE3_CONFIG["rms_norm_eps"])


def rotate(x, positions):
    """x: [batch, heads, n, dim]."""
    dim = x.shape[-1]
    angles = torch.outer(positions.float(), 1.0 / EAGLE3_CONFIG["rope_theta"] ** (torch.arange(0, dim, 2) / dim))
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


class Attention(nn.Module):
    def __init__(self, hidden, heads, kv_heads, dim):
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, dim
        self.q_proj = nn.Linear(2 * hidden, heads * dim, bias=False)
        self.k_proj = nn.Linear(2 * hidden, kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(2 * hidden, kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(heads * dim, hidden, bias=False)

    def split(self, x, heads):
        return x.unflatten(-1, (heads, self.dim)).transpose(1, 2)

    def forward(self, x, positions, chain):
        """x: [batch, n, 2 hidden], one step of the chains that begin at each of n slots. chain: (keys, values) of the
        steps before, to which this step's are added. A slot of step 0 sees step 0 up to itself; one of a later step
        sees what the chain's slot of step 0 does and its own chain."""
        q = rotate(self.split(self.q_proj(x), self.heads), positions)
        k = rotate(self.split(self.k_proj(x), self.kv_heads), positions).repeat_interleave(
            self.heads // self.kv_heads, 1)
        v = self.split(self.v_proj(x), self.kv_heads).repeat_interleave(self.heads // self.kv_heads, 1)
        chain.append((k, v))
        n = x.shape[1]
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        scores = (q @ chain[0][0].transpose(-1, -2)).masked_fill(future, -math.inf)
        own = [(q * keys).sum(-1, keepdim=True) for keys, _ in chain[1:]]
        shares = (torch.cat([scores, *own], -1).float() / math.sqrt(self.dim)).softmax(-1).to(v.dtype)
        y = shares[..., :n] @ chain[0][1]
        for step, (_, values) in enumerate(chain[1:]):
            y = y + shares[..., n + step:n + step + 1] * values
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class MidLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden = config["hidden_size"]
        self.hidden_norm, self.input_layernorm = RMSNorm(hidden), RMSNorm(hidden)
        self.post_attention_layernorm = RMSNorm(hidden)
        self.self_attn = Attention(hidden, config["num_attention_heads"], config["num_key_value_heads"],
                                   config["head_dim"])
        self.mlp = Mlp(hidden, config["intermediate_size"])

    def forward(self, embedded, feature, positions, chain):
        x = torch.cat([self.input_layernorm(embedded), self.hidden_norm(feature)], -1)
        y = feature + self.self_attn(x, positions, chain)
        return y + self.mlp(self.post_attention_layernorm(y))


class Eagle3(nn.Module):
    """The parameters' names are the file's."""

    def __init__(self):
        super().__init__()
        hidden = EAGLE3_CONFIG["hidden_size"]
        self.fc = nn.Linear(len(AUX_LAYERS) * hidden, hidden, bias=False)
        self.midlayer = MidLayer(EAGLE3_CONFIG)
        self.norm = RMSNorm(hidden)
        self.lm_head = nn.Linear(hidden, DRAFT_VOCAB, bias=False)

    def forward(self, features, embedded, steps):
        """features: [batch, n, 3 hidden] of positions 0 to n - 1; embedded: [batch, n + steps - 1, hidden] of the
        tokens from 1 on. Yields logits [batch, n, draft vocabulary]: those of step j predict token p + 2 + j."""
        n, chain = features.shape[1], []
        feature = self.fc(features)
        for step in range(steps):
            positions = torch.arange(n) + step
            feature = self.midlayer(embedded[:, step:step + n], feature, positions, chain)
            yield self.lm_head(self.norm(feature))


class MedusaHeads(nn.Module):
    """Residual blocks; the target's norm and head are used around them."""

    def __init__(self):
        super().__init__()
        hidden = EAGLE3_CONFIG["hidden_size"]
        self.linears = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(MEDUSA_HEADS))
        for linear in self.linears:
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, normed, head):
        for linear in self.linears:
            yield F.linear(normed + F.silu(linear(normed)), head)


# ---- the target ----

def load_target():
    return LlamaForCausalLM.from_pretrained(HERE / "target", dtype=torch.float32).eval().requires_grad_(False)


@torch.no_grad()
def read(target, rows):
    """(features of EAGLE-3, normed hidden states, logits) of rows of tokens."""
    out = target(rows, use_cache=False, output_hidden_states=True)
    return torch.cat([out.hidden_states[i] for i in AUX_LAYERS], -1), out.hidden_states[-1], out.logits


def text_ids(args):
    """The training text's tokens, as train.py cuts it."""
    file = args.work / "text.u16"
    if not file.exists():
        args.work.mkdir(parents=True, exist_ok=True)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(HERE / "target").backend_tokenizer
        text, ids = args.text.read_text(encoding="utf-8"), []
        for start in range(0, len(text), 1 << 20):
            ids += tokenizer.encode(text[start:start + (1 << 20)]).ids
        np.array(ids, dtype=np.uint16).tofile(file)
    return torch.from_numpy(np.fromfile(file, dtype=np.uint16).astype(np.int64))


@torch.no_grad()
def continue_text(args):
    """Appends windows to continued.u16: prompts of the text and what the target writes after them."""
    target, ids = load_target(), text_ids(args)
    generator = torch.Generator().manual_seed(int(time.time()))
    torch.manual_seed(int(time.time()))
    began, greedy = time.time(), True
    while time.time() - began < 60 * args.minutes:
        starts = torch.randint(len(ids) - PROMPT, (128,), generator=generator)
        prompts = torch.stack([ids[start:start + PROMPT] for start in starts])
        how = dict(do_sample=False) if greedy else dict(do_sample=True, temperature=1.0, top_k=0)
        rows = target.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=WINDOW - PROMPT,
                               min_new_tokens=WINDOW - PROMPT, pad_token_id=0, **how)
        with open(args.work / "continued.u16", "ab") as file:
            file.write(rows[:, :WINDOW].numpy().astype(np.uint16).tobytes())
        greedy = not greedy
        print(f"{rows.numel()} tokens after {time.time() - began:.0f} s", flush=True)


# ---- training ----

def soft_loss(logits, wanted):
    return F.cross_entropy(logits.float().flatten(0, 1), wanted.flatten(0, 1))


def choose_vocabulary(ids, continued):
    """The most frequent tokens of the text and of the continuations, ascending."""
    counts = torch.bincount(ids, minlength=EAGLE3_CONFIG["vocab_size"]).double()
    written = torch.bincount(continued.flatten(), minlength=EAGLE3_CONFIG["vocab_size"]).double()
    shares = counts / counts.sum() + written / written.sum()
    known = shares.topk(DRAFT_VOCAB).indices.sort().values
    print(f"vocabulary: {(shares[known].sum() / shares.sum()).item():.4f} of the tokens")
    return known


def train(args):
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(6)
    target, ids = load_target(), text_ids(args)
    continued = torch.from_numpy(np.fromfile(args.work / "continued.u16", dtype=np.uint16).astype(np.int64))
    continued = continued.view(-1, WINDOW)
    known = choose_vocabulary(ids, continued)
    table = target.model.embed_tokens.weight
    eagle3, medusa = Eagle3(), MedusaHeads()
    with torch.no_grad():
        for weight in eagle3.parameters():
            if weight.dim() == 2:
                weight.normal_(0, 0.02)
        eagle3.fc.weight[:, -table.shape[1]:] += torch.eye(table.shape[1])
        eagle3.norm.weight.copy_(target.model.norm.weight)
        eagle3.lm_head.weight.copy_(table[known])
    models = {"eagle3": eagle3, "medusa": medusa}
    print({name: sum(weight.numel() for weight in model.parameters()) for name, model in models.items()}, flush=True)
    optimizer = torch.optim.AdamW(
        [{"params": [weight for weight in model.parameters() if (weight.dim() > 1) == decays], "name": name,
          "weight_decay": 0.05 if decays else 0.0} for name, model in models.items() for decays in (True, False)],
        betas=(0.9, 0.95))
    began, step, means = time.time(), 0, np.zeros(CHAIN + MEDUSA_HEADS)
    fraction = 0.0
    while fraction < 1.0:
        fraction = min(1.0, (time.time() - began) / (60 * args.minutes))
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE[group["name"]] * min(1.0, (step + 1) / 50) * max(0.02, 1.0 - fraction)
        starts = torch.randint(len(ids) - WINDOW, (SEQUENCES // 3,), generator=generator)
        picks = torch.randint(len(continued), (SEQUENCES - len(starts),), generator=generator)
        rows = torch.cat([torch.stack([ids[start:start + WINDOW] for start in starts]), continued[picks]])
        features, normed, logits = read(target, rows)
        n = WINDOW - CHAIN  # slots whose chains end inside the window
        drafted = logits[:, 1:, known].float().softmax(-1)
        embedded, losses = table[rows[:, 1:]], []
        for j, row in enumerate(eagle3(features[:, :n], embedded, CHAIN)):
            losses.append(soft_loss(row, drafted[:, j:j + n]))
        full = logits[:, 1:].float().softmax(-1)
        n = WINDOW - MEDUSA_HEADS
        for j, row in enumerate(medusa(normed[:, :n], table)):
            losses.append(soft_loss(row, full[:, j:j + n]))
        weights = [STEP_DECAY ** j for j in range(CHAIN)] + [STEP_DECAY ** j for j in range(MEDUSA_HEADS)]
        optimizer.zero_grad(set_to_none=True)
        sum(weight * loss for weight, loss in zip(weights, losses)).backward()
        for model in models.values():
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        means += [loss.item() for loss in losses]
        if step % 20 == 0:
            print(f"step {step} {100 * fraction:.0f} %, {(time.time() - began) / step:.2f} s a step, losses",
                  np.round(means / 20, 3), flush=True)
            means[:] = 0
        if step % SAVE_EVERY == 0 or fraction >= 1.0:
            partial = args.work / "heads.partial"
            torch.save({"eagle3": eagle3.state_dict(), "medusa": medusa.state_dict(), "known": known,
                        "steps": step}, partial)
            partial.replace(args.work / "heads.pt")


# ---- files ----

def export(args):
    state = torch.load(args.work / "heads.pt")
    print(state["steps"], "steps")
    for name, config in (("eagle3", EAGLE3_CONFIG), ("medusa", MEDUSA_CONFIG)):
        (args.out / name).mkdir(parents=True, exist_ok=True)
        (args.out / name / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tensors = {name: weight.half() for name, weight in state["eagle3"].items()}
    known = state["known"]
    tensors["d2t"] = known - torch.arange(DRAFT_VOCAB)  # offsets
    tensors["t2d"] = torch.zeros(EAGLE3_CONFIG["vocab_size"], dtype=torch.bool)
    tensors["t2d"][known] = True
    torch.save(tensors, args.out / "eagle3" / "pytorch_model.bin")
    save_file({name.replace("linears.", "").replace(".", ".0.linear.", 1): weight.half()
               for name, weight in state["medusa"].items()},
              args.out / "medusa" / "medusa_lm_head.safetensors", metadata={"format": "pt"})
    (args.out / "medusa" / "medusa_lm_head.safetensors").chmod(0o644)


def load_heads(out):
    tensors = {name: value.float() if value.is_floating_point() else value
               for name, value in torch.load(out / "eagle3" / "pytorch_model.bin").items()}
    known = tensors.pop("d2t") + torch.arange(DRAFT_VOCAB)
    tensors.pop("t2d")
    eagle3, medusa = Eagle3(), MedusaHeads()
    eagle3.load_state_dict(tensors)
    medusa.load_state_dict({"linears." + name.replace(".0.linear", ""): value.float() for name, value in
                            load_file(out / "medusa" / "medusa_lm_head.safetensors").items()})
    return eagle3.eval(), medusa.eval(), known


@torch.no_grad()
def measure(args):
    """Greedy acceptance on the prompts: the target's own greedy text, chains drafted from its every position."""
    target = load_target()
    eagle3, medusa, known = load_heads(args.out)
    table = target.model.embed_tokens.weight
    prompts = [json.loads(line)["prompt_token_ids"] for line in (HERE / "prompts.jsonl").read_text().splitlines()]
    rows = torch.tensor(prompts)  # all of one length
    rows = target.generate(rows, attention_mask=torch.ones_like(rows), do_sample=False, pad_token_id=0,
                           max_new_tokens=args.tokens, min_new_tokens=args.tokens)
    features, normed, _ = read(target, rows)
    n = rows.shape[1] - 1 - CHAIN
    guesses = {"eagle3": [known[row.argmax(-1)] for row in eagle3(features[:, :n], table[rows[:, 1:]], CHAIN)],
               "medusa": [row.argmax(-1) for row in medusa(normed[:, :n], table)]}
    matches, taken = {}, {}
    for name, steps in guesses.items():
        right = torch.stack([step == rows[:, 2 + j:2 + j + n] for j, step in enumerate(steps)], -1)
        matches[name] = right[:, len(prompts[0]) - 1:].int().cumprod(-1)  # slots whose next token is generated
        taken[name] = []
        for sequence in matches[name].sum(-1).tolist():
            at = 0
            while at < len(sequence):
                taken[name].append(sequence[at])
                at += sequence[at] + 1
    for name, found in matches.items():
        reached = F.pad(found.flatten(0, 1), (1, 0), value=1).sum(0)
        rates = [round((reached[j + 1] / reached[j]).item(), 3) for j in range(CHAIN)]
        counts = np.bincount(taken[name], minlength=CHAIN + 1)
        rounds = [round(float(counts[j + 1:].sum() / max(1, counts[j:].sum())), 3) for j in range(CHAIN)]
        print(f"{name}: accepted at positions 1 to {CHAIN}, where all before it were: {rates} from every position, "
              f"{rounds} in rounds; {np.mean(taken[name]) + 1:.3f} tokens a round")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["continue", "train", "export", "measure"])
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--tokens", type=int, default=128, help="that measure generates after each prompt")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    {"continue": continue_text, "train": train, "export": export, "measure": measure}[args.what](args)


if __name__ == "__main__":
    main()
