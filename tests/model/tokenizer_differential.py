#!/usr/bin/env python3
"""Compares entrodraft's tokenizer with PyPI `tokenizers`: ids and decoded text must be equal on every string.

Builds tokenizers in the styles of the families that entrodraft knows and one for each component, flag and behaviour,
trains them small on --train, and feeds both sides random Unicode and the given files. Run by hand:

    python tests/model/tokenizer_differential.py --train books.txt --texts books.txt prompts.jsonl

Without --driver it compiles tests/model/tokenizer_driver.cpp and model/*.cpp of the tokenizer with g++. --charsmap FILE
takes a real precompiled_charsmap (raw bytes) in place of the small one that is built here; --vocabulary-files also
compares directories of vocab.json and merges.txt with transformers. --write-fixtures writes the small tokenizers and
expected ids that the unit test reads instead.
"""
import argparse
import base64
import copy
import json
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ("utf8 byte_level regex normal_form precompiled_map normalizer word_splitter pre_tokenizer added_tokens bpe "
           "unigram post_processor token_decoder sentencepiece_file sentencepiece_tokenizer rank_files special_tokens vocabulary_files tokenizer json_file").split()
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"\p{N}{1,3}" + REST
QWEN2 = CONTRACTIONS + r"\p{N}" + REST
SEED_TEXT = ["café naïve Straße Ωμέγα привет мир こんにちは世界 你好 שלום سلام नमस्ते 한국어 🙂👨‍👩‍👧‍👦 e\u0301 n\u0303"] * 4
PHRASES = ["it's", "IT'S", "we'll", "WE'LL", "'ſ", "I'd've", "don't", "\r\n", "\n\n", "\t", "    ", " ", "  \n  ", "1234567",
           "½²³", "٣٤٥", "e\u0301\u0316", "\u1100\u1161\u11a8", "가", "👩‍🚀", "🇩🇪", "\u200d", "\ufeff", "\u00a0", "\u3000", "\u0085",
           "\u2028", "\x00", "\x1c", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|end|>", "<mask>",
           "<word>", " <left>", "<right> ", "<both>", "word<word>", "_<word>", "ḍ̇", "ﬁ", "\u212b", "\u0340", "Å",
           "<s>", "</s>", "<unk>", "<pad>", "<extra_id_0>", "<0x41>", "<0xZZ>", "▁", "▁▁", "▁the", "a▁b", "ｱﾊﾟｰﾄ", "①Ⅳ㌔", "İIıſK", "ΑΣ",
           "aaaaaaaaaaaaa", "<tool>", "<bos>", "ªe\u0301", "a\u200bb", "\ufffd", "-", "--", "don't—stop", "$5.00+10%", "e\u0327\u0301",
           "\u1e9b\u0323", "def f(x):\n        return x\n", "\u180e", "\u0345", "ĠĊ", "ß", "\U0001d15e", "\u0958"]


def added(content, **flags):
    return dict({"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                 "special": False}, **flags)


def trained(texts, vocab_size, pre_tokenizer, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())


def with_added(base, tokens):
    result = copy.deepcopy(base)
    vocabulary = result["model"]["vocab"]
    if isinstance(vocabulary, list):
        vocabulary = {piece: i for i, (piece, _) in enumerate(vocabulary)}
    new = [token["content"] for token in tokens if token["content"] not in vocabulary]
    ids = vocabulary | {content: len(vocabulary) + i for i, content in enumerate(new)}
    result["added_tokens"] = [dict(id=ids[token["content"]], **token) for token in tokens]
    return result


def template(name, token_id):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [token_id], "tokens": [name]}}}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def family_styles(texts, vocab_size):
    """The four families, each as its real files are."""
    gpt2 = trained(texts, vocab_size, pre_tokenizers.ByteLevel(add_prefix_space=False))
    gpt2["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    styles = {"gpt2": with_added(gpt2, [added("<|endoftext|>", special=True)])}
    # older files write merges as strings and leave out what has a default
    styles["gpt2"]["model"]["merges"] = [" ".join(merge) for merge in styles["gpt2"]["model"]["merges"]]
    del styles["gpt2"]["pre_tokenizer"]["use_regex"]

    def sequence(regex):
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    llama3 = trained(texts, vocab_size, sequence(LLAMA3))
    llama3["model"]["ignore_merges"] = True
    # a whole word in the vocabulary that no merge makes
    llama3["model"]["vocab"]["ĠRumpelstiltskin"] = len(llama3["model"]["vocab"])
    first = len(llama3["model"]["vocab"])
    llama3["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        template("<|begin_of_text|>", first)]}
    styles["llama3"] = with_added(llama3, [added("<|begin_of_text|>", special=True), added("<|end|>", special=True)])

    qwen2 = trained(texts, vocab_size, sequence(QWEN2), normalizers.NFC())
    styles["qwen2"] = with_added(qwen2, [added("<|endoftext|>", special=True), added("<|im_start|>", special=True),
                                         added("<|im_end|>", special=True), added("<tool>")])

    neox = trained(texts, vocab_size, pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC())
    styles["neox"] = with_added(neox, [added("<|endoftext|>", special=True)] +
                                [added(" " * n, normalized=True) for n in range(24, 1, -1)])
    return styles


def char_bpe(texts, vocab_size, specials, with_bytes=True, prefix=None, suffix=None):
    """A BPE over characters with spaces as ▁, as SentencePiece's."""
    affixes = {name: value for name, value in (("continuing_subword_prefix", prefix), ("end_of_word_suffix", suffix)) if value}
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=with_bytes, **affixes))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)] if with_bytes else []
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, special_tokens=specials + byte_tokens,
                                  limit_alphabet=90, **affixes)
    tokenizer.train_from_iterator(texts, trainer)
    result = json.loads(tokenizer.to_str())
    result["pre_tokenizer"], result["added_tokens"] = None, []
    return result


