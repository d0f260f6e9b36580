"""Writes encoder_decoders/: a tiny target and draft of every kind of encoder-decoder model, and what transformers says
that they compute.

The weights are random but for a short training on a made-up language; a draft is its target with some noise, so that
the two often agree. Shapes are awkward on purpose, and sources longer than the rows of a pass. Run by hand when the goldens must change; the tests read its
output only.

    python tests/model/make_encoder_decoders.py [--only NAME ...]            (torch, transformers, safetensors)
"""
import argparse
import json
import math
import pathlib
import re
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForSeq2SeqLM

HERE = pathlib.Path(__file__).parent
VOCAB = 101
CONTEXT = 160           # positions, where a family has a table of them
LENGTHS = ((150, 40), (23, 30), (9, 1))  # of sources and what their decoders read
NEW_TOKENS = 24
SMALLEST_MARGIN = 2e-3  # of a greedy step's two best logits, as a share of the largest
SMALLEST_EFFECT = 1e-3  # of leaving out a tensor


def t5(layers, width, heads, d_kv, inner, kind, tied, **more):
    return dict(num_layers=layers, d_model=width, num_heads=heads, d_kv=d_kv, d_ff=inner, feed_forward_proj=kind,
                tie_word_embeddings=tied, relative_attention_num_buckets=8, relative_attention_max_distance=20,
                vocab_size=VOCAB, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, **more)


def bart(width, encoder, decoder, start, **more):
    """encoder, decoder: layers, heads and inner width."""
    sizes = {f"{name}_{key}": value for name, values in (("encoder", encoder), ("decoder", decoder))
             for key, value in zip(("layers", "attention_heads", "ffn_dim"), values)}
    return dict(d_model=width, vocab_size=VOCAB, max_position_embeddings=CONTEXT, eos_token_id=2, bos_token_id=0,
                pad_token_id=1, decoder_start_token_id=start, forced_eos_token_id=None, **sizes, **more)


MARIAN = dict(activation_function="swish", scale_embedding=True)
KINDS = {
    "t5": ("t5", t5(2, 40, 5, 8, 52, "relu", True)),
    "t5-untied": ("t5", t5(2, 36, 6, 8, 44, "gated-gelu", False, num_decoder_layers=3)),
    "t5-gated-tied": ("t5", t5(1, 32, 4, 10, 44, "gated-silu", True)),
    "mt5": ("mt5", t5(2, 40, 6, 8, 44, "gated-gelu", False)),
    "bart": ("bart", bart(40, (2, 4, 52), (3, 5, 44), 2)),
    "mbart": ("mbart", bart(40, (2, 4, 52), (2, 4, 44), 2, scale_embedding=True)),
    "pegasus": ("pegasus", bart(40, (2, 5, 52), (2, 5, 44), 1, activation_function="relu", scale_embedding=True)),
    "marian": ("marian", bart(40, (2, 4, 52), (2, 5, 44), 1, **MARIAN)),
    "marian-separate": ("marian", bart(36, (1, 4, 52), (2, 4, 44), 1, share_encoder_decoder_embeddings=False,
                                       decoder_vocab_size=VOCAB, tie_word_embeddings=False, **MARIAN)),
}
UNTIED = ("t5-untied", "mt5")  # with a head in the file, which transformers 5 does not make
KINDS["marian-separate"][1]["vocab_size"] = 89


def matrices_of(model):
    for name, weight in model.named_parameters():
        if not ("embed_positions" in name and model.config.model_type in ("marian", "pegasus")):  # a computed table
            yield name, weight


