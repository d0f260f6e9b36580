#!/usr/bin/env python3
"""bench/recording.py reads what record writes: chains, trees, and those of a draft head. bench/oracle.py and
bench/imputed.py go from prompts to their tables.

    tests/bench/recorded_test.py --binary build/entrodraft
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

BINARY = sys.argv[sys.argv.index("--binary") + 1]
DEMO = ROOT / "model/demo"


class WhatRecordWrites(unittest.TestCase):
    def record(self, *options):
        from recording import read_recording

        with tempfile.TemporaryDirectory() as work:
            prompts, output = pathlib.Path(work) / "prompts.jsonl", pathlib.Path(work) / "made.edr"
            prompts.write_text('{"prompt": "The ferry left the island"}\n{"prompt": "Once"}\n')
            subprocess.run([BINARY, "record", "--target", DEMO / "target", "--input", prompts, "--output", output,
                            "--max-new-tokens", "16", "--quiet", *map(str, options)], check=True)
            texts = read_recording(output).texts
        self.assertEqual([text.places for text in texts], [16, 16])
        return texts

    def test_chains_are_read(self):
        for text in self.record("--draft", DEMO / "draft"):
            self.assertEqual(len(text.astray(0, "token")), (~text.matches(0)).sum())
            self.assertNotIn("draft.0.tree_parent", text.columns)

    def test_trees_are_read(self):
        for text in self.record("--draft", DEMO / "draft", "--tree", "2,1"):
            self.assertGreater(len(text.of_draft(0, "tree_parent")), 16)

    def test_a_head_continues_behind_every_place(self):
        for text in self.record("--head", DEMO / "eagle3", "--tree", "2,1"):
            self.assertEqual(len(text.astray(0, "token")), 16)
            self.assertGreater(len(text.of_draft(0, "tree_parent")), 2 * 16)


class FromPromptsToTheOracle(unittest.TestCase):
    def test_every_rule_has_a_share_of_each_oracle(self):
        told = subprocess.run([sys.executable, ROOT / "bench/oracle.py", "--binary", BINARY, "--drafts", "eagle3", "--prompts",
                               "4", "--max-new-tokens", "12"], check=True, capture_output=True, text=True).stdout
        table = [line.split() for line in told.split("\n\n")[1].splitlines()[1:]]
        shares = {row[0]: [float(share) for share in row[1:]] for row in table[:-4]}
        self.assertEqual(table[len(shares) - 1][0], "expected-gain")
        self.assertLessEqual({"static", "cumulative", "moving-average", "svip", "adaedl", "disco"}, set(shares))
        for rule, each in shares.items():
            self.assertEqual(len(each), 2, rule)
            self.assertTrue(all(20 < share <= 100 for share in each), rule)


class FromARecordingToTheThesissSimulator(unittest.TestCase):
    def test_settings_are_held_against_the_exact_replay(self):
        with tempfile.TemporaryDirectory() as work:
            recording = pathlib.Path(work) / "made.edr"
            subprocess.run([BINARY, "record", "--target", DEMO / "target", "--draft", DEMO / "draft", "--input",
                            DEMO / "prompts.jsonl", "--output", recording, "--max-new-tokens", "24", "--quiet"], check=True)
            told = subprocess.run([sys.executable, ROOT / "bench/imputed.py", recording, "--binary", BINARY, "--imputed-from", "5",
                                   "--rules", "constant:1..4..1,static:1..3..1"], check=True, capture_output=True, text=True).stdout
        title, _, *rows = told.strip().splitlines()
        self.assertEqual(title, "imputed from drafts of 5")
        self.assertEqual([row.split()[:2] for row in rows], [["constant", "4"], ["static", "3"]])
        for row in rows:
            least, _, most = row.split()[2:5]
            self.assertTrue(0.7 < float(least) <= float(most) < 1.4, row)
            self.assertTrue(1 <= float(row.split()[-1]) < 1.2, "over the best there is: " + row)


if __name__ == "__main__":
    try:
        import numpy  # noqa: F401
    except ImportError:
        print("skipped: needs numpy for", sys.executable)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
