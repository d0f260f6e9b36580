#!/usr/bin/env python3
"""Texts of random JSON schemas are valid by them, and those of constrained plain decoding, whoever drafts.

    tests/launch/structured_output.py --binary build/entrodraft [--schemas 1000]

Validates with PyPI's jsonschema, and formats with its rfc3339-validator; 77 without them. The demo models write at
temperature 1, so that texts mean nothing: what is valid is so by the grammar alone. They would close few strings and
objects whose length the schema leaves open, so the bytes that do so have a bias.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRAFTERS = [["--draft", "{demo}/draft"], ["--drafter", "ngram"],
            ["--draft", "{demo}/draft", "--tree", "eagle2:4:4"], ["--draft", "{demo}/draft", "--stop-rule", "constant"]]
CLOSING = {'"': 9, "}": 12, "@": 20}
NAMES = ["a", "ab", "name", "the door", "b\"q", "c\\d", "\u00e9t\u00e9", "", "x-y", "1"]


def value(chance, depth):
    return chance.choice([None, True, 3, -2.5, "", "a\"b", "\u00e9\n", [1, "x"], {"k": []}])


def string(chance):
    kind = chance.randrange(5)
    if kind == 0:
        return {"type": "string", "minLength": chance.randrange(3), "maxLength": 3 + chance.randrange(8)}
    if kind == 1:
        return {"type": "string", "pattern": chance.choice(
            ["^[a-z]{2,5}$", "^(foo|b[aei]r)+$", "^\\d{3}-\\d{4}$", "^[\"\\\\\\n\\u00e9]{1,4}$", "^a.b$", "^[^a-z]{2}\\W?$"])}
    if kind == 2:
        return {"type": "string", "format": chance.choice(["date", "time", "date-time", "uuid", "ipv4", "email"])}
    return {"type": "string", "maxLength": 12}


def number(chance):
    schema = {"type": chance.choice(["integer", "number"])}
    low = chance.randrange(-2000, 2000) / chance.choice([1, 10])
    if chance.random() < 0.6:
        schema[chance.choice(["minimum", "exclusiveMinimum"])] = low
    if chance.random() < 0.6:
        schema[chance.choice(["maximum", "exclusiveMaximum"])] = low + chance.randrange(2, 10 ** chance.randrange(1, 7))
    return schema


def schema_of(chance, depth=0):
    kind = chance.randrange(11 if depth < 3 else 5)
    if kind == 0:
        return string(chance)
    if kind == 1:
        return number(chance)
    if kind == 2:
        return {"type": chance.choice(["boolean", "null", ["null", "boolean"]])}
    if kind == 3:
        return {"enum": [value(chance, depth) for _ in range(1 + chance.randrange(4))]}
    if kind == 4:
        return {"const": value(chance, depth), "title": "t"}
    if kind == 5:
        return {"anyOf": [schema_of(chance, depth + 1) for _ in range(2)]}
    if kind == 6:
        return {"oneOf": [{"type": "null"}, string(chance), {"type": "array", "items": number(chance), "maxItems": 2}]}
    if kind == 7:
        schema = {"type": "array", "items": schema_of(chance, depth + 1), "maxItems": 1 + chance.randrange(3)}
        if chance.random() < 0.5:
            schema["prefixItems"] = [schema_of(chance, depth + 1)]
            schema["minItems"] = 1
        return schema
    names = chance.sample(NAMES, chance.randrange(5))
    schema = {"type": "object", "properties": {name: schema_of(chance, depth + 1) for name in names},
              "required": [name for name in names if chance.random() < 0.5],
              "additionalProperties": False}
    if chance.random() < 0.15:
        schema["additionalProperties"] = {"type": "boolean"}
    return schema


def lines_of(n, seed):
    chance = random.Random(seed)
    tokens = json.loads((ROOT / "model/demo/target/tokenizer.json").read_text())["model"]["vocab"]
    biases = {tokens[byte]: bias for byte, bias in CLOSING.items()}
    for i in range(n):
        schema = schema_of(chance)
        if i % 10 == 9:
            schema = {"$defs": {"s": schema}, "type": "object", "properties": {"v": {"$ref": "#/$defs/s"}}, "required": ["v"],
                      "additionalProperties": False}
        yield {"id": i, "prompt": "It was a dark night", "json_schema": schema, "seed": i,
               "logit_bias": biases}


def generate(options, ranks, lines, more):
    demo = str(ROOT / "model/demo")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
        file.flush()
        command = ([] if ranks == 1 else options.mpirun.split() + ["-n", str(ranks)]) + [
            options.binary, "generate", "--target", demo + "/target", "--input", file.name, "--quiet", "--batch-size", "4",
            "--temperature", "1", "--max-new-tokens", str(options.max_new_tokens)]
        command += [word.format(demo=demo) for word in more]
        run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {run.returncode}\n{run.stderr}\n" +
                 "\n".join(line for line in run.stdout.split("\n") if '"error"' in line[:200])[:2000])
    return [json.loads(line) for line in run.stdout.rstrip("\n").split("\n")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--schemas", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-new-tokens", type=int, default=600)
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none --allow-run-as-root")
    options = parser.parse_args()
    try:
        import jsonschema
        import rfc3339_validator  # noqa: F401: jsonschema checks date-time and time by it
    except ImportError:
        print("skipped: needs PyPI's jsonschema and rfc3339-validator: pip install jsonschema rfc3339-validator")
        sys.exit(77)
    lines = list(lines_of(options.schemas, options.seed))
    plain = generate(options, 1, lines, [])
    valid = 0
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    for line, result in zip(lines, plain, strict=True):
        try:
            jsonschema.validate(json.loads(result["text"]), line["json_schema"], format_checker=checker,
                                cls=jsonschema.Draft202012Validator)
            valid += 1
        except (ValueError, jsonschema.ValidationError) as error:
            print(f"{result['finish_reason']}: {line['json_schema']}: {result['text']!r}: {error}")
    print(f"{valid} of {len(lines)} texts are valid", flush=True)
    failed = valid < len(lines)
    for ranks in (1, 2):
        for more in DRAFTERS:
            found = generate(options, ranks, lines, more)
            same = sum(a["token_ids"] == b["token_ids"] for a, b in zip(found, plain, strict=True))
            counts = {key: sum(result["stats"][key] for result in found) for key in ("drafted", "accepted", "draft_passes")}
            print(f"{same} of {len(lines)} texts are the plain ones, {ranks} ranks, {' '.join(more)}: {counts}", flush=True)
            failed |= same < len(lines) * (1 if ranks == 1 else 0.98)  # near ties across ranks
    sys.exit(failed)


if __name__ == "__main__":
    main()