def unigram(texts, vocab_size, specials):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=vocab_size, show_progress=False, unk_token="<unk>", special_tokens=specials)
    tokenizer.train_from_iterator(texts, trainer)
    result = json.loads(tokenizer.to_str())
    result["pre_tokenizer"], result["added_tokens"] = None, []
    return result


def charsmap(rules):
    """A precompiled_charsmap of a few rules: a double-array trie, each node placed where its children fit."""
    texts, offsets = b"", {}
    for value in sorted(set(rules.values())):
        offsets[value] = len(texts)
        texts += value.encode() + b"\0"
    units, taken = {}, {0}

    def place(node, keys, depth):
        children = {}
        for key in keys:
            if len(key) > depth:
                children.setdefault(key[depth], []).append(key)
        leaf = [key for key in keys if len(key) == depth]
        labels = sorted(children) + ([0] if leaf else [])
        base = 1
        while any(base ^ label in taken for label in labels):
            base += 1
        taken.update(base ^ label for label in labels)
        offset = node ^ base
        assert offset < 1 << 21
        units[node] = units.get(node, 0) | offset << 10 | (1 << 8 if leaf else 0)
        if leaf:
            units[base] = 1 << 31 | offsets[rules[leaf[0].decode()]]
        for label, part in children.items():
            units[base ^ label] = label
            place(base ^ label, part, depth + 1)

    place(0, [key.encode() for key in rules], 0)
    array = b"".join(units.get(i, 0).to_bytes(4, "little") for i in range(max(units) + 256))
    return len(array).to_bytes(4, "little") + array + texts


SMALL_CHARSMAP = charsmap({"ﬁ": "fi", "ª": "a", "①": "1", "㌔": "キロ", "\t": " ", "\r": " ", "\n": " ", "\u00a0": " ",
                           "\u3000": " ", "\u200b": "", "e\u0301": "é", "Å": "Å", "ｱ": "ア", "\u0e33": "\u0e4d\u0e32",
                           "\u0958": "\u0915\u093c", "x": "y", "\u0345": "ι"})


