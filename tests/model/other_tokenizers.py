#!/usr/bin/env python3
"""Compares entrodraft's reading of tokenizer.model, tiktoken's files and tekken.json with sentencepiece, tiktoken and
mistral-common: ids of random Unicode, and the text of ids, must be equal.

Trains small ones on --train; --data DIR adds the real files of mistral-common (its folder data). Run by hand:

    python tests/model/other_tokenizers.py --train books.txt --driver DRIVER [--data DIR]

--write DIR writes the small files and expected ids that the unit test reads instead. What these libraries take for text
and transformers for special tokens (<s>, [INST], ...) is left out.
"""
import argparse
import base64
import json
import pathlib
import random
import re
import shutil
import tempfile

import sentencepiece
import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenizer_differential import LLAMA3, PHRASES, QWEN2, adversarial_strings, compiled_driver, drive, random_string

TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = re.compile(r"</?s>|<unk>|<pad>|<\|[^ ]*\|>|\[/?[A-Z_]+\]|<SPECIAL_\d+>|<0x..>|<bos>|<eos>")
RULES = [("\uff21", "A"), ("\ufb01", "fi"), ("\t", " "), ("\n", " "), ("\u3000", " "), ("\u200b", ""), ("e\u0301", "é")]
IDENTITY = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
SENTENCEPIECE = {
    "llama": {"model_type": "bpe", "byte_fallback": True, "split_digits": True, **IDENTITY},
    "gemma": {"model_type": "bpe", "byte_fallback": True, "add_dummy_prefix": False,
              "user_defined_symbols": ["<mask>", "▁▁", "▁▁▁", "\n", "\n\n", "ab", "<b>"], **IDENTITY},
    "bpe": {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc", "user_defined_symbols": ["<sep>", "th"]},
    "unigram": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc", "user_defined_symbols": ["<sep>"]},
    "unigram-bytes": {"model_type": "unigram", "byte_fallback": True, **IDENTITY},
}


def train_sentencepiece(directory, lines, vocab_size, options, small=False):
    options = dict(options)
    if small and options.get("normalization_rule_name") == "nmt_nfkc":  # whose map takes 240 KB
        del options["normalization_rule_name"]
        rules = directory / "rules.tsv"
        rules.write_text("".join("\t".join(" ".join(f"{ord(c):x}" for c in part) for part in rule) + "\n" for rule in RULES))
        options["normalization_rule_tsv"] = str(rules)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(directory / "tokenizer"), vocab_size=vocab_size, hard_vocab_limit=False,
        character_coverage=0.999, minloglevel=2, **options)
    for extra in (*directory.glob("*.vocab"), *directory.glob("*.tsv")):
        extra.unlink()


