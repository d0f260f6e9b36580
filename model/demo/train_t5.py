#!/usr/bin/env python3
"""Trains the demo T5 pair, which restores punctuation and case: a tokenizer, a target of 5.5 M, a draft of 0.8 M parameters.

Not part of the product: it runs once, its output is committed under model/demo/t5. A source is some sentences in lower
case without punctuation, and what the decoder writes the sentences themselves. Both models are trained in one loop: the
target on the text, the draft on the text and on the distributions of the target as it is at that step. The learning rate falls linearly
over --minutes, sources grow from 16 to 32 tokens over the first third.

    python train_t5.py --text train.txt --heldout heldout.txt --work work tokenizer
    python train_t5.py --text train.txt --heldout heldout.txt --work work train --minutes 75
    python train_t5.py --text train.txt --heldout heldout.txt --work work export --out t5

`train` can be killed and started again: it goes on from its last checkpoint, and export takes that one.
Needs: torch, transformers, tokenizers, safetensors, numpy (PyPI).
"""

import argparse
import json
import pathlib
import re
import time

import numpy as np
import torch
import torch.nn.functional as F
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

VOCAB_SIZE = 2048
PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
PAD_ID, END_ID = 0, 1
SIDES = ("source", "text")
SHAPES = {
    "target": dict(d_model=256, d_kv=64, num_heads=4, d_ff=768, num_layers=2, num_decoder_layers=4),
    "draft": dict(d_model=128, d_kv=32, num_heads=4, d_ff=384, num_layers=2, num_decoder_layers=1),
}
LEARNING_RATE = {"target": 1.5e-3, "draft": 2e-3}
DISTILLED = 0.5              # share of the target's distribution in what the draft learns; the rest is the text
QUERIES_RATE = 0.1           # of the learning rate: T5 does not scale scores but has small weights of queries instead
LENGTHS = (16, 32)            # tokens of a source at most, drawn for each step
GROWN = 0.33                 # share of the training after which all lengths are drawn
STEP_TOKENS = 1024           # of sources
WARM_UP = 100
SAVE_EVERY = 200
N_PROMPTS = 64
PROMPT_TOKENS = (16, 32)

SENTENCE_END = re.compile(r"""(?<=[.!?])(["')]*) +(?=["'(]*[A-Z])""")
TITLE_END = re.compile(r"\b(Mr|Mrs|Dr|St|Messrs|Esq|Capt|Col|No|[A-Z])\.$")


def sentences_of(path):
    """The sentences of paragraphs of prose, in order; white space is one blank."""
    for paragraph in pathlib.Path(path).read_text(encoding="utf-8").split("\n\n"):
        paragraph = " ".join(paragraph.split())
        if not re.search(r"[.!?][\"')]*$", paragraph) or not paragraph.isascii():
            continue
        start = 0
        for gap in SENTENCE_END.finditer(paragraph):
            if not TITLE_END.search(paragraph[start:gap.start()]):
                yield paragraph[start:gap.end()].strip()
                start = gap.end()
        yield paragraph[start:]


def source_of(text):
    text = text.lower().replace("'", "")
    return " ".join(re.sub(r"[^a-z0-9]+", " ", text).split())


def build_tokenizer(args):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    texts = list(sentences_of(args.text))[::4]
    tokenizer.train_from_iterator(
        texts + [source_of(text) for text in texts],
        trainers.UnigramTrainer(vocab_size=VOCAB_SIZE, special_tokens=[PAD, END, UNKNOWN], unk_token=UNKNOWN))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, END_ID)])
    args.work.mkdir(parents=True, exist_ok=True)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END,
                            unk_token=UNKNOWN).save_pretrained(args.work / "tokenizer")
    for name in ("text", "heldout"):
        write_ids(args, tokenizer, name)


def write_ids(args, tokenizer, name):
    """Ids of all sentences, sources and texts, and where each ends."""
    texts = [text for text in sentences_of(getattr(args, name)) if source_of(text)]
    arrays = {}
    for side, lines in zip(SIDES, ([source_of(text) for text in texts], texts)):
        rows = [encoding.ids for encoding in tokenizer.encode_batch(lines, add_special_tokens=False)]
        arrays[side] = np.concatenate([np.array(row, dtype=np.uint16) for row in rows])
        arrays[f"{side}_ends"] = np.cumsum([0] + [len(row) for row in rows])
    np.savez(args.work / f"{name}.npz", **arrays)
    print(name, len(texts), "sentences,", {side: len(arrays[side]) for side in SIDES}, "tokens", flush=True)


