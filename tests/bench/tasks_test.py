#!/usr/bin/env python3
"""bench/tasks: its loaders, scores, figures and options; with --binary also a run on the demo models.

    tests/bench/tasks_test.py [--binary build/entrodraft]

Needs no package: a test of a score whose package is missing is skipped. Where a run is tested without --binary, a
small program matched in for entrodraft.
"""

import collections
import contextlib
import gzip
import importlib.util
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TASKS = ROOT / "bench/tasks"
sys.path.insert(0, str(TASKS))

import items  # noqa: E402
import loaders  # noqa: E402
import measure  # noqa: E402
import options as command_line  # noqa: E402
import scores  # noqa: E402
import table  # noqa: E402

BINARY = None

# Answers a prompt with its words in reverse; twice as fast with a draft, and another text with the draft "liar".
STAND_IN = """#!{python}
import json, sys
words = sys.argv[1:]
value = lambda name: words[words.index(name) + 1] if name in words else None
if words[0] == "--version":
    print("entrodraft 9.9")
elif words[0] == "tokenize":
    for line in map(json.loads, open(value("--input"))):
        ids = [len(word) for word in line["text"].split()]
        print(json.dumps({{"id": line["id"], "token_ids": [0] * ("--add-special-tokens" in words) + ids}}))
elif value("--target") == "broken":
    sys.exit("entrodraft: no such model")
else:
    code = 0
    with open(value("--output"), "w") as out, open(value("--output") + ".log", "a") as log:
        for line in map(json.loads, open(value("--input"))):
            print(value("--draft"), value("--stop-rule"), line["id"], file=log)
            prompt = line.get("prompt", "") or " ".join(map(str, line.get("prompt_token_ids", [])))
            prompt = prompt or line["messages"][-1]["content"]
            if "TOO LONG" in prompt:
                out.write(json.dumps({{"id": line["id"], "error": "prompt too long"}}) + "\\n")
                code = 3
                continue
            said = prompt.split()[::-1] + (["and"] if value("--draft") == "liar" else [])
            drafts = value("--draft") is not None
            stats = {{"new_tokens": len(said), "target_passes": len(said) // (2 if drafts else 1),
                     "seconds": 0.002 * len(said) / (2 if drafts else 1), "ms_per_token": 0.5 if drafts else 1.5,
                     "drafted": len(said) if drafts else 0, "accepted": len(said) // 2 if drafts else 0}}
            out.write(json.dumps({{"id": line["id"], "text": " ".join(said), "token_ids": [len(w) for w in said],
                                  "finish_reason": "length", "stats": stats}}) + "\\n")
    sys.exit(code)
"""


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        return path

    def stand_in(self):
        path = self.write("entrodraft", STAND_IN.format(python=sys.executable))
        path.chmod(0o755)
        return path


