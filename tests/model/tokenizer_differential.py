#!/usr/bin/env python3
"""Compares entrodraft's tokenizer with PyPI `tokenizers`: ids and decoded text must be equal on every string.

Builds tokenizers in the styles of GPT-2, LLaMA-3, Qwen2 and NeoX, and some with every flag and splitting
behaviour, trains them small on --train, and feeds both sides random Unicode and the given files. Run by hand:

    python tests/model/tokenizer_differential.py --train books.txt --texts books.txt prompts.jsonl

Without --driver it compiles tests/model/tokenizer_driver.cpp and model/*.cpp of the tokenizer with g++. --write-fixtures
writes the small tokenizers and expected ids that the unit test reads instead.
"""
import argparse
import copy
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ("utf8 byte_level regex normalizer word_splitter pre_tokenizer added_tokens bpe post_processor "
           "tokenizer json_file").split()
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"\p{N}{1,3}" + REST
QWEN2 = CONTRACTIONS + r"\p{N}" + REST
SEED_TEXT = ["café naïve Straße Ωμέγα привет мир こんにちは世界 你好 שלום سلام नमस्ते 한국어 🙂👨‍👩‍👧‍👦 e\u0301 n\u0303"] * 4
PHRASES = ["it's", "IT'S", "we'll", "WE'LL", "'ſ", "I'd've", "don't", "\r\n", "\n\n", "\t", "    ", " ", "  \n  ", "1234567",
           "½²³", "٣٤٥", "e\u0301\u0316", "\u1100\u1161\u11a8", "가", "👩‍🚀", "🇩🇪", "\u200d", "\ufeff", "\u00a0", "\u3000", "\u0085",
           "\u2028", "\x00", "\x1c", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|end|>", "<mask>",
           "<word>", " <left>", "<right> ", "<both>", "word<word>", "_<word>", "ḍ̇", "ﬁ", "\u212b", "\u0340", "Å",
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


def odd_styles(base):
    """Every flag and behaviour, on one vocabulary."""
    base = copy.deepcopy(base)
    base["added_tokens"] = []
    flagged = [added("<mask>", lstrip=True, special=True), added("<word>", single_word=True), added("<left>", lstrip=True),
               added("<right>", rstrip=True), added("<both>", lstrip=True, rstrip=True), added("e\u0301", normalized=True),
               added("the", single_word=True, normalized=True), added("他", normalized=False), added("  ", normalized=True),
               added("<mask><mask>"), added("Å", normalized=True)]
    styles = {}

    def style(name, pre_tokenizer, tokens=(), normalizer=None):
        result = with_added(base, list(tokens))
        result["pre_tokenizer"] = pre_tokenizer
        result["normalizer"] = normalizer
        styles[name] = result

    gpt2 = dict(BYTES, use_regex=True)
    style("flags", gpt2, flagged)
    style("flags-nfc", gpt2, flagged, {"type": "NFC"})
    style("prefix-space", dict(gpt2, add_prefix_space=True), flagged)
    style("no-regex", BYTES)
    style("digits", {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, gpt2]})
    style("falcon-like", {"type": "Sequence", "pretokenizers": [
        gpt2, {"type": "Digits", "individual_digits": False}, split({"Regex": "[0-9][0-9][0-9]"})]})
    style("prefix-each", {"type": "Sequence", "pretokenizers": [
        split({"String": "e"}), dict(gpt2, add_prefix_space=True)]})
    style("empty-matches", {"type": "Sequence", "pretokenizers": [split({"Regex": "x*"}), BYTES]})
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            name = f"{behavior}{'-inverted' if invert else ''}"
            for kind, pattern in (("string", {"String": " "}), ("regex", {"Regex": r"[\s\p{P}]"}), ("llama3", {"Regex": LLAMA3})):
                style(f"split-{kind}-{name}",
                      {"type": "Sequence", "pretokenizers": [split(pattern, behavior, invert), BYTES]})
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


def compare(name, content, driver, strings, rng, n_id_lists):
    """Returns how many requests differ; prints the first few."""
    reference = Tokenizer.from_str(json.dumps(content))
    known = sorted(reference.get_vocab().values())
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
    print(f"{name}: {2 * len(strings)} strings, {len(id_lists)} id lists, {differences} differences", flush=True)
    return differences


def write_fixtures(directory, texts):
    rng = random.Random(7)
    strings = PHRASES + ["", "It's a test, isn't it?  Yes:\n\n  12345 items...", " Rumpelstiltskin Rumpelstiltskin"]
    strings += [random_string(rng) for _ in range(120)]
    for name, content in family_styles(texts, 256 + 500).items():
        reference = Tokenizer.from_str(json.dumps(content))
        where = directory / name
        where.mkdir(parents=True, exist_ok=True)
        (where / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n",
                                              encoding="utf-8")
        cases = [{"text": text, "ids": reference.encode(text).ids,
                  "decoded": reference.decode(reference.encode(text).ids, skip_special_tokens=True)} for text in strings]
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        (where / "expected.json").write_text("[\n" + lines + "\n]\n", encoding="utf-8")


def compiled_driver(directory):
    driver = pathlib.Path(directory) / "tokenizer_driver"
    sources = [str(ROOT / "model" / f"{name}.cpp") for name in SOURCES] + [str(ROOT / "tests/model/tokenizer_driver.cpp")]
    subprocess.run(["g++", "-std=c++20", "-O2", f"-I{ROOT}/include", *sources, "-lonig", "-lutf8proc", "-o", str(driver)],
                   check=True)
    return str(driver)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=pathlib.Path, required=True, help="text to train the small tokenizers on")
    parser.add_argument("--texts", type=pathlib.Path, nargs="*", default=[], help="texts and JSONL files to compare on")
    parser.add_argument("--tokenizer", type=pathlib.Path, nargs="*", default=[], help="further tokenizer.json files")
    parser.add_argument("--driver", help="a compiled tokenizer_driver")
    parser.add_argument("--random", type=int, default=3000, help="random strings a tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write-fixtures", type=pathlib.Path, help="write the unit test's files here and stop")
    options = parser.parse_args()
    texts = options.train.read_text(encoding="utf-8")[:600_000].split("\n\n") + SEED_TEXT
    if options.write_fixtures:
        return write_fixtures(options.write_fixtures, texts)
    rng = random.Random(options.seed)
    files = [text for path in options.texts for text in strings_of(path)]
    families = family_styles(texts, 2000)
    differences = 0
    with tempfile.TemporaryDirectory() as directory:
        driver = options.driver or compiled_driver(directory)
        for path in options.tokenizer:
            families[str(path)] = json.loads(path.read_text(encoding="utf-8"))
        for name, content in families.items():
            strings = files + PHRASES + [random_string(rng) for _ in range(options.random)]
            differences += compare(name, content, driver, strings, rng, options.random)
        for name, content in odd_styles(families["gpt2"]).items():
            strings = PHRASES + [random_string(rng) for _ in range(options.random)]
            if name.startswith("split-"):
                # The general engine's Unicode is the system's Oniguruma's (6.9.8: Unicode 14, as Python 3.11's).
                strings = ["".join(c for c in text if unicodedata.category(c) != "Cn") for text in strings]
            differences += compare(name, content, driver, strings, rng, 200)
    print(f"{differences} differences in all")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