def trained_ranks(lines, vocab_size):
    """Bytes, then merges in the order in which they are learnt."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False,
                                                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    bytes_of = dict(zip(map(chr, [*range(33, 127), *range(161, 173), *range(174, 256)]), [*range(33, 127), *range(161, 173), *range(174, 256)]))
    rest = [byte for byte in range(256) if byte not in bytes_of.values()]
    bytes_of.update({chr(256 + i): byte for i, byte in enumerate(rest)})
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return [bytes([i]) for i in range(256)] + [bytes(bytes_of[c] for c in token) for token, _ in tokens if len(token) > 1]


def write_tiktoken(path, ranks):
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(ranks)))


def write_tekken(path, ranks, n_special):
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    config = {"pattern": TEKKEN, "num_vocab_tokens": len(ranks), "default_vocab_size": len(ranks) + n_special - 5,
              "default_num_special_tokens": n_special, "version": "v3"}
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for rank, token in enumerate(ranks)]
    special = [{"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(names)]
    path.write_text(json.dumps({"config": config, "vocab": vocab, "special_tokens": special}, separators=(",", ":")))


class OfSentencePiece:
    def __init__(self, directory):
        self.model = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
        self.special = {i for i in range(self.model.get_piece_size()) if self.model.is_control(i) or self.model.is_unknown(i)}
        self.bos = [self.model.bos_id()]
        self.size = self.model.get_piece_size()
        self.bytes = {i for i in range(self.size) if self.model.is_byte(i)}

    def encode(self, text):
        return self.model.encode(text)

    def decode(self, ids):
        return self.model.decode([i for i in ids if i not in self.special])

    def has_bytes(self, ids):
        return any(i in self.bytes for i in ids)


class OfTiktoken:
    def __init__(self, directory, name, pattern, bos):
        lines = (directory / name).read_text().splitlines()
        ranks = {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in lines}
        self.model = tiktoken.Encoding(name="x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        self.size, self.bos, self.is_qwen = len(ranks), [len(ranks)] if bos else [], not bos

    def encode(self, text):
        import unicodedata
        return self.model.encode(unicodedata.normalize("NFC", text) if self.is_qwen else text, disallowed_special=())

    def decode(self, ids):
        return self.model.decode_bytes(ids).decode("utf-8", errors="replace")

    def has_bytes(self, ids):
        return False


class OfTekken:
    def __init__(self, file):
        self.model, self.bos = Tekkenizer.from_file(file), [1]
        self.size, self.n_special = self.model.n_words, self.model.num_special_tokens

    def encode(self, text):
        return self.model.encode(text, bos=False, eos=False)

    def decode(self, ids):
        return self.model.decode([i for i in ids if i >= self.n_special])

    def has_bytes(self, ids):
        return False


def cases_of(reference, strings):
    cases = []
    for text in strings:
        ids = reference.encode(text)
        cases.append({"text": text, "ids": ids, "decoded": reference.decode(ids)})
    return cases


def compare(name, directory, reference, driver, strings, rng):
    strings = [text for text in strings if not SPECIAL.search(text)]
    cases, differing = cases_of(reference, strings), 0
    for one, got, special in zip(cases, drive(driver, str(directory), strings), drive(driver, str(directory), strings, "special"), strict=True):
        if got["ids"] == one["ids"] and special["ids"] == reference.bos + one["ids"]:
            continue
        differing += 1
        if differing <= 5:
            print(f"{name}: {one['text'][:80]!r}\n  {one['ids'][:40]}\n  {got['ids'][:40]}")
    lists = [[rng.randrange(reference.size) for _ in range(rng.randrange(1, 20))] for _ in range(1000)]
    lists = [ids for ids in lists if not reference.has_bytes(ids)] + [one["ids"] for one in cases]
    for ids, got in zip(lists, drive(driver, str(directory), lists), strict=True):
        want = reference.decode(ids)
        if got["plain"] != want or got["plain_streamed"] != got["plain"]:
            differing += 1
            if differing <= 10:
                print(f"{name}, text of {ids[:40]}: {want[:80]!r} {got['plain'][:80]!r}")
    print(f"{name}: {len(strings)} strings, {len(lists)} lists of ids, {differing} differ", flush=True)
    return differing


def small_tokenizers(root, lines, sizes, small):
    """(name, directory, reference) of each."""
    made = []
    for name, options in SENTENCEPIECE.items():
        directory = root / f"sentencepiece-{name}"
        directory.mkdir()
        train_sentencepiece(directory, lines, sizes[0], options, small)
        made.append((directory.name, directory, OfSentencePiece(directory)))
    ranks = trained_ranks(lines, sizes[1])
    for name, file, pattern in (("tiktoken", "tokenizer.model", LLAMA3), ("qwen", "qwen.tiktoken", QWEN2)):
        directory = root / name
        directory.mkdir()
        write_tiktoken(directory / file, ranks)
        made.append((name, directory, OfTiktoken(directory, file, pattern, name == "tiktoken")))
    directory = root / "tekken"
    directory.mkdir()
    write_tekken(directory / "tekken.json", ranks, 20)
    made.append(("tekken", directory, OfTekken(directory / "tekken.json")))
    return made


def real_tokenizers(data, root):
    for file in sorted(data.iterdir()):
        directory = root / file.name
        directory.mkdir()
        if file.name.startswith("tekken"):
            shutil.copy(file, directory / "tekken.json")
            yield file.name, directory, OfTekken(file)
        elif ".model" in file.name:
            shutil.copy(file, directory / "tokenizer.model")
            yield file.name, directory, OfSentencePiece(directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", required=True, type=pathlib.Path, help="text to train on")
    parser.add_argument("--driver", help="tokenizer_driver; else it is compiled")
    parser.add_argument("--data", type=pathlib.Path, help="mistral-common's folder of tokenizers")
    parser.add_argument("--strings", type=int, default=2000, help="random strings [2000]")
    parser.add_argument("--write", type=pathlib.Path, help="directory for the unit test's files")
    options = parser.parse_args()
    text = options.train.read_text()
    lines = [line for line in text.splitlines() if line.strip()]
    rng = random.Random(7)
    if options.write:
        strings = [text for text in PHRASES if not SPECIAL.search(text)] + lines[:8] + [random_string(rng) for _ in range(25)]
        strings += ["a  b", "   ab  ", "x<mask>y", "  the<sep> the", "\n\n\n", "th", "0123 456", "aab" * 30]
        strings = [text for text in strings if not SPECIAL.search(text)]
        for name, directory, reference in small_tokenizers(options.write, lines[:200], (350, 400), True):
            (directory / "expected.json").write_text(json.dumps(cases_of(reference, strings), ensure_ascii=False, separators=(",", ":")) + "\n")
        return
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        driver = options.driver or compiled_driver(scratch)
        strings = PHRASES + adversarial_strings(rng) + [random_string(rng) for _ in range(options.strings)] + lines[-300:]
        made = small_tokenizers(root, lines[:20000], (3000, 4000), False)
        if options.data:
            made += list(real_tokenizers(options.data, root))
        raise SystemExit(1 if sum(compare(*one, driver, strings, rng) for one in made) else 0)


if __name__ == "__main__":
    main()
