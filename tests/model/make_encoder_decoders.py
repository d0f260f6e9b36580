"""Writes encoder_decoders/: a tiny target and draft of every kind of encoder-decoder model, and what transformers says
that they compute.

The weights are random, of recipes (recipes.py), which are tried until everything below holds; a draft is its target but for the decoder's last MLP,
so that the two often agree. Shapes are awkward on purpose, and sources longer than the rows of a pass. Run by hand when the goldens must change; the
tests read its output only, and git has the recipe of each model.safetensors.

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
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from recipes import Recipe

HERE = pathlib.Path(__file__).parent
VOCAB = 101
CONTEXT = 160           # positions, where a family has a table of them
LENGTHS = ((150, 40), (23, 30), (9, 1))  # of sources and what their decoders read
NEW_TOKENS, FEWEST_TOKENS = 24, 8  # of a greedy text
SMALLEST_MARGIN = 2e-3  # of a greedy step's two best logits, as a share of the largest
SMALLEST_EFFECT = 1e-3  # of leaving out a tensor
AGREEMENT = (0.15, 0.95)  # of target and draft over the target's texts
ATTEMPTS = 100
SIZES_OF_EMBEDDINGS = (1, 0.4, 0.15, 2)  # tried in turn
LAST_NORMS = {  # of decoders: numbers of both signs, or embeddings that are heads too make tokens repeat themselves
    "t5": r"decoder\.final_layer_norm\.weight", "mt5": r"decoder\.final_layer_norm\.weight", "mbart": r"decoder\.layer_norm\.weight",
    "pegasus": r"decoder\.layer_norm\.weight", "bart": r"decoder\.layers\.{}\.final_layer_norm\.weight",
    "marian": r"decoder\.layers\.{}\.final_layer_norm\.weight"}


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


def spread(deviation, around=0.0):
    """How a recipe makes numbers that deviate so far."""
    return "uniform", f"{math.sqrt(3) * deviation:.4g}", around


def how_to_make(name, shape, config, size_of_embeddings):
    """Every tensor random, none at the value where it would have no effect."""
    is_t5 = config.model_type in ("t5", "mt5")
    if "relative_attention_bias" in name:
        return spread(1.5)
    if name == "final_logits_bias":
        return spread(0.5)
    if name.endswith(("shared.weight", "embed_tokens.weight")):
        return spread(size_of_embeddings)
    if len(shape) == 2:
        gain = 1.4 if not is_t5 or not (".q." in name or ".k." in name or "EncDec" in name) else 1
        if is_t5 and ".q." in name:
            gain /= math.sqrt(config.d_kv)  # scores are not scaled
        if config.model_type in ("bart", "marian"):  # whose norms come last
            gain = 0.6
        return spread(gain / math.sqrt(config.d_model))
    if name.endswith("bias"):
        return spread(0.3)
    return ("uniform", 1.5, 0) if re.search(LAST_NORMS[config.model_type].format(decoder_layers(config) - 1), name) else ("uniform", 0.45, 1.05)


def decoder_layers(config):
    return getattr(config, "num_decoder_layers", None) or config.decoder_layers


def is_of_last_mlp(name, config):
    return re.search(rf"decoder\.(block|layers)\.{decoder_layers(config) - 1}\.(fc|.*DenseReluDense)", name) is not None


def recipe_of(weights, config, key, which, size_of_embeddings):
    """Of a file with tensors of these names, types and shapes."""
    recipe, tables = Recipe("safetensors", key), []
    for name, weight in sorted(weights.items()):
        shape = list(weight.shape)
        if "embed_positions" in name and config.model_type == "pegasus":  # computed
            if tables:
                recipe.add(name, "BF16", shape, "same", tables[0])
            else:
                recipe.add_bytes(name, "BF16", shape, weight.view(torch.uint8).numpy().tobytes())
            tables.append(name)
            continue
        own = [f"{key}/draft/{name}"] if which == "draft" and is_of_last_mlp(name, config) else []
        recipe.add(name, "BF16", shape, *how_to_make(name, shape, config, size_of_embeddings), *own)
    return recipe


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
    if len(found) < FEWEST_TOKENS:
        return None
    logits = forward(model, source, read + found)
    steps = logits[len(read) - 1:-1]
    if any(margin(row, banned) < SMALLEST_MARGIN for row in steps) or len(set(found)) < 4:
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
        for attempt in range(20):
            found = expectation(model, lengths, 7919 * seed + 5000 * i + attempt, banned)
            if found is not None:
                break
        assert found is not None, "no long text without near ties"
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
def untie(directory):
    """A head beside the embedding, as files of T5 v1.1 and mT5 have it."""
    fields = json.loads((directory / "config.json").read_text())
    fields.pop("scale_decoder_outputs", None)
    (directory / "config.json").write_text(json.dumps({**fields, "tie_word_embeddings": False}, indent=2) + "\n")
    return {"lm_head.weight": torch.empty(fields["vocab_size"], fields["d_model"])}


@torch.no_grad()
def agreement(directory, texts):
    target, draft = (AutoModelForSeq2SeqLM.from_pretrained(directory / which, dtype=torch.float32).eval() for which in ("target", "draft"))
    agreed = []
    for text in texts:
        whole = text["tokens"] + text["greedy"]
        guesses = forward(draft, text["source"], whole)[len(text["tokens"]) - 1:-1].argmax(-1).tolist()
        agreed += [guess == token for guess, token in zip(guesses, text["greedy"])]
    return sum(agreed) / len(agreed)


def likely_agreement(directory):
    """Of the tokens that both think best behind random ones."""
    generator = torch.Generator().manual_seed(1)
    source, tokens = (torch.randint(3, 80, (40,), generator=generator).tolist() for _ in range(2))
    best = [forward(AutoModelForSeq2SeqLM.from_pretrained(directory / which, dtype=torch.float32).eval(), source, tokens).argmax(-1)
            for which in ("target", "draft")]
    return (best[0] == best[1]).double().mean().item()


def make_kind(name, family, shapes, seed, attempt, directory):
    shutil.rmtree(directory, ignore_errors=True)
    config = AutoConfig.for_model(family, **shapes)
    model = AutoModelForSeq2SeqLM.from_config(config, attn_implementation="eager").eval()
    banned = [config.pad_token_id] if family == "marian" else []
    for which in ("target", "draft"):
        config.architectures = [type(model).__name__]
        model.to(torch.bfloat16).save_pretrained(directory / which)
        (directory / which / "generation_config.json").unlink(missing_ok=True)
        weights = load_file(directory / which / "model.safetensors")
        if name in UNTIED:
            weights |= untie(directory / which)
        recipe_of(weights, config, f"{name}-{attempt}", which, SIZES_OF_EMBEDDINGS[attempt % len(SIZES_OF_EMBEDDINGS)]).write(
            directory / which / "model.safetensors")
        if banned:
            (directory / which / "generation_config.json").write_text(
                json.dumps({"bad_words_ids": [[token] for token in banned], "num_beams": 4, "eos_token_id": 2,
                            "decoder_start_token_id": config.decoder_start_token_id}) + "\n")
    likely = likely_agreement(directory)
    assert AGREEMENT[0] <= likely <= AGREEMENT[1], f"agreement about {likely:.2f}"
    expected = {"tokenizer_size": VOCAB, "encoded": write_tokenizer(directory / "target" / "tokenizer.json")}
    expected["target"] = expectations(directory, "target", seed, banned)
    agreed = agreement(directory, expected["target"]["texts"])
    assert AGREEMENT[0] <= agreed <= AGREEMENT[1], f"agreement {agreed:.2f}"
    expected["draft"] = expectations(directory, "draft", seed, banned)
    lines = json.dumps(expected, indent=1)
    lines = re.sub(r"\[([^][{}]*)\]", lambda found: "[" + " ".join(found[1].split()) + "]", lines)  # a list a line
    (directory / "expected.json").write_text(lines + "\n")
    print(f"{name}: attempt {attempt}, agreement {agreed:.2f}, {expected['target']['parameters']} parameters", flush=True)


def search(name, family, shapes, seed, directory):
    for attempt in range(ATTEMPTS):
        try:
            return make_kind(name, family, shapes, seed, attempt, directory)
        except AssertionError as why:
            print(f"{name}: attempt {attempt}: {why}", flush=True)
    raise SystemExit(f"{name}: no weights found")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for number, (name, (family, shapes)) in enumerate(KINDS.items()):
        if not arguments.only or name in arguments.only:
            search(name, family, shapes, 300 + number, HERE / "encoder_decoders" / name)


if __name__ == "__main__":
    main()