class Loaders(WithFolder):
    def load(self, task, file, reference=None, **reading):
        return list(loaders.load(task, file, reference, loaders.Reading(**reading)))

    def refusal(self, task, file, reference=None):
        with self.assertRaises(items.BadInput) as caught:
            self.load(task, file, reference)
        message = str(caught.exception)
        self.assertNotIn("\n", message)
        return message.replace(str(self.folder) + "/", "")

    def test_c4_gives_the_first_words_and_leaves_short_documents_out(self):
        texts = ("one two  three four", "one", "a\nb c", "two words")
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        for file in (self.write("c4.json", lines), self.write("c4.json.gz", gzip.compress(lines.encode()))):
            found = self.load("c4", file, prompt_words=2)
            self.assertEqual([item.prompt for item in found], ["one two", "a\nb"])
            self.assertEqual([item.id for item in found], ["c4/1", "c4/3"])
            self.assertEqual(found[0].references, [])

    def test_c4_is_read_no_further_than_asked(self):
        file = self.write("c4.json", '{"text": "one two three"}\nnot JSON\n')
        first = next(loaders.load("c4", file, None, loaders.Reading(prompt_words=2)))
        self.assertEqual(first.prompt, "one two")

    def test_bad_json_names_file_and_line(self):
        cut_off = self.write("c4.json", '{"text": "a b"}\n{"text"')
        self.assertTrue(self.refusal("c4", cut_off).startswith("c4.json:2:"))
        self.assertEqual(self.refusal("c4", self.write("c4.json", '{"txt": "a"}')),
                         'c4.json:1: field "text" is missing, empty or no text')
        self.assertEqual(self.refusal("c4", self.write("c4.json", b'{"text": "a"}\n\xff')),
                         "c4.json:2: not UTF-8 (invalid start byte)")
        self.assertEqual(self.refusal("c4", self.folder / "none.json"), "none.json: No such file or directory")
        self.assertTrue(self.refusal("c4", self.write("c4.json.gz", "no gzip")).startswith("c4.json.gz: "))

    def test_plain_parallel_files_are_paired_by_line(self):
        source = self.write("news.de", "Guten Tag\nWas\u2028nun\n")
        target = self.write("news.en", "Hello\nWhat now\n")
        found = self.load("wmt", source, target, template="German: {text}\nEnglish:")
        self.assertEqual([(item.prompt, item.references) for item in found],
                         [("German: Guten Tag\nEnglish:", ["Hello"]),
                          ("German: Was\u2028nun\nEnglish:", ["What now"])])

    def test_parallel_files_that_do_not_match_are_refused(self):
        source = self.write("news.de", "eins\nzwei\n")
        self.assertEqual(self.refusal("wmt", source, self.write("news.en", "one\n")).replace(str(self.folder), ""),
                         "news.en: 1 sentences, but news.de has 2")
        self.assertEqual(self.refusal("wmt", source, self.write("news.en", "one\n\n")),
                         "news.en:2: an empty sentence; drop it from both files")

    def test_sgm_is_paired_by_document_and_segment(self):
        source = self.write("src.sgm", '<srcset setid="x"><doc docid="d1">\n<p>\n<seg id="1">Tom &amp; Eva</seg>\n'
                                       '<seg id="2">zwei\nZeilen</seg></p></doc>')
        target = self.write("ref.sgm", '<refset>\n<DOC sysid="ref" docid="d1"><hl><seg id="1">Tom &amp; Eve</seg>'
                                       '</hl><seg id="2">two lines</seg></DOC>')
        found = self.load("wmt", source, target)
        self.assertEqual([(item.prompt, item.references) for item in found],
                         [("Tom & Eva", ["Tom & Eve"]), ("zwei Zeilen", ["two lines"])])
        other = self.write("other.sgm", '<doc docid="d1"><seg id="1">a</seg>\n<seg id="3">b</seg></doc>')
        self.assertEqual(self.refusal("wmt", source, other),
                         "other.sgm:2: segment 3 of document d1, where src.sgm:4 has segment 2 of document d1")
        self.assertEqual(self.refusal("wmt", self.write("bad.sgm", '<doc>\n<seg id="1">a'), target),
                         "bad.sgm:2: <seg> without </seg>")
        self.assertEqual(self.refusal("wmt", self.write("bad.sgm", "no markup"), target), "bad.sgm: no <seg> in it")

    def test_iwslt_reads_xml_and_plain_files_with_tags(self):
        xml = '<?xml version="1.0"?>\n<mteval><{set}><doc docid="7"><title>T</title>\n<seg id="1"> {text} </seg>' \
              '</doc></{set}></mteval>'
        source = self.write("tst.de-en.de.xml", xml.format(set="srcset", text="eins & zwei"))
        target = self.write("tst.de-en.en.xml", xml.format(set="refset", text="one &amp; two"))
        ((item,)) = self.load("iwslt", source, target)
        self.assertEqual((item.prompt, item.references), ("eins & zwei", ["one & two"]))
        source = self.write("train.tags.de-en.de", "<url>x</url>\n<title>Titel</title>\nEins\n<url>u</url>\nZwei\n")
        target = self.write("train.tags.de-en.en", "<url>x</url>\nOne\n<keywords>k</keywords>\nTwo\n")
        found = self.load("iwslt", source, target)
        self.assertEqual([(item.id, item.prompt, item.references) for item in found],
                         [("iwslt/3", "Eins", ["One"]), ("iwslt/5", "Zwei", ["Two"])])

    def test_cnn_dm_reads_json_csv_and_stories(self):
        entry = {"id": "x", "article": "Long, \"news\".", "highlights": "Short.\nNews."}
        other = {**entry, "article": "More"}
        files = [self.write("a.jsonl", json.dumps(entry) + "\n\n" + json.dumps(other)),
                 self.write("a.json", json.dumps([entry, other], indent=1)),
                 self.write("a.csv", 'id,article,highlights\nx,"Long, ""news"".","Short.\nNews."\n'
                                     'x,More,"Short.\nNews."\n')]
        for file in files:
            found = self.load("cnn-dm", file, template="Summarize: {text}\n")
            self.assertEqual([(item.prompt, item.references) for item in found],
                             [("Summarize: Long, \"news\".\n", ["Short.\nNews."]),
                              ("Summarize: More\n", ["Short.\nNews."])], file.name)
        self.write("b.story", "Second.\n\n@highlight\n\nS")
        self.write("a.story", "First.\nMore.\n\n@highlight\n\nOne\nline\n\n@highlight\n\nTwo\n")
        found = self.load("cnn-dm", self.folder)
        self.assertEqual([(item.id, item.prompt, item.references) for item in found],
                         [("cnn-dm/a", "First.\nMore.", ["One line\nTwo"]), ("cnn-dm/b", "Second.", ["S"])])

    def test_bad_articles_name_file_and_place(self):
        self.assertEqual(self.refusal("cnn-dm", self.write("a.csv", "article,summary\nx,y\n")),
                         'a.csv:2: field "highlights" is missing, empty or no text')
        self.assertEqual(self.refusal("cnn-dm", self.write("a.json", '[{"article": "x", "highlights": "y"}, 3]')),
                         "a.json:entry 2: not a JSON object")
        self.assertTrue(self.refusal("cnn-dm", self.write("a.json", "[\n{]\n")).startswith("a.json:2: not JSON"))
        self.assertIn("needs an article", self.refusal("cnn-dm", self.write("a.story", "only text")))
        (self.folder / "empty").mkdir()
        self.assertEqual(self.refusal("cnn-dm", self.folder / "empty"), "empty: no *.story in it")

    def test_an_article_may_be_longer_than_csv_allows_by_default(self):
        file = self.write("a.csv", "article,highlights\n" + "x" * 200_000 + ",y\n")
        self.assertEqual(len(self.load("cnn-dm", file)[0].prompt), 200_000)

    def test_xsum_reads_json_and_both_kinds_of_summary_files(self):
        file = self.write("x.json", json.dumps({"document": "Long.", "summary": "Short.", "id": 4}))
        ((item,)) = self.load("xsum", file)
        self.assertEqual((item.prompt, item.references), ("Long.", ["Short."]))
        one = self.write("1.summary", "[SN]URL[SN]\nhttp://x\n\n[SN]TITLE[SN]\nT\n\n[SN]FIRST-SENTENCE[SN]\nS.\n\n"
                                      "[SN]RESTBODY[SN]\nA.\nB.\n")
        two = self.write("2.summary", "[XSUM]URL[XSUM]\nx\n[XSUM]INTRODUCTION[XSUM]\nS.\n"
                                      "[XSUM]RESTBODY[XSUM]\nA.\nB.\n")
        for file in (one, two):
            ((item,)) = self.load("xsum", file)
            self.assertEqual((item.prompt, item.references), ("A.\nB.", ["S."]))
        self.assertEqual(self.refusal("xsum", self.write("3.summary", "text\n")),
                         "3.summary:1: text before the first mark, such as [SN]URL[SN]")
        self.assertIn("needs RESTBODY", self.refusal("xsum", self.write("3.summary", "[SN]RESTBODY[SN]\nA\n")))