class Pairs:
    """The sentences of a file as ids, of which consecutive ones are joined: words are tokenized one by one."""

    def __init__(self, args, name):
        with np.load(args.work / f"{name}.npz") as file:
            self.ids = {side: file[side].astype(np.int64) for side in SIDES}
            self.ends = {side: file[f"{side}_ends"] for side in SIDES}

    def batch(self, starts, length, rows):
        """As many sentences from each of the starts as fit into length, where one does: ids of sources and of texts."""
        ends = np.searchsorted(self.ends["source"], self.ends["source"][starts] + length - 1, "right") - 1
        spans = [(start, end) for start, end in zip(starts, ends) if end > start][:rows]
        return [self.padded(side, spans) for side in SIDES]

    def padded(self, side, spans):
        ids, ends = self.ids[side], self.ends[side]
        rows = torch.full((len(spans), max(ends[b] - ends[a] for a, b in spans) + 1), PAD_ID)
        for row, (a, b) in zip(rows, spans):
            n = ends[b] - ends[a]
            row[:n] = torch.from_numpy(ids[ends[a]:ends[b]])
            row[n] = END_ID
        return rows

    def __len__(self):
        return len(self.ends["source"]) - 1


def new_model(kind):
    """T5 with heads that begin by looking at neighbours, from which a decoder soon finds its place in the source, and with
    logits that can soon be far apart: both save most of the steps."""
    config = T5Config(vocab_size=VOCAB_SIZE, feed_forward_proj="relu", tie_word_embeddings=True, dropout_rate=0.0,
                      pad_token_id=PAD_ID, eos_token_id=END_ID, decoder_start_token_id=PAD_ID, **SHAPES[kind])
    model = T5ForConditionalGeneration(config)
    model.set_attn_implementation("eager")  # the faster one to train on a CPU
    with torch.no_grad():
        model.shared.weight.normal_(0, 0.3)
        model.decoder.final_layer_norm.weight.fill_(4.0)
        after = config.relative_attention_num_buckets // 2
        for stack, buckets in ((model.encoder, (1, 2, after + 1, 0)), (model.decoder, (0, 1, 2, 3))):
            bias = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight
            bias.zero_()
            for head, bucket in enumerate(buckets):
                bias[bucket, head] = 4.0
    return model


def logits_of(model, source, text):
    read = F.pad(text[:, :-1], (1, 0), value=PAD_ID)
    return model(input_ids=source, attention_mask=(source != PAD_ID).long(), decoder_input_ids=read,
                 use_cache=False).logits


@torch.no_grad()
def measure(models, pairs, length=32, rows=64):
    """Held-out losses in nats a token, and by the same tokens how often and how far the two agree."""
    starts = np.linspace(0, len(pairs) - 64, rows).astype(int)
    source, text = pairs.batch(starts, length, rows)
    real = text != PAD_ID
    shares, figures = {}, {}
    for kind, model in models.items():
        logits = logits_of(model, source, text)[real].float()
        figures[f"{kind}_loss"] = F.cross_entropy(logits, text[real]).item()
        figures[f"{kind}_right"] = (logits.argmax(-1) == text[real]).float().mean().item()
        shares[kind] = logits.softmax(-1)
    p, q = shares["target"], shares["draft"]
    figures["greedy_agreement"] = (p.argmax(-1) == q.argmax(-1)).float().mean().item()
    figures["sum_min_p_q"] = torch.minimum(p, q).sum(-1).mean().item()
    return {name: round(figure, 4) for name, figure in figures.items()}