def sequence(kind, *parts):
    name = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders", "post": "processors"}[kind]
    return {"type": "Sequence", name: list(parts)}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def metaspace(scheme="always", split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


SPACES = replace({"String": " "}, "▁")
LLAMA_DECODER = sequence("decoder", replace({"String": "▁"}, " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                         {"type": "Strip", "content": " ", "start": 1, "stop": 0})
STRIP_LEFT = {"type": "Strip", "strip_left": True, "strip_right": False}
STRIP_RIGHT = {"type": "Strip", "strip_left": False, "strip_right": True}


def sentencepiece_styles(texts, vocab_size, precompiled):
    """Llama 2, Gemma and T5 in their old and new forms."""
    named = [added(name, special=True) for name in ("<unk>", "<s>", "</s>")]
    llama = char_bpe(texts, vocab_size, ["<unk>", "<s>", "</s>"])
    llama["post_processor"], llama["decoder"] = template("<s>", 1), LLAMA_DECODER
    styles = {}

    def style(name, base, tokens, **changes):
        styles[name] = with_added(base, tokens)
        styles[name].update(copy.deepcopy(changes))

    style("llama2-legacy", llama, named, normalizer=sequence("normalizer", {"type": "Prepend", "prepend": "▁"}, SPACES))
    style("llama2-early", llama, [dict(token, normalized=True) for token in named],
          normalizer=sequence("normalizer", {"type": "Prepend", "prepend": "▁"}, SPACES))
    style("llama2", llama, named, pre_tokenizer=metaspace("first", False))
    styles["llama2-legacy"]["model"]["merges"] = [" ".join(merge) for merge in llama["model"]["merges"]]

    gemma = char_bpe(texts, vocab_size, ["<pad>", "<eos>", "<bos>", "<unk>"])
    gemma_tokens = ([added(name, special=True) for name in ("<pad>", "<eos>", "<bos>", "<unk>")] +
                    [added("\n" * n) for n in range(2, 9)] + [added("▁" * n) for n in range(2, 9)] + [added("<tool>")])
    style("gemma", gemma, gemma_tokens, normalizer=SPACES,
          pre_tokenizer=split({"String": " "}, "MergedWithPrevious"), post_processor=template("<bos>", 2),
          decoder=sequence("decoder", replace({"String": "▁"}, " "), {"type": "ByteFallback"}, {"type": "Fuse"}))

    t5 = unigram(texts, vocab_size, ["<pad>", "</s>", "<unk>"])
    t5_tokens = ([added(name, special=True) for name in ("<pad>", "</s>", "<unk>")] +
                 [added(f"<extra_id_{i}>", special=True, lstrip=i % 3 == 0, rstrip=i % 3 == 1) for i in range(9, -1, -1)])
    ending = {"type": "TemplateProcessing",
              "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
              "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
              "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}
    mapped = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(precompiled).decode()}
    old = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True, "str_rep": "▁"}
    style("t5-old", t5, t5_tokens, normalizer=mapped, post_processor=ending, decoder=old,
          pre_tokenizer=sequence("pre_tokenizer", {"type": "WhitespaceSplit"}, old))
    del styles["t5-old"]["model"]["byte_fallback"]
    style("t5-new", t5, t5_tokens, post_processor=ending, decoder=metaspace(), pre_tokenizer=metaspace(),
          normalizer=sequence("normalizer", mapped, STRIP_RIGHT, replace({"Regex": " {2,}"}, "▁")))
    return styles


def byte_level_styles(texts, gpt2):
    """OPT, Falcon and Phi on GPT-2's vocabulary."""
    base = copy.deepcopy(gpt2)
    base["added_tokens"] = []
    opt = with_added(base, [added(name, special=True, normalized=True) for name in ("<s>", "<pad>", "</s>", "<unk>")])
    opt["post_processor"] = template("</s>", opt["added_tokens"][2]["id"])
    gpt2_words = dict(BYTES, use_regex=True)
    punctuation = {"type": "Punctuation", "behavior": "Contiguous"}
    falcon, falcon3, phi = (with_added(base, [added("<|endoftext|>", special=True)] + tokens) for tokens in (
        [added(">>TITLE<<", special=True)], [],
        [added(" " * n, normalized=True) for n in range(31, 1, -1)] + [added("\t" * n, normalized=True) for n in range(9, 1, -1)]))
    falcon["pre_tokenizer"] = sequence("pre_tokenizer", punctuation, gpt2_words, {"type": "Digits", "individual_digits": False},
                                       split({"Regex": "[0-9][0-9][0-9]"}))
    falcon["post_processor"] = None
    falcon3["pre_tokenizer"] = sequence("pre_tokenizer", punctuation, gpt2_words, {"type": "Digits", "individual_digits": True})
    return {"opt": opt, "falcon": falcon, "falcon3": falcon3, "phi": phi}


def sentencepiece_variants(texts, styles):
    """Every option of the models and decoders over characters."""
    variants = {}

    def variant(name, base, model=None, **changes):
        result = copy.deepcopy(base)
        result["model"].update(model or {})
        result.update(copy.deepcopy(changes))
        variants[name] = result

    legacy, llama, t5 = styles["llama2-legacy"], styles["llama2"], styles["t5-new"]
    few_bytes = {token: i for token, i in legacy["model"]["vocab"].items()}
    few_bytes["hole"] = few_bytes.pop("<0xE4>")
    variant("bpe-unk", legacy, {"byte_fallback": False})
    variant("bpe-unk-each", legacy, {"byte_fallback": False, "fuse_unk": False})
    variant("bpe-no-unk", legacy, {"byte_fallback": False, "unk_token": None})
    variant("bpe-some-bytes", legacy, {"vocab": few_bytes})
    variant("bpe-some-bytes-each", legacy, {"vocab": few_bytes, "fuse_unk": False})
    variant("bpe-ignore-merges", llama, {"ignore_merges": True}, pre_tokenizer=metaspace())
    variant("bpe-ignore-merges-whole", llama, {"ignore_merges": True})
    variant("bpe-no-decoder", legacy, decoder=None)
    for name, prefix, suffix in (("prefix", "##", None), ("suffix", None, "</w>"), ("both", "@@", "</w>")):
        affixed = char_bpe(texts[:300], 900, ["<unk>"], name == "suffix", prefix, suffix)
        variant("bpe-" + name, affixed, pre_tokenizer={"type": "Whitespace"}, decoder=None)
    for scheme in ("first", "always", "never"):
        for cut in (False, True):
            name = f"metaspace-{scheme}{'-split' if cut else ''}"
            variant(name, llama, pre_tokenizer=metaspace(scheme, cut), decoder=metaspace(scheme, cut))
            variant(name + "-strip", llama, normalizer=STRIP_LEFT, pre_tokenizer=metaspace(scheme, cut))
    never_old = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": False, "prepend_scheme": "never"}
    variant("metaspace-never-old", llama, decoder=never_old, pre_tokenizer=never_old)
    variant("metaspace-other", llama, pre_tokenizer=dict(metaspace("first"), replacement="_"), decoder=dict(metaspace(), replacement="_"))
    first = metaspace("first")
    for name, step in (("accents", {"type": "StripAccents"}), ("nmt", {"type": "Nmt"}), ("squeeze", replace({"Regex": " {2,}"}, "▁")),
                       ("drop", replace({"String": "a"}, "")), ("one", replace({"String": "a"}, "bb")), ("mapped", t5["normalizer"]["normalizers"][0]),
                       ("nfkd", {"type": "NFKD"}), ("prepend", {"type": "Prepend", "prepend": "xy"})):
        variant("first-after-" + name, llama, normalizer=step, pre_tokenizer=first)
    variant("first-after-split", llama, pre_tokenizer=sequence("pre_tokenizer", {"type": "WhitespaceSplit"}, first))
    variant("first-after-removed", llama, pre_tokenizer=sequence("pre_tokenizer", split({"String": "a"}, "Removed"), first))
    variant("unigram-bytes", t5, {"byte_fallback": True})
    with_bytes = t5["model"]["vocab"] + [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    variant("unigram-all-bytes", t5, {"byte_fallback": True, "vocab": with_bytes}, added_tokens=[],
            decoder=sequence("decoder", replace({"String": "▁"}, " "), {"type": "ByteFallback"}, {"type": "Fuse"}))
    variant("unigram-whole", t5, pre_tokenizer=metaspace("first", False))
    odd = [[piece, 3.0 - i % 7 if i % 5 else score] for i, (piece, score) in enumerate(t5["model"]["vocab"])]
    variant("unigram-positive", t5, {"vocab": odd})
    ties = [[piece, -float(len(piece))] for piece, score in t5["model"]["vocab"]]
    variant("unigram-ties", t5, {"vocab": ties + [["a" * n, -0.1 * n] for n in range(2, 9) if "a" * n not in dict(t5["model"]["vocab"])]},
            added_tokens=[])
    variant("unigram-no-unk", t5, {"vocab": ties + [[chr(c), -9.25] for c in range(0x250) if chr(c) not in dict(ties)], "unk_id": None},
            added_tokens=[], normalizer=sequence("normalizer", replace({"Regex": "[^\\x00-\\u024f]"}, "?")))
    back, fuse = replace({"String": "▁"}, " "), {"type": "Fuse"}
    for name, parts in (("strip-each", [back, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]),
                        ("strip-ends", [back, {"type": "ByteFallback"}, fuse, {"type": "Strip", "content": " ", "start": 2, "stop": 0}]),
                        ("replace-after-fuse", [{"type": "ByteFallback"}, fuse, replace({"Regex": "▁+"}, " ")]),
                        ("byte-level-last", [back, {"type": "ByteFallback"}, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}]),
                        ("metaspace-fused", [{"type": "ByteFallback"}, fuse, metaspace()]),
                        ("bytes-then-metaspace", [{"type": "ByteFallback"}, metaspace()]),
                        ("bytes-only", [{"type": "ByteFallback"}])):
        variant("decoder-" + name, legacy, decoder=sequence("decoder", *parts))
    return variants


def odd_styles(base, precompiled):
    """Every flag, behaviour, normalizer and pre-tokenizer, on one byte-level vocabulary."""
    base = copy.deepcopy(base)
    base["added_tokens"] = []
    flagged = [added("<mask>", lstrip=True, special=True), added("<word>", single_word=True), added("<left>", lstrip=True),
               added("<right>", rstrip=True), added("<both>", lstrip=True, rstrip=True), added("e\u0301", normalized=True),
               added("the", single_word=True, normalized=True), added("他", normalized=False), added("  ", normalized=True),
               added("<mask><mask>"), added("Å", normalized=True), added("<tool>", normalized=True, special=True)]
    styles = {}

    def style(name, pre_tokenizer, tokens=(), normalizer=None):
        result = with_added(base, list(tokens))
        result["pre_tokenizer"] = pre_tokenizer
        result["normalizer"] = normalizer
        styles[name] = result

    gpt2 = dict(BYTES, use_regex=True)
    style("flags", gpt2, flagged)
    style("flags-nfc", gpt2, flagged, {"type": "NFC"})
    style("flags-lower", gpt2, flagged, sequence("normalizer", {"type": "Lowercase"}, {"type": "Prepend", "prepend": "_"}))
    style("prefix-space", dict(gpt2, add_prefix_space=True), flagged)
    style("no-regex", BYTES)
    style("digits", sequence("pre_tokenizer", {"type": "Digits", "individual_digits": True}, gpt2))
    style("prefix-each", sequence("pre_tokenizer", split({"String": "e"}), dict(gpt2, add_prefix_space=True)))
    style("split-empty-matches", sequence("pre_tokenizer", split({"Regex": "x*"}), BYTES))
    mapped = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(precompiled).decode()}
    for name, step in [(form.lower(), {"type": form}) for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")] + [
            ("strip", {"type": "Strip", "strip_left": True, "strip_right": True}), ("strip-left", STRIP_LEFT), ("strip-right", STRIP_RIGHT),
            ("prepend", {"type": "Prepend", "prepend": "ab "}), ("replace-string", replace({"String": "e"}, "EE")),
            ("split-replace-regex", replace({"Regex": r"\s+|[aeiou]\p{L}"}, "<>")),
            ("replace-nothing", replace({"String": "."}, "")), ("precompiled", mapped),
            ("all", sequence("normalizer", {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, sequence("normalizer", {"type": "Nmt"}, mapped, STRIP_RIGHT), {"type": "NFKC"}))]:
        style("normalizer-" + name, gpt2, flagged if name == "nfkc" else [], step)
    style("byte-level-normalizer", None, [], {"type": "ByteLevel"})
    style("byte-level-normalizer-nfc", split({"Regex": "Ġ?[a-zA-Z]+"}, "Isolated"), [], sequence("normalizer", {"type": "NFC"}, {"type": "ByteLevel"}))
    for name, step in (("whitespace", {"type": "Whitespace"}), ("whitespace-split", {"type": "WhitespaceSplit"}), ("punctuation", {"type": "Punctuation"}),
                       ("delimiter", {"type": "CharDelimiterSplit", "delimiter": "e"}), ("delimiter-wide", {"type": "CharDelimiterSplit", "delimiter": "é"}),
                       ("digits-runs", {"type": "Digits", "individual_digits": False})):
        style("pre-" + name, sequence("pre_tokenizer", step, BYTES))
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        style(f"punctuation-{behavior}", sequence("pre_tokenizer", {"type": "Punctuation", "behavior": behavior}, BYTES))
        for invert in (False, True):
            name = f"{behavior}{'-inverted' if invert else ''}"
            for kind, pattern in (("string", {"String": " "}), ("regex", {"Regex": r"[\s\p{P}]"}), ("llama3", {"Regex": LLAMA3})):
                style(f"split-{kind}-{name}", sequence("pre_tokenizer", split(pattern, behavior, invert), BYTES))
    roberta = with_added(base, [added("<s>", special=True), added("</s>", special=True)])
    roberta["post_processor"] = {"type": "RobertaProcessing", "sep": ["</s>", roberta["added_tokens"][1]["id"]],
                                 "cls": ["<s>", roberta["added_tokens"][0]["id"]], "trim_offsets": True, "add_prefix_space": False}
    styles["roberta"] = roberta
    styles["bert"] = copy.deepcopy(roberta)
    styles["bert"]["post_processor"] = {"type": "BertProcessing", "sep": roberta["post_processor"]["sep"], "cls": roberta["post_processor"]["cls"]}
    return styles


def random_character(rng):
    kind = rng.randrange(9)
    while True:
        if kind == 0:
            point = rng.randrange(0x80)
        elif kind == 1:
            point = rng.randrange(0x80, 0x800)
        elif kind == 2:
            point = rng.randrange(0x300, 0x370)
        elif kind == 3:
            point = rng.choice((rng.randrange(0x1F300, 0x1FAFF), 0x200D, 0xFE0F, rng.randrange(0x1F3FB, 0x1F400)))
        elif kind == 4:
            point = rng.randrange(0x800, 0x10000)
        elif kind == 5:
            point = rng.randrange(0x10000, 0x20000)
        elif kind == 6:
            point = rng.randrange(0x110000)
        elif kind == 7:
            point = rng.choice((0x20, 0x20, 0x0A, 0x0D, 0x09, 0x27, 0xA0, 0x2009))
        else:
            point = rng.choice((rng.randrange(0x1100, 0x1200), rng.randrange(0xAC00, 0xD7A4), rng.randrange(0x900, 0xE00)))
        if not 0xD800 <= point < 0xE000:
            return chr(point)


def random_string(rng):
    parts = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.randrange(4)
        if kind == 0:
            parts.append(rng.choice(PHRASES))
        elif kind == 1:
            parts.append("".join(rng.choice("abcdefstrve'0123 ,.<>") for _ in range(rng.randrange(8))))
        else:
            parts.append("".join(random_character(rng) for _ in range(rng.randrange(8))))
    return "".join(parts)


def adversarial_strings(rng):
    """Runs of one or two units, with something at their ends or not."""
    units = [" ", "a", "e", "▁", "\n", "é", "\u0301", "<s>", "<", "'", "7", ".", "ab", "\u200d", "🙂", "\u0e33", "中", "\t ", "\r\n", "aab", "the "]
    return [rng.choice(["", "x", " "]) + unit * rng.choice([2, 3, 17, 64, 65, 200, 1500]) + rng.choice(["", "x", " ", other])
            for unit in units for other in ("\u0301", "é")]


def strings_of(path):
    text = path.read_bytes().decode("utf-8")
    if path.suffix == ".jsonl":
        def leaves(value):
            if isinstance(value, str):
                yield value
            elif isinstance(value, (list, dict)):
                for part in value.values() if isinstance(value, dict) else value:
                    yield from leaves(part)
        return [leaf for line in text.splitlines() if line.strip() for leaf in leaves(json.loads(line))]
    return [text] + text.split("\n\n")


def drive(driver, directory, requests, *options):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([driver, directory, *options], input=lines, capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        raise SystemExit(f"driver failed on {directory}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def without_panics(reference, strings):
    """The strings that the reference can encode: its offsets, which nobody here wants, make it panic on some."""
    try:
        reference.encode_batch(strings)
        return strings
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        if len(strings) == 1:
            return []
        half = len(strings) // 2
        return without_panics(reference, strings[:half]) + without_panics(reference, strings[half:])


def compare(name, content, driver, strings, rng, n_id_lists):
    """Returns how many requests differ; prints the first few."""
    reference = Tokenizer.from_str(json.dumps(content))
    known = sorted(reference.get_vocab().values())
    given, strings = len(strings), without_panics(reference, strings)
    skipped = f", {given - len(strings)} left out because the reference panics" if given != len(strings) else ""
    id_lists = [[rng.choice(known) for _ in range(rng.randrange(1, 30))] for _ in range(n_id_lists)]
    differences = 0

    def check(request, ours, theirs):
        nonlocal differences
        if ours != theirs:
            differences += 1
            if differences <= 3:
                print(f"  {name}: {request!r:.300}\n    ours   {ours!r:.300}\n    theirs {theirs!r:.300}")

    with tempfile.TemporaryDirectory() as directory:
        (pathlib.Path(directory) / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
        for special in (False, True):
            replies = drive(driver, directory, strings, *(["special"] if special else []))
            for text, reply, encoding in zip(strings, replies, reference.encode_batch(strings, add_special_tokens=special),
                                             strict=True):
                decoded = reference.decode(encoding.ids, skip_special_tokens=False)
                check(text, reply, {"ids": encoding.ids, "text": decoded, "streamed": decoded})
        for ids, reply in zip(id_lists, drive(driver, directory, id_lists), strict=True):
            text, plain = (reference.decode(ids, skip_special_tokens=skip) for skip in (False, True))
            check(ids, reply, {"text": text, "plain": plain, "streamed": text, "plain_streamed": plain})
    print(f"{name}: {2 * len(strings)} strings, {len(id_lists)} id lists, {differences} differences{skipped}", flush=True)
    return differences


def compare_vocabulary_files(driver, gpt2, strings):
    """Directories of vocab.json and merges.txt against transformers' GPT2Tokenizer."""
    from transformers import AutoTokenizer
    vocab = {token: i for token, i in gpt2["model"]["vocab"].items() if token != "<|endoftext|>"}
    opt_vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3} | {token: i + 4 for token, i in vocab.items()}
    gpt2_vocab = vocab | {"<|endoftext|>": max(vocab.values()) + 1}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    end, pad = dict(flags, content="</s>"), dict(flags, content="<pad>")
    typed = {"__type": "AddedToken"}
    opt_map = {"bos_token": end, "eos_token": end, "unk_token": end, "pad_token": pad}
    directories = {
        "gpt2-bare": (gpt2_vocab, {"config.json": {"model_type": "gpt2"}}),
        "gpt2-prefix": (gpt2_vocab, {"config.json": {"model_type": "gpt2"}, "tokenizer_config.json": {"add_prefix_space": True}}),
        "gpt2-added": (gpt2_vocab, {"config.json": {"model_type": "gpt2"}, "added_tokens.json": {"<tool>": max(gpt2_vocab.values()) + 1},
                                    "special_tokens_map.json": {"bos_token": "<|endoftext|>", "additional_special_tokens": ["<word>"]}}),
        "gpt2-bos": (gpt2_vocab, {"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "pad_token": None}}),
        "opt-map": (opt_vocab, {"config.json": {"model_type": "opt"}, "special_tokens_map.json": opt_map,
                                "tokenizer_config.json": {"add_bos_token": True, "tokenizer_class": "GPT2Tokenizer"}}),
        "opt-config": (opt_vocab, {"config.json": {"model_type": "opt"}, "tokenizer_config.json": dict(
            {name: dict(token, **typed) for name, token in opt_map.items()}, add_bos_token=True, tokenizer_class="GPT2Tokenizer")}),
        "opt-strings": (opt_vocab, {"config.json": {"model_type": "opt"}, "special_tokens_map.json": {
            name: token["content"] for name, token in opt_map.items()}}),
        "gpt2-decoder": (gpt2_vocab, {"config.json": {"model_type": "gpt2"}, "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer",
            "bos_token": "<|endoftext|>", "added_tokens_decoder": {str(gpt2_vocab["<|endoftext|>"]): dict(flags, content="<|endoftext|>", special=True),
            str(max(gpt2_vocab.values()) + 1): dict(flags, content="<mask>", lstrip=True, special=False)}}}),
    }
    differences = 0
    for name, (vocabulary, files) in directories.items():
        with tempfile.TemporaryDirectory() as directory:
            where = pathlib.Path(directory)
            (where / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
            merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in gpt2["model"]["merges"]]
            (where / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
            for file, content in files.items():
                (where / file).write_text(json.dumps(content), encoding="utf-8")
            reference = AutoTokenizer.from_pretrained(directory)
            differs = 0
            for special in (False, True):
                replies = drive(driver, directory, strings, *(["special"] if special else []))
                for text, reply in zip(strings, replies, strict=True):
                    ids = reference(text, add_special_tokens=special)["input_ids"]
                    decoded = reference.decode(ids, clean_up_tokenization_spaces=False)
                    if reply != {"ids": ids, "text": decoded, "streamed": decoded}:
                        differs += 1
                        if differs <= 3:
                            print(f"  {name}: {text!r:.200}\n    ours   {reply!r:.300}\n    theirs {ids!r:.200} {decoded!r:.100}")
            print(f"vocabulary files {name} ({type(reference).__name__}): {2 * len(strings)} strings, {differs} differences", flush=True)
            differences += differs
    return differences


FIXTURE_STYLES = ("gpt2 llama3 qwen2 neox llama2-legacy llama2 gemma t5-old t5-new opt falcon falcon3").split()


def write_fixtures(directory, texts):
    """strings.json; and for each style tokenizer.json and expected.json: [ids, decoded text] of each string."""
    rng = random.Random(7)
    strings = PHRASES + ["", "It's a test, isn't it?  Yes:\n\n  12345 items...", " Rumpelstiltskin Rumpelstiltskin", "  two", "the ▁ the", "a" * 19]
    strings += [random_string(rng) for _ in range(40)]
    styles = family_styles(texts, 256 + 140)
    styles |= sentencepiece_styles(texts, 256 + 240, SMALL_CHARSMAP) | byte_level_styles(texts, styles["gpt2"])

    def write(file, value):
        file.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")

    write(directory / "strings.json", strings)
    for name in FIXTURE_STYLES:
        where = directory / name
        where.mkdir(parents=True, exist_ok=True)
        write(where / "tokenizer.json", styles[name])
        reference = Tokenizer.from_str(json.dumps(styles[name]))
        ids = [reference.encode(text).ids for text in strings]
        decoded = [reference.decode(one, skip_special_tokens=True) for one in ids]
        write(where / "expected.json", [[one, None if decoding == text else decoding]
                                        for one, decoding, text in zip(ids, decoded, strings, strict=True)])


def compiled_driver(directory):
    driver = pathlib.Path(directory) / "tokenizer_driver"
    sources = [str(next((ROOT / "model").rglob(f"{name}.cpp"))) for name in SOURCES] + [str(ROOT / "tests/model/tokenizer_driver.cpp")]
    subprocess.run(["g++", "-std=c++20", "-O2", f"-I{ROOT}", *sources, "-lonig", "-lutf8proc", "-lfmt", "-o", str(driver)],
                   check=True)
    return str(driver)


def uses_general_regex(content):
    """Whether the system's Oniguruma (6.9.8: Unicode 14, as Python 3.11's) decides: then newer characters are left out."""
    return any(word in json.dumps(content["normalizer"]) + json.dumps(content["pre_tokenizer"]) for word in ("\\\\p{", "\\\\s", "[^"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=pathlib.Path, required=True, help="text to train the small tokenizers on")
    parser.add_argument("--texts", type=pathlib.Path, nargs="*", default=[], help="texts and JSONL files to compare on")
    parser.add_argument("--tokenizer", type=pathlib.Path, nargs="*", default=[], help="further tokenizer.json files")
    parser.add_argument("--charsmap", type=pathlib.Path, help="a real precompiled_charsmap")
    parser.add_argument("--vocabulary-files", action="store_true", help="compare vocab.json + merges.txt with transformers")
    parser.add_argument("--only", default="", help="only the tokenizers whose name this regular expression finds")
    parser.add_argument("--driver", help="a compiled tokenizer_driver")
    parser.add_argument("--random", type=int, default=3000, help="random strings a tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write-fixtures", type=pathlib.Path, help="write the unit test's files here and stop")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))  # should either side go astray
    texts = options.train.read_text(encoding="utf-8")[:600_000].split("\n\n") + SEED_TEXT
    if options.write_fixtures:
        return write_fixtures(options.write_fixtures, texts)
    rng = random.Random(options.seed)
    files = [text for path in options.texts for text in strings_of(path)]
    precompiled = options.charsmap.read_bytes() if options.charsmap else SMALL_CHARSMAP
    families = family_styles(texts, 2000)
    families |= sentencepiece_styles(texts, 2000, precompiled) | byte_level_styles(texts, families["gpt2"])
    variants = sentencepiece_variants(texts, families) | odd_styles(families["gpt2"], precompiled)
    differences = compared = 0
    with tempfile.TemporaryDirectory() as directory:
        driver = options.driver or compiled_driver(directory)
        for path in options.tokenizer:
            families[str(path)] = json.loads(path.read_text(encoding="utf-8"))
        for name, content in (families | variants).items():
            if not re.search(options.only, name):
                continue
            strings = PHRASES + adversarial_strings(rng) + [random_string(rng) for _ in range(options.random)]
            if name in families:
                strings += files
            known_pattern = name in ("llama3", "qwen2")
            if uses_general_regex(content) and not known_pattern:
                strings = ["".join(c for c in text if unicodedata.category(c) != "Cn") for text in strings]
            if name == "bpe-no-unk" or content["model"].get("unk_id", 0) is None:
                strings = [text for text in strings if text]
            differences += compare(name, content, driver, strings, rng, options.random if name in families else 300)
            compared += 2 * len(strings)
        if options.vocabulary_files:
            strings = PHRASES + [random_string(rng) for _ in range(500)]
            differences += compare_vocabulary_files(driver, families["gpt2"], strings)
    print(f"{differences} differences in all, of {compared} encoded strings")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