class Bundled(unittest.TestCase):
    def test_the_bundled_prompts_are_complete(self):
        found = items.bundled(items.BUNDLED)
        counts = collections.Counter(item.category for item in found)
        self.assertEqual(sum(counts.values()), 480 + 164 + 48)
        self.assertEqual((counts["spec-bench qa"], counts["spec-bench writing"]), (80, 10))
        self.assertEqual((counts["human-eval"], counts["books persuasion"]), (164, 16))
        self.assertEqual(len({item.id for item in found}), len(found))
        self.assertEqual(sum(len(item.later_turns) for item in found), 80)

    def test_a_score_has_references(self):
        for item in items.bundled(["spec-bench"]):
            if item.category in scores.KINDS:
                self.assertTrue(item.references and all(isinstance(text, str) for text in item.references), item.id)

    def test_books_keep_away_from_the_demo_prompts(self):
        demo = [json.loads(line)["prompt"]
                for line in (ROOT / "model/demo/prompts_text.jsonl").read_text(encoding="utf-8").splitlines()]
        for item in items.bundled(["books"]):
            self.assertFalse([prompt for prompt in demo if prompt in item.prompt], item.id)

    def test_categories_are_chosen_by_their_short_names(self):
        found = items.chosen(items.bundled(items.BUNDLED), ["qa", "human-eval"], 3)
        self.assertEqual(items.categories_of(found), ["spec-bench qa", "human-eval"])
        self.assertEqual(len(found), 6)
        with self.assertRaisesRegex(ValueError, "no category x; there are writing, roleplay"):
            items.chosen(items.bundled(items.BUNDLED), ["x"], 3)


