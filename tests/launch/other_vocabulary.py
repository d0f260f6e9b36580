#!/usr/bin/env python3
"""Drafts of another vocabulary: the demo pair, whose draft has its token ids permuted and a part of its tokens made others.
Texts are those of plain decoding, and the more tokens are shared the more are accepted. Standard library only.

  other_vocabulary.py BINARY MPIRUN.. --
"""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, os.pardir, os.pardir, "model", "demo")
TARGET = os.path.join(DEMO, "target")
DRAFT = os.path.join(DEMO, "draft")
LINES = 16
NEW_TOKENS = 48


def other_tokenizer(file, share, new_ids, chooser):
    """The tokenizer with new ids, in which all tokens but `share` of them are other texts, which no text is made of."""
    tokens = sorted(file["model"]["vocab"], key=file["model"]["vocab"].get)
    of_bytes = {token for token in tokens if len(token) == 1} | {token["content"] for token in file["added_tokens"]}
    others = [token for token in tokens if token not in of_bytes]
    chooser.shuffle(others)
    n_lost = min(round((1 - share) * len(tokens)), len(others))
    lost = {token: f"\u0178{i}" for i, token in enumerate(others[:n_lost])}
    file["model"]["vocab"] = {lost.get(token, token): new_ids[i] for i, token in enumerate(tokens)}
    file["model"]["merges"] = [merge for merge in file["model"]["merges"] if not lost.keys() & {*merge, "".join(merge)}]
    for token in file["added_tokens"]:
        token["id"] = new_ids[token["id"]]


def permuted(file_name, to, new_ids):
    """The weights with the rows of the embedding, which is the head as well, at their new ids."""
    with open(file_name, "rb") as file:
        data = bytearray(file.read())
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    place = json.loads(data[8:begin])["model.embed_tokens.weight"]
    first, end = (begin + offset for offset in place["data_offsets"])
    row = (end - first) // len(new_ids)
    rows = bytes(data[first:end])
    for old, new in enumerate(new_ids):
        data[first + new * row:first + (new + 1) * row] = rows[old * row:(old + 1) * row]
    with open(to, "wb") as file:
        file.write(data)


