#!/usr/bin/env python3
"""Compares entrodraft's reading of Marian's source.spm, target.spm and vocab.json with transformers' MarianTokenizer.

Trains two SentencePiece models on the halves of --train, with the normalization of OPUS-MT's files or a few rules,
with and without user-defined pieces and separate vocabularies; ids of random Unicode as source and as text, and text of
random ids, must be equal, but for white space at the end of a text. Run by hand:

    python tests/model/marian_tokenizer.py --train books.txt --driver DRIVER

--write DIR writes the small files and expected ids that the unit test reads instead.
"""
import argparse
import json
import pathlib
import random
import shutil
import sys
import tempfile
import warnings

import sentencepiece
from transformers import MarianTokenizer

from tokenizer_differential import PHRASES, adversarial_strings, compiled_driver, drive, random_string

RULES = [("\uff21", "A"), ("\ufb01", "fi"), ("\t", " "), ("\n", " "), ("\u3000", " "), ("\u200b", ""), ("e\u0301", "é"), ("...", "…")]
CODES = ["", ">>deu<<", ">>deu<< ", ">>xyz<<", ">>", " >>deu<<", "a >>deu<< b", "</s>", "a</s>b", " <unk> ", "<pad>>>deu<<x", ">><<"]


def train(lines, prefix, vocab_size, whole_rules, user_defined):
    options = {"normalization_rule_name": "nmt_nfkc"}
    if not whole_rules:
        rules = prefix.with_suffix(".tsv")
        rules.write_text("".join("\t".join(" ".join(f"{ord(c):x}" for c in part) for part in rule) + "\n" for rule in RULES))
        options = {"normalization_rule_tsv": str(rules)}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(prefix), vocab_size=vocab_size, character_coverage=1.0,
        hard_vocab_limit=False, user_defined_symbols=user_defined, minloglevel=2, **options)


def pieces_of(model):
    return [model.id_to_piece(i) for i in range(model.get_piece_size()) if not model.is_control(i) and not model.is_unknown(i)]


def make(directory, text, vocab_size, rng, whole_rules=True, user_defined=(), separate=False):
    lines = [line for line in text.splitlines() if line.strip()]
    half = len(lines) // 2
    models = []
    for name, part in (("source", lines[:half]), ("target", lines[half:])):
        train(part, directory / name, vocab_size, whole_rules, list(user_defined))
        (directory / f"{name}.model").rename(directory / f"{name}.spm")
        models.append(sentencepiece.SentencePieceProcessor(model_file=str(directory / f"{name}.spm")))
    for extra in (*directory.glob("*.vocab"), *directory.glob("*.tsv")):
        extra.unlink()

    def numbered(pieces):  # in an order of its own, and not all of them
        known = sorted(piece for piece in set(pieces) if rng.random() < 0.95)
        return {piece: i for i, piece in enumerate(["</s>", "<unk>", "<pad>", ">>deu<<", *known])}

    if separate:
        vocabularies = {"vocab": numbered(pieces_of(models[0])), "target_vocab": numbered(pieces_of(models[1]))}
    else:
        vocabularies = {"vocab": numbered([*pieces_of(models[0]), *pieces_of(models[1]), "中"])}
    for name, vocabulary in vocabularies.items():
        (directory / f"{name}.json").write_text(json.dumps(vocabulary, ensure_ascii=False, indent=0))
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}))


def expected(directory, strings):
    """(source ids, text ids) of each, with the end's token."""
    reference = MarianTokenizer.from_pretrained(directory)
    return reference, [(reference(text)["input_ids"], reference(text_target=text)["input_ids"]) for text in strings]


def compare(name, directory, driver, strings, rng):
    reference, ids = expected(directory, strings)
    differing = 0
    for number, side in enumerate(("source", "special")):
        for text, want, got in zip(strings, ids, drive(driver, str(directory), strings, side), strict=True):
            if got["ids"] == want[number]:
                continue
            differing += 1
            if differing <= 5:
                print(f"{name}, {side}: {text[:80]!r}\n  {want[number][:40]}\n  {got['ids'][:40]}")
    lists = [[rng.choice(sorted(reference.decoder)) for _ in range(rng.randrange(1, 20))] for _ in range(300)]
    lists += [want[1] for want in ids]
    for one, got in zip(lists, drive(driver, str(directory), lists), strict=True):
        want = reference.decode(one, skip_special_tokens=True).rstrip()
        if got["plain"].rstrip() != want or got["plain_streamed"] != got["plain"]:
            differing += 1
            if differing <= 10:
                print(f"{name}, text of {one}: {want!r} {got['plain']!r}")
    print(f"{name}: {len(strings)} strings, {len(lists)} lists of ids, {differing} differ")
    return differing


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", required=True, type=pathlib.Path, help="text to train on")
    parser.add_argument("--driver", help="tokenizer_driver; else it is compiled")
    parser.add_argument("--strings", type=int, default=2000, help="random strings [2000]")
    parser.add_argument("--write", type=pathlib.Path, help="directory for the unit test's files")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    text = options.train.read_text()
    rng = random.Random(7)
    if options.write:
        options.write.mkdir(exist_ok=True)
        make(options.write, text[:20000], 90, rng, whole_rules=False, user_defined=["<sep>", "ab"])
        strings = [phrase for phrase in PHRASES if len(phrase) < 20][:40] + CODES
        strings += [rule[0] + "x" for rule in RULES] + [line for line in text.splitlines() if line.strip()][:8]
        reference, ids = expected(options.write, strings)
        cases = [{"text": one, "source": source, "target": target,
                  "decoded": reference.decode(target, skip_special_tokens=True).rstrip()}
                 for one, (source, target) in zip(strings, ids, strict=True)]
        (options.write / "expected.json").write_text(json.dumps(cases, ensure_ascii=False, indent=0))
        return
    with tempfile.TemporaryDirectory() as scratch:
        driver = options.driver or compiled_driver(scratch)
        strings = CODES + PHRASES + adversarial_strings(rng) + [random_string(rng) for _ in range(options.strings)]
        strings += [line for line in text.splitlines() if line.strip()][:300] + [text[:20000]]
        strings += [rng.choice(CODES) + random_string(rng) for _ in range(200)]
        differing = 0
        for name, more in {"opus": {}, "few rules": {"whole_rules": False}, "user-defined": {"user_defined": ["<sep>", "the", "  "]},
                           "separate": {"separate": True}}.items():
            directory = pathlib.Path(scratch) / "files"
            directory.mkdir()
            make(directory, text, 800, rng, **more)
            differing += compare(name, directory, driver, strings, rng)
            shutil.rmtree(directory)
    sys.exit(differing > 0)


if __name__ == "__main__":
    main()