class Scores(WithFolder):
    def test_pass_at_k_is_the_unbiased_estimate(self):
        self.assertAlmostEqual(scores.pass_at_k(5, 2, 1), 0.4)
        self.assertAlmostEqual(scores.pass_at_k(5, 2, 2), 0.7)  # 1 - (3 choose 2) / (5 choose 2)
        self.assertEqual(scores.pass_at_k(5, 4, 2), 1)
        self.assertEqual(scores.pass_at_k(5, 0, 5), 0)

    def test_texts_that_are_not_those_of_a_run_are_refused(self):
        item = {"id": "a", "category": "wmt", "prompt": "x", "references": ["y"]}
        for kept in ([], {}, {"items": [item]}, {"items": [{"id": "a"}], "texts": {}}, {"items": [7], "texts": {}},
                     {"items": [item], "texts": {"plain": {"a": [7]}}}, {"items": [item], "texts": [1]},
                     {"items": [item], "texts": {"plain": {"a": "y"}}},
                     {"items": [{**item, "references": 7}], "texts": {}}):
            self.write("texts.json", json.dumps(kept))
            with self.assertRaisesRegex(items.BadInput, "texts.json: not what run.py"):
                scores.read_texts(self.folder)
        self.write("texts.json", json.dumps({"items": [item], "texts": {"plain": {"a": ["y"]}}}))
        self.assertEqual(scores.read_texts(self.folder)[1], {"plain": {"a": ["y"]}})

    def test_pass_at_k_of_results_by_problem(self):
        lines = [("a", True), ("a", False), ("b", False), ("b", False)]
        file = self.write("r.jsonl", "".join(json.dumps({"task_id": t, "passed": p}) + "\n" for t, p in lines))
        self.assertEqual(scores.outcomes(file), {"a": (2, 1), "b": (2, 0)})
        self.assertEqual(scores.pass_table([file], [1, 2])[1].split(), ["r.jsonl", "2", "0.2500", "0.5000"])
        with self.assertRaisesRegex(items.BadInput, "2 samples of a; pass@3 needs 3"):
            scores.pass_table([file], [3])
        with self.assertRaisesRegex(items.BadInput, r"r.jsonl:1: needs .*passed"):
            scores.outcomes(self.write("r.jsonl", '{"task_id": "a"}\n'))
        with self.assertRaisesRegex(items.BadInput, "neither true nor false"):
            scores.outcomes(self.write("r.jsonl", '{"task_id": "a", "passed": "yes"}\n'))

    def test_a_completion_ends_where_the_margin_is_left(self):
        self.assertEqual(scores.completion("    return 1\n\nprint(f())\ndef g():"), "    return 1\n")
        self.assertEqual(scores.completion("    return 1"), "    return 1")

    def test_samples_have_the_harness_format_and_only_human_eval(self):
        found = [items.Item("HumanEval/0", "human-eval", "def f():"), items.Item("books/0", "books x", "It was")]
        texts = {"HumanEval/0": ["    return 1\ndef g", "    return 2"], "books/0": ["dark"]}
        path = self.folder / "samples.jsonl"
        self.assertEqual(scores.write_samples(path, found, texts), 2)
        self.assertEqual([json.loads(line) for line in path.read_text().splitlines()],
                         [{"task_id": "HumanEval/0", "completion": "    return 1"},
                          {"task_id": "HumanEval/0", "completion": "    return 2"}])

    def test_exact_match_ignores_case_articles_and_punctuation(self):
        found = scores.contains(["The Beatles!", "It was Ringo, I think", "ringostar"],
                                [["beatles"], ["Ringo"], ["ringo"]])
        self.assertAlmostEqual(found["exact match"], 100 / 3)
        self.assertAlmostEqual(found["answer in text"], 200 / 3)

    def test_numbers_match_by_the_last_one(self):
        self.assertEqual(scores.last_number("2 and $1,234.50."), 1234.5)
        self.assertIsNone(scores.last_number("none"))
        found = scores.number(["so 3 + 4 = 7.", "none"], [["3+4=<<7>>\n#### 7"], ["#### 7"]])
        self.assertEqual(found["exact match, last number"], 50)

    def test_both_sides_are_scored_beside_each_other(self):
        found = [items.Item(str(i), "spec-bench math_reasoning", "?", ["#### 7"]) for i in range(3)]
        lines = scores.score_table(found, {"plain": {"0": ["7"], "1": ["7"], "2": ["7"]},
                                           "static": {"0": ["7"], "1": ["8"]}})
        self.assertEqual(lines[0].split()[-2:], ["plain", "static"])
        self.assertEqual(lines[1].split()[-3:], ["2", "100.00", "50.00"])  # without the one that static did not serve

    def test_a_missing_package_is_named(self):
        found = [items.Item("0", "wmt", "?", ["yes"])]
        measures = dict(scores.MEASURES)
        self.addCleanup(scores.MEASURES.update, measures)

        def missing(*_):
            raise scores.MissingPackage("sacrebleu")
        scores.MEASURES["bleu"] = missing
        line = scores.score_table(found, {"plain": {"0": ["y"]}})[1]
        self.assertIn("skipped, the package sacrebleu is not installed", line)

    @unittest.skipUnless(importlib.util.find_spec("sacrebleu"), "sacrebleu is not installed")
    def test_bleu_of_known_texts(self):
        reference = [["the cat sat on the mat today"]]
        self.assertAlmostEqual(scores.bleu(["the cat sat on the mat today\n"], reference)["BLEU"], 100)
        # Precisions 7/8, 6/7, 5/6 and 4/5, as long as the reference and one more: their geometric mean.
        expected = 100 * (7 / 8 * 6 / 7 * 5 / 6 * 4 / 5) ** 0.25
        found = scores.bleu(["the cat sat on the mat today again"], reference)
        self.assertAlmostEqual(found["BLEU"], expected, places=4)

    @unittest.skipUnless(importlib.util.find_spec("rouge_score"), "rouge-score is not installed")
    def test_rouge_of_known_texts(self):
        found = scores.rouge(["alpha gamma beta delta"], [["alpha beta gamma delta"]])
        self.assertAlmostEqual(found["ROUGE-1"], 100)
        self.assertAlmostEqual(found["ROUGE-2"], 0)
        self.assertAlmostEqual(found["ROUGE-L"], 75)  # three of four in order