def make_draft(directory, share, seed=1):
    chooser = random.Random(seed)
    shutil.copytree(DRAFT, directory)
    with open(os.path.join(DRAFT, "tokenizer.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    new_ids = list(range(len(tokenizer["model"]["vocab"])))
    chooser.shuffle(new_ids)
    other_tokenizer(tokenizer, share, new_ids, chooser)
    with open(os.path.join(directory, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(tokenizer, file)
    permuted(os.path.join(DRAFT, "model.safetensors"), os.path.join(directory, "model.safetensors"), new_ids)
    for name in ("config.json", "generation_config.json"):
        path = os.path.join(directory, name)
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        for field in ("bos_token_id", "eos_token_id"):
            if config.get(field) is not None:
                config[field] = new_ids[config[field]]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
    return directory


class Runs:
    def __init__(self, binary, mpirun, work):
        self.binary, self.mpirun, self.work = binary, mpirun, work
        self.lines = os.path.join(work, "lines.jsonl")
        with open(os.path.join(DEMO, "prompts_text.jsonl"), encoding="utf-8") as file:
            lines = file.readlines()[:LINES]
        with open(self.lines, "w", encoding="utf-8") as file:
            file.writelines(lines)

    def run(self, more, ranks=1):
        launcher = [*self.mpirun, "-n", str(ranks)] if ranks > 1 else []
        return subprocess.run([*launcher, self.binary, "generate", "--target", TARGET, "--input", self.lines,
                               "--max-new-tokens", str(NEW_TOKENS), "--threads", "1", *more],
                              capture_output=True, text=True, timeout=600, check=False)

    def texts(self, more, ranks=1):
        """The lines' tokens, the share of drafted tokens that were accepted, and tokens a round."""
        ended = self.run(more, ranks)
        if ended.returncode != 0:
            sys.exit(f"{' '.join(more)}: {ended.stderr}")
        results = [json.loads(line) for line in ended.stdout.splitlines()]
        total = {name: sum(result["stats"][name] for result in results)
                 for name in ("drafted", "accepted", "rounds", "new_tokens")}
        return ([result["token_ids"] for result in results], total["accepted"] / max(1, total["drafted"]),
                total["new_tokens"] / total["rounds"])


SAMPLED = ["--temperature", "1", "--seed", "5"]


SHARES = (1, 0.99, 0.9, 0.8, 0.3)


def check_settings(runs, draft, plain, expect):
    """Batches, ranks, placements, trees and lists with a draft that has 80 % of the target's tokens."""
    settings = [(1, ["--batch-size", "4"]), (1, ["--check"]), (1, ["--drafter", "ngram,model"]), (2, []),
                (2, ["--batch-size", "4"]), (2, ["--draft-placement", "dedicated"]),
                (2, ["--draft-placement", "sharded"])]
    of_intersection = [(1, ["--tree", "expected-gain"]), (2, ["--tree", "2,2"]),
                       (1, ["--tree", "eagle2:3:2", "--batch-size", "4"])]
    for how in ("intersection", "retokenize"):
        for ranks, more in settings + (of_intersection if how == "intersection" else []):
            for sampling in ([], SAMPLED):
                texts = runs.texts(["--draft", draft, "--draft-vocabulary", how, *more, *sampling], ranks)[0]
                expect(texts == plain[tuple(sampling)], f"{how}, {ranks} ranks, {more}, {sampling}: another text")
    for sampling in ([], SAMPLED):  # a cascade, whose smallest model alone has another vocabulary
        texts = runs.texts(["--draft", DRAFT, "--draft", draft, *sampling])[0]
        expect(texts == plain[tuple(sampling)], f"a cascade, {sampling}: another text")
    for acceptance in ("rejection", "block"):
        for how in ("intersection", "retokenize"):
            runs.texts(["--draft", draft, "--draft-vocabulary", how, *SAMPLED, "--acceptance", acceptance])


def check_resume(runs, draft, plain, expect):
    output = os.path.join(runs.work, "results.jsonl")
    more = ["--draft", draft, "--output", output]
    if runs.run(more).returncode != 0:
        expect(False, "no output")
    with open(output, encoding="utf-8") as file:
        lines = file.readlines()
    with open(output, "w", encoding="utf-8") as file:
        file.writelines(lines[:LINES // 2])
        file.write(lines[LINES // 2][:20])
    ended = runs.run([*more, "--resume"])
    expect(ended.returncode == 0, ended.stderr)
    with open(output, encoding="utf-8") as file:
        expect([json.loads(line)["token_ids"] for line in file] == plain[()], "a resumed run has another text")


def main():
    binary, *mpirun = sys.argv[1:sys.argv.index("--")]
    failures = []

    def expect(holds, what):
        if not holds:
            failures.append(what)

    with tempfile.TemporaryDirectory() as work:
        runs = Runs(binary, mpirun, work)
        plain = {tuple(sampling): runs.texts(sampling)[0] for sampling in ([], SAMPLED)}
        drafts = {share: make_draft(os.path.join(work, f"draft-{share}"), share) for share in SHARES}
        rule = ["--stop-rule", "constant:4"]
        a_round = {}
        for how in ("intersection", "retokenize"):
            for share, draft in [("same", DRAFT), *drafts.items()]:
                more = ["--draft", draft, *rule] + ([] if share == "same" else ["--draft-vocabulary", how])
                for sampling in ([], SAMPLED):
                    texts, rate, tokens = runs.texts(more + sampling)
                    expect(texts == plain[tuple(sampling)], f"{how}, {share}, {sampling}: another text")
                    a_round[how, share, bool(sampling)] = tokens
                    print(f"{how}, {share} shared, {'sampled' if sampling else 'greedy'}: {tokens:.3f} tokens a pass, "
                          f"{100 * rate:.1f} % accepted", flush=True)
        for sampled in (False, True):
            of = {share: a_round["intersection", share, sampled] for share in ("same", *SHARES)}
            expect(of[1] == of["same"], "a draft whose ids alone are others is another draft")
            expect(of["same"] > of[0.99] > of[0.9] > of[0.8] > of[0.3] > 1, f"accepted does not fall: {of}")
            expect(a_round["retokenize", 1, sampled] > 0.9 * of[1], "retokenize loses tokens that are the same")
        check_settings(runs, drafts[0.8], plain, expect)
        check_resume(runs, drafts[0.8], plain, expect)
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