@torch.no_grad()
def randomise(model, generator):
    """Every tensor random, none at the value where it would have no effect."""
    width = model.config.d_model
    is_t5 = model.config.model_type in ("t5", "mt5")
    is_post_norm = model.config.model_type in ("bart", "marian")
    for name, weight in matrices_of(model):
        if "relative_attention_bias" in name:
            weight.normal_(0, 1.5, generator=generator)
        elif weight.dim() == 2:
            gain = 1 if is_t5 and (".q." in name or ".k." in name or "EncDec" in name) else 1.4
            if is_post_norm:
                gain = 0.6 if "layers" in name else 1
            weight.normal_(0, gain / math.sqrt(width), generator=generator)
            if is_t5 and ".q." in name:
                weight /= math.sqrt(model.config.d_kv)  # scores are not scaled
        elif name.endswith("bias"):
            weight.normal_(0, 0.3, generator=generator)
        else:
            weight.uniform_(0.6, 1.5, generator=generator)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_(0, 0.5, generator=generator)
    return model


def train(model, seed, steps=200):
    """The next token mostly follows from the last one, and sometimes from the source's at its place."""
    generator = torch.Generator().manual_seed(seed)
    words = min(VOCAB, model.config.vocab_size)
    after, meaning = (torch.randperm(words, generator=generator) for _ in range(2))
    optimizer = torch.optim.AdamW([weight for _, weight in matrices_of(model)], lr=3e-3, weight_decay=0.0)
    for _ in range(steps):
        source = torch.randint(3, words, (12, 20), generator=generator)
        tokens = [torch.full((12,), model.config.decoder_start_token_id)]
        for i in range(20):
            is_of_source = torch.rand(12, generator=generator) < 0.35
            tokens.append(torch.where(is_of_source, meaning[source[:, i]], after[tokens[-1] % words]))
        read = torch.stack(tokens, 1)
        logits = model(input_ids=source, decoder_input_ids=read[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), read[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def disturb(model, generator):
    for _, weight in matrices_of(model):
        weight += 0.12 * weight.std() * torch.randn(weight.shape, generator=generator) if weight.numel() > 1 else 0
    return model


@torch.no_grad()
def forward(model, source, tokens):
    return model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([tokens])).logits[0]


def distance(a, b):
    return ((a - b).abs().max(-1).values / b.abs().max(-1).values).max().item()


def margin(row, banned):
    row = row.clone()
    row[banned] = -math.inf
    best = row.topk(2).values
    return ((best[0] - best[1]) / row[row.isfinite()].abs().max()).item()


@torch.no_grad()
def expectation(model, lengths, seed, banned):
    generator = torch.Generator().manual_seed(seed)
    vocab = model.config.vocab_size
    source = torch.randint(3, vocab, (lengths[0],), generator=generator).tolist()
    start = model.config.decoder_start_token_id
    read = [start] + torch.randint(3, VOCAB, (lengths[1] - 1,), generator=generator).tolist()
    found = model.generate(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([read]), do_sample=False,
                           num_beams=1, max_new_tokens=NEW_TOKENS, use_cache=False,
                           bad_words_ids=[[token] for token in banned] or None)[0, len(read):].tolist()
    logits = forward(model, source, read + found)
    steps = logits[len(read) - 1:-1]
    if any(margin(row, banned) < SMALLEST_MARGIN for row in steps) or len(set(found)) < min(4, len(found)):
        return None
    positions = sorted({*range(0, len(read) + len(found), 6), len(read) + len(found) - 1})
    return {"source": source, "tokens": read, "greedy": found, "positions": positions}, logits[positions].float()


@torch.no_grad()
def check_effects(model, text):
    whole = forward(model, text["source"], text["tokens"])
    for name, weight in matrices_of(model):
        if name.endswith("k_proj.bias"):  # adds the same to all scores of a row
            continue
        before = weight.clone()
        weight.fill_(1.0 if weight.dim() == 1 and name.endswith("weight") else 0.0)
        effect = distance(forward(model, text["source"], text["tokens"]), whole)
        weight.copy_(before)
        assert effect > SMALLEST_EFFECT, f"{name} could be left out: {effect:.1e}"


def expectations(directory, which, seed, banned):
    model = AutoModelForSeq2SeqLM.from_pretrained(directory / which, dtype=torch.float64,
                                                  attn_implementation="eager").eval()
    texts, kept = [], []
    for i, lengths in enumerate(LENGTHS):
        for attempt in range(200):
            found = expectation(model, lengths, 7919 * seed + 5000 * i + attempt, banned)
            if found is not None:
                break
        assert found is not None, "no text without near ties"
        texts.append(found[0])
        kept.append(found[1])
    (directory / f"{which}.logits").write_bytes(torch.cat(kept).numpy().astype("<f4").tobytes())
    check_effects(model, texts[0])
    parameters = sum(weight.numel() for _, weight in matrices_of(model))
    if hasattr(model, "final_logits_bias"):
        parameters += model.final_logits_bias.numel()
    return {"parameters": parameters, "texts": texts}


def write_tokenizer(path):
    """A Unigram of VOCAB pieces as T5's: no beginning of a text, </s> behind it."""
    letters = [*"abcdefghijklmnopqrstuvwxyz"]
    pieces = ["<pad>", "</s>", "<unk>", "\u2581", *letters, *("\u2581" + letter for letter in letters), ".", ","]
    pieces += [first + second for first in "aeiou" for second in letters][:VOCAB - len(pieces)]
    tokenizer = Tokenizer(models.Unigram([(piece, 0.0 if i < 3 else -2.0 - i / VOCAB)
                                          for i, piece in enumerate(pieces)], unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                             special_tokens=[("</s>", 1)])
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.save(str(path))
    text = "a fox, and ten  bees."
    return {"text": text, "ids": tokenizer.encode(text).ids}


@torch.no_grad()
def untie(directory, generator):
    """A head beside the embedding, as files of T5 v1.1 and mT5 have it."""
    weights = load_file(directory / "model.safetensors")
    shared = weights["shared.weight"].float()
    head = shared + 0.3 * shared.std() * torch.randn(shared.shape, generator=generator)
    save_file({**weights, "lm_head.weight": head.to(torch.bfloat16)}, directory / "model.safetensors", {"format": "pt"})
    fields = json.loads((directory / "config.json").read_text())
    fields.pop("scale_decoder_outputs", None)
    (directory / "config.json").write_text(json.dumps({**fields, "tie_word_embeddings": False}, indent=2) + "\n")


def make_kind(name, family, shapes, seed, directory):
    shutil.rmtree(directory, ignore_errors=True)
    config = AutoConfig.for_model(family, **shapes)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = randomise(AutoModelForSeq2SeqLM.from_config(config, attn_implementation="eager").eval(), generator)
    loss = train(model, seed)
    banned = [config.pad_token_id] if family == "marian" else []
    for which in ("target", "draft"):
        if which == "draft":
            disturb(model, generator)
        config.architectures = [type(model).__name__]
        model.to(torch.bfloat16).save_pretrained(directory / which)
        (directory / which / "generation_config.json").unlink(missing_ok=True)
        if name in UNTIED:
            untie(directory / which, generator)
        (directory / which / "model.safetensors").chmod(0o644)
        if banned:
            (directory / which / "generation_config.json").write_text(
                json.dumps({"bad_words_ids": [[token] for token in banned], "num_beams": 4, "eos_token_id": 2,
                            "decoder_start_token_id": config.decoder_start_token_id}) + "\n")
        model.float()
    expected = {"tokenizer_size": VOCAB, "encoded": write_tokenizer(directory / "target" / "tokenizer.json"), **{which: expectations(directory, which, seed, banned)
                                            for which in ("target", "draft")}}
    lines = json.dumps(expected, indent=1)
    lines = re.sub(r"\[([^][{}]*)\]", lambda found: "[" + " ".join(found[1].split()) + "]", lines)  # a list a line
    (directory / "expected.json").write_text(lines + "\n")
    size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    print(f"{name}: loss {loss:.2f}, {expected['target']['parameters']} parameters, {size // 1024} KiB", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for number, (name, (family, shapes)) in enumerate(KINDS.items()):
        if not arguments.only or name in arguments.only:
            make_kind(name, family, shapes, 300 + number, HERE / "encoder_decoders" / name)


if __name__ == "__main__":
    main()