class Table(unittest.TestCase):
    def units(self, *pairs):
        return [(table.Sums(tokens=p[0], seconds=p[1], decoding_seconds=p[1], passes=p[0]),
                 table.Sums(tokens=s[0], seconds=s[1], decoding_seconds=s[1], passes=s[0] // 2)) for p, s in pairs]

    def test_students_t_goes_on_where_the_table_ends(self):
        for n, value in ((2, 12.71), (10, 2.262), (11, 2.228), (31, 2.042), (121, 1.980), (481, 1.965)):
            self.assertAlmostEqual(table.students_t(n), value, places=3 if n > 2 else 2)

    def test_noise_that_hits_both_sides_alike_does_not_widen_the_interval(self):
        ratio, (low, high) = table.speed_up(self.units(*(((10, s), (10, s / 2)) for s in (1.0, 8.0, 3.0))))
        for value in (ratio, low, high):
            self.assertAlmostEqual(value, 2)

    def test_the_interval_is_that_of_the_paired_ratio_estimate(self):
        plain, own = [1.0, 2.0, 4.0], [0.5, 1.2, 1.9]
        ratio, (low, high) = table.speed_up(self.units(*(((10, p), (10, s)) for p, s in zip(plain, own))))
        self.assertAlmostEqual(ratio, 7 / 3.6)
        # The i.i.d. model's ratio estimator: residuals p - ratio s over the mean of s, here relative to the ratio.
        residuals = [p - ratio * s for p, s in zip(plain, own)]
        error = math.sqrt(sum(r * r for r in residuals) / (3 * 2)) / (sum(own) / 3) / ratio
        self.assertAlmostEqual(math.log(high / ratio), 4.303 * error, places=9)
        self.assertAlmostEqual(math.log(ratio / low), 4.303 * error, places=9)

    def test_texts_of_other_lengths_count_by_token(self):
        ratio, (low, high) = table.speed_up(self.units(((10, 1.0), (20, 1.0)), ((20, 2.0), (10, 0.5))))
        for value in (ratio, low, high):
            self.assertAlmostEqual(value, 2)

    def test_one_prompt_has_no_interval(self):
        ratio, interval = table.speed_up(self.units(((10, 1.0), (10, 0.5))))
        self.assertEqual((ratio, interval), (2, None))

    def test_repetitions_are_told_apart(self):
        def stats(seconds):
            return {"stats": {"new_tokens": 10, "target_passes": 5, "seconds": seconds, "ms_per_token": 1.0,
                              "drafted": 6, "accepted": 3}}
        asked = [measure.Asked(items.Item("q", "x", "?"), turn, 0, {"id": turn}) for turn in (1, 2)]
        results = {"plain": {1: [stats(4), stats(2)], 2: [stats(4), stats(2)]},
                   "own": {1: [stats(1), stats(2)], 2: [stats(3), stats(2)]}}
        row = table.speed_table(asked, results, "own")[1]
        self.assertEqual(row.split()[:3], ["x", "1", "20"])
        self.assertIn(" 1.500 (one prompt)        1.000 to 2.000 ", row)

    def test_figures_are_by_category_and_failed_prompts_count_on_no_side(self):
        stats = {"new_tokens": 12, "target_passes": 12, "seconds": 0.024, "ms_per_token": 1.0, "drafted": 0,
                 "accepted": 0}
        own = {**stats, "target_passes": 4, "seconds": 0.012, "ms_per_token": 0.8, "drafted": 16, "accepted": 8}
        asked = [measure.Asked(items.Item(i, category, "?"), 1, 0, {"id": i})
                 for i, category in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"))]
        results = {"plain": {key: [{"stats": stats}] for key in "abcd"},
                   "own": {key: [{"stats": own}] for key in "abc"}}
        results["own"]["d"] = [{"error": "too long"}]
        asked[0].is_cut = True
        lines = table.speed_table(asked, results, "own")
        self.assertEqual([line.split()[0] for line in lines[1:4]], ["x", "y", "total"])
        self.assertEqual(lines[1].split(), ["x", "2", "24", "3.00", "0.500", "2.0000", "1.0000", "2.000", "(2.000",
                                            "to", "2.000)", "-", "1.250"])
        self.assertEqual(lines[3].split()[:3], ["total", "3", "36"])
        self.assertEqual(lines[4:], ["prompts left out, with an error: 1 of y",
                                     "prompts cut to their last tokens: 1 of x", "the first error: d: too long"])


class Measure(WithFolder):
    def options(self, **changes):
        values = {"binary": self.stand_in(), "launcher": [], "target": "t", "chunk": 2, "repetitions": 2,
                  "chat": False, "samples": 1}
        return types.SimpleNamespace(**{**values, **changes})

    def asked(self, *prompts, category="x"):
        found = [items.Item(f"{category}{i}", category, prompt) for i, prompt in enumerate(prompts)]
        return measure.first_turn(self.options(), found)

    def test_chunks_hold_one_category(self):
        chunks = list(measure.chunks_of(self.asked("a", "b", "c") + self.asked("d", category="y"), 2))
        self.assertEqual([[one.item.id for one in chunk] for chunk in chunks], [["x0", "x1"], ["x2"], ["y0"]])

    def test_contenders_take_turns_and_begin_with_a_prompt_that_is_not_counted(self):
        contenders = [measure.Contender("plain", [], True), measure.Contender("own", ["--draft", "d"], True)]
        asked = self.asked("a b", "c d e", "f")
        with contextlib.redirect_stderr(io.StringIO()):
            results = measure.run_all(self.options(), contenders, asked, self.folder)
        log = [line.split() for line in (self.folder / "answered.jsonl.log").read_text().splitlines()]
        calls = [line[0] for line in log if line[2] == "warm-up"]
        self.assertEqual(calls, ["None", "d", "d", "None", "d", "None", "None", "d"])
        self.assertEqual([len(found) for found in results["own"].values()], [2, 2, 2])
        self.assertEqual(results["own"]["x1#1.0"][0]["text"], "e d c")
        self.assertEqual(measure.differing(contenders[1], results, asked), ([], 3))

    def test_a_prompt_is_cut_to_its_last_tokens_behind_the_tokens_of_the_template(self):
        asked = self.asked("a bb ccc dddd", "a bb")
        measure.shorten(self.options(), asked, 3, True, self.folder)
        self.assertEqual(asked[0].line, {"id": "x0#1.0", "prompt_token_ids": [0, 3, 4]})
        self.assertEqual(asked[1].line["prompt"], "a bb")
        self.assertEqual([one.is_cut for one in asked], [True, False])
        asked = self.asked("a bb ccc dddd")
        measure.shorten(self.options(), asked, 3, False, self.folder)
        self.assertEqual(asked[0].line["prompt_token_ids"], [0, 1, 2])
        with self.assertRaisesRegex(measure.Failed, "cannot be cut to 1 tokens"):
            measure.shorten(self.options(), self.asked("a bb"), 1, True, self.folder)

    def test_a_second_turn_follows_plain_decodings_answer(self):
        item = items.Item("q", "x", "First?", later_turns=["Second?"])
        for chat, expected in ((False, {"prompt": "First? Yes.\n\nSecond?\n\n"}),
                               (True, {"messages": [{"role": "user", "content": "First?"},
                                                    {"role": "assistant", "content": " Yes."},
                                                    {"role": "user", "content": "Second?"}]})):
            options = self.options(chat=chat)
            asked = measure.first_turn(options, [item, items.Item("r", "x", "Alone?")])
            following = measure.next_turn(options, asked, {"q#1.0": [{"text": " Yes."}], "r#1.0": [{"text": "!"}]})
            self.assertEqual([one.line for one in following], [{"id": "q#2.0", **expected}])

    def test_an_error_of_the_program_is_one_line(self):
        with self.assertRaisesRegex(measure.Failed, "exit code 1: entrodraft: no such model$"):
            measure.generate(self.options(target="broken"), measure.Contender("plain", [], True),
                             [{"id": 1, "prompt": "x"}], self.folder)


class Options(WithFolder):
    def refusal(self, *arguments):
        said = io.StringIO()
        base = ["--target", "t", "--binary", sys.executable]
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            command_line.parse([*base, *arguments])
        self.assertEqual(ended.exception.code, 2)
        self.assertEqual(said.getvalue().count("\n"), 1, said.getvalue())
        return said.getvalue()

    def test_what_is_wrong_or_has_no_effect_is_refused(self):
        self.write("there", "x")
        for arguments, reason in (
                ("", "nothing to draft with"),
                ("--draft d --tasks qa", "no task qa"),
                ("--draft d --task wmt", "--task wmt needs --file"),
                ("--draft d --task wmt --file f", "needs --reference"),
                ("--draft d --task wmt --file f --reference r", "needs --languages"),
                ("--draft d --task c4 --file f --reference r", "--reference has no effect on c4"),
                ("--draft d --task c4 --file f --tasks books", "--task reads a file"),
                ("--draft d --file f", "need --task"),
                ("--draft d --task xsum --file f --template x", "{text} once"),
                ("--draft d --task xsum --file f --prompt-words 3", "are for c4"),
                ("--draft d --task c4 --file f --prompt-words 3 --prompt-tokens 3", "not both"),
                ("--draft d --chat --max-prompt-tokens 9", "not with --chat"),
                ("--draft d --tasks books --turns 2", "only spec-bench"),
                ("--draft d --chat-template zephyr", "no effect without --chat"),
                ("--draft d --temperature nan", "0 or more"),
                ("--draft d --samples 2", "no effect at temperature 0"),
                ("--draft d --acceptance gumbel", "--acceptance gumbel has no effect"),
                ("--draft d --rules static:", "empty part"),
                ("--draft d --rules static,static", "twice"),
                ("--draft d --prompts -1", "whole number from 0"),
                (f"--draft d --output {self.folder}", "not empty"),
                ("--draft d --binary none", "no program none")):
            with self.subTest(arguments):
                self.assertIn(reason, self.refusal(*arguments.split()))

    def test_rules_are_spelled_as_in_bench_compare(self):
        self.assertEqual(command_line.rule_arguments("moving-average:0.5:3"),
                         ["--stop-rule", "moving-average:0.5:3"])
        self.assertEqual(command_line.rule_arguments("expected-gain"), ["--stop-rule", "expected-gain"])


def run(*arguments):
    return subprocess.run([sys.executable, str(TASKS / "run.py"), *map(str, arguments)], capture_output=True,
                          text=True, check=False, timeout=600)


class Run(WithFolder):
    def run_stand_in(self, *arguments, draft="d"):
        return run("--target", "t", "--draft", draft, "--binary", self.stand_in(), *arguments)

    def test_a_table_is_printed_and_everything_kept(self):
        out = self.folder / "out"
        done = self.run_stand_in("--categories", "qa,human-eval", "--prompts", 3, "--rules", "static:2.25,adaedl",
                                 "--output", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("static:2.25: 6 of 6 texts equal plain decoding's", done.stdout)
        rows = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual(sum(row[:3] == ["spec-bench", "qa", "3"] for row in rows), 2)
        self.assertTrue(all("2.000" in row for row in rows if row[:1] == ["total"]))
        self.assertEqual(sorted(path.name for path in out.iterdir()),
                         ["results-adaedl.jsonl", "results-plain.jsonl", "results-static-2.25.jsonl",
                          "samples-adaedl.jsonl", "samples-plain.jsonl", "samples-static-2.25.jsonl", "table.txt",
                          "texts.json"])
        self.assertEqual(len((out / "samples-plain.jsonl").read_text().splitlines()), 3)

    def test_texts_that_differ_where_none_may_end_the_run_without_figures(self):
        done = self.run_stand_in("--categories", "qa", "--prompts", 2, draft="liar")
        self.assertEqual(done.returncode, 1)
        self.assertIn("2 of 2 texts DIFFER from plain decoding's, where none may; the first is", done.stdout)
        self.assertNotIn("total", done.stdout)

    def test_texts_that_may_differ_are_counted(self):
        done = self.run_stand_in("--categories", "qa", "--prompts", 2, "--temperature", 1, "--acceptance", "block",
                                 draft="liar")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 of 2 texts differ from plain decoding's, as this acceptance may make them", done.stdout)
        self.assertIn("total", done.stdout)

    def test_second_turns_are_asked(self):
        done = self.run_stand_in("--categories", "writing", "--prompts", 2, "--turns", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("4 of 4 texts equal", done.stdout)

    def test_a_run_in_which_no_prompt_was_served_fails(self):
        file = self.write("x.jsonl", '{"document": "TOO LONG", "summary": "b"}\n')
        done = self.run_stand_in("--task", "xsum", "--file", file)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no text to compare", done.stdout)
        self.assertIn("the first error: xsum/1: prompt too long", done.stdout)

    def test_an_unknown_category_is_a_bad_option(self):
        done = self.run_stand_in("--tasks", "books", "--categories", "qa")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_a_users_file_is_run_and_its_bad_line_named(self):
        good = '{"document": "a b c", "summary": "a"}\n'
        file = self.write("x.jsonl", good + '{"document": "TOO LONG", "summary": "b"}\n')
        done = self.run_stand_in("--task", "xsum", "--file", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 of 1 texts equal", done.stdout)
        self.assertIn("prompts left out, with an error: 1 of xsum", done.stdout)
        self.assertIn("the first error: xsum/2: prompt too long", done.stdout)
        file = self.write("x.jsonl", good + '{"document"\n')
        done = self.run_stand_in("--task", "xsum", "--file", file)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^run.py: .*x.jsonl:2: not JSON.*\n$")

    def test_texts_can_be_scored_again(self):
        out = self.folder / "out"
        self.run_stand_in("--categories", "rag", "--prompts", 2, "--output", out)
        done = subprocess.run([sys.executable, str(TASKS / "scores.py"), "texts", str(out)], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("answer in text", done.stdout)
        done = subprocess.run([sys.executable, str(TASKS / "scores.py"), "texts", str(self.folder)],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("texts.json: No such file", done.stderr)


class RunOfTheDemoModels(WithFolder):
    def setUp(self):
        super().setUp()
        if not BINARY:
            self.skipTest("needs --binary")

    def run_demo(self, *arguments):
        done = run("--target", ROOT / "model/demo/target", "--draft", ROOT / "model/demo/draft", "--binary", BINARY,
                   "--threads", 1, "--max-new-tokens", 16, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout

    def test_greedy_texts_equal_plain_decoding(self):
        printed = self.run_demo("--prompts", 1, "--categories", "writing,human-eval,persuasion", "--turns", 2)
        self.assertIn("4 of 4 texts equal", printed)

    def test_sampled_texts_equal_plain_decoding(self):
        out = self.folder / "out"
        printed = self.run_demo("--prompts", 2, "--categories", "persuasion", "--temperature", 1, "--samples", 2,
                                "--output", out)
        self.assertIn("acceptance gumbel", printed)
        self.assertIn("4 of 4 texts equal", printed)
        texts = json.loads((out / "texts.json").read_text())["texts"]["plain"]
        self.assertEqual([len(set(samples)) for samples in texts.values()], [2, 2])

    def test_prompts_are_cut_to_exactly_so_many_tokens(self):
        out = self.folder / "out"
        printed = self.run_demo("--prompts", 2, "--categories", "rag", "--max-prompt-tokens", 50, "--output", out)
        self.assertIn("prompts cut to their last tokens: 2 of spec-bench rag", printed)
        results = [json.loads(line) for line in (out / "results-plain.jsonl").read_text().splitlines()]
        self.assertEqual([result["stats"]["prompt_tokens"] for result in results], [50, 50])


if __name__ == "__main__":
    if "--binary" in sys.argv:
        place = sys.argv.index("--binary")
        BINARY = os.path.abspath(sys.argv[place + 1])
        del sys.argv[place:place + 2]
    unittest.main()