def train(args):
    torch.manual_seed(1)
    random = np.random.default_rng(2)
    pairs, heldout = Pairs(args, "text"), Pairs(args, "heldout")
    models = {kind: new_model(kind) for kind in SHAPES}
    for kind, model in models.items():
        print(kind, sum(p.numel() for p in model.parameters()), "parameters", flush=True)
    groups = []
    for kind, model in models.items():
        queries = [weight for name, weight in model.named_parameters() if name.endswith("Attention.q.weight")]
        others = [weight for name, weight in model.named_parameters() if not name.endswith("Attention.q.weight")]
        groups += [{"params": others, "rate": LEARNING_RATE[kind]},
                   {"params": queries, "rate": QUERIES_RATE * LEARNING_RATE[kind]}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01)
    checkpoint = args.work / "pair.pt"
    step, elapsed = 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=False)
        for kind, model in models.items():
            model.load_state_dict(state[kind])
        optimizer.load_state_dict(state["optimizer"])
        random.bit_generator.state = state["random"]
        step, elapsed = state["step"], state["elapsed"]
        print("resumed at step", step, flush=True)

    def save():
        partial = checkpoint.with_suffix(".partial")
        torch.save(dict(**{kind: model.state_dict() for kind, model in models.items()}, optimizer=optimizer.state_dict(),
                        random=random.bit_generator.state, step=step, elapsed=elapsed), partial)
        partial.replace(checkpoint)

    tokens, began = 0, time.time()
    last = began
    while (done := elapsed / (60 * args.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = group["rate"] * min(1.0, (step + 1) / WARM_UP) * max(0.01, 1.0 - done)
        lengths = LENGTHS[:1 + int(min(done / GROWN, 1.0) * (len(LENGTHS) - 1))]
        length = int(random.choice(lengths))
        rows = STEP_TOKENS // length
        source, text = pairs.batch(random.integers(len(pairs) - 64, size=4 * rows), length, rows)
        real = text != PAD_ID
        with torch.autocast("cpu", dtype=torch.bfloat16):
            written = {kind: logits_of(model, source, text)[real] for kind, model in models.items()}
        wanted = written["target"].detach().float().softmax(-1).mul_(DISTILLED)
        wanted[torch.arange(len(wanted)), text[real]] += 1.0 - DISTILLED
        losses = {"target": F.cross_entropy(written["target"].float(), text[real]),
                  "draft": F.cross_entropy(written["draft"].float(), wanted)}
        optimizer.zero_grad(set_to_none=True)
        sum(losses.values()).backward()
        for model in models.values():
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        tokens += int(real.sum())
        now = time.time()
        elapsed, last = elapsed + now - last, now
        if step % 20 == 0:
            print(f"step {step} {elapsed / 60:.1f} min, sources of {length}, "
                  f"losses {losses['target'].item():.3f} {losses['draft'].item():.3f}, "
                  f"{tokens / (now - began):.0f} tokens/s", flush=True)
        if step % SAVE_EVERY == 0:
            save()
            print(f"step {step} held out: {measure(models, heldout)}", flush=True)
    save()
    print(f"step {step} held out: {measure(models, heldout)}", flush=True)


def write_prompts(args, tokenizer):
    """Sources from evenly spaced places of the held-out books, each of whole sentences."""
    texts = list(sentences_of(args.heldout))
    with open(args.out / "prompts.jsonl", "w", encoding="utf-8") as file:
        for number, start in enumerate(np.linspace(0, len(texts) - 64, N_PROMPTS).astype(int)):
            source = ""
            for text in texts[start:]:
                longer = f"{source} {source_of(text)}".strip()
                n = len(tokenizer(longer).input_ids)
                if n > PROMPT_TOKENS[1] and source:
                    break
                source = longer
                if n >= PROMPT_TOKENS[0]:
                    break
            file.write(json.dumps({"id": number, "prompt": source}) + "\n")


def export(args):
    """Writes the models in float16 with their tokenizer, and says what they are worth."""
    state = torch.load(args.work / "pair.pt", weights_only=False)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.work / "tokenizer")
    models = {}
    for kind in SHAPES:
        model = new_model(kind)
        model.load_state_dict(state[kind])
        model.generation_config.use_cache = False  # transformers 5.23 makes a cache of as many layers as the encoder has
        model.half().save_pretrained(args.out / kind)
        tokenizer.save_pretrained(args.out / kind)
        models[kind] = T5ForConditionalGeneration.from_pretrained(args.out / kind, dtype=torch.float32).eval()
    write_prompts(args, tokenizer)
    figures = {f"sources of {length}": measure(models, Pairs(args, "heldout"), length, 256) for length in LENGTHS}
    print(json.dumps({"step": state["step"], **figures}, indent=2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    parser.add_argument("--heldout", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("what", choices=["tokenizer", "train", "export"])
    parser.add_argument("--minutes", type=float, default=75)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("model/demo/t5"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    {"tokenizer": build_tokenizer, "train": train, "export": export}[args.what](args)


if __name__ == "__main__":
    main()
