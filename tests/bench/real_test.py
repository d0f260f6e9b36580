#!/usr/bin/env python3
"""bench/real.py on the demo pair: what it measured is kept and not measured again, and whose texts differ is counted.

    tests/bench/real_test.py [--binary build/entrodraft]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "bench"))

import real  # noqa: E402

BINARY = os.path.abspath(sys.argv[2]) if sys.argv[1:2] == ["--binary"] else str(ROOT / "build/entrodraft")


class OnTheDemo(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        for name in ("target", "draft"):
            (self.path / f"Demo-{name}").symlink_to(ROOT / "model/demo" / name)

    def tearDown(self):
        self.directory.cleanup()

    def run_it(self, *more):
        return subprocess.run(
            [sys.executable, ROOT / "bench/real.py", "--models", self.path, "--output", self.path / "out.json",
             "--binary", BINARY, "--target", "demo-target", "--draft", "demo-draft", "--human-eval", "2",
             "--spec-bench", "0", "--new-tokens", "8", "--draft-vocab", "200", *more], capture_output=True, text=True)

    def test_goes_on_where_it_was_and_keeps_what_it_has(self):
        first = self.run_it("--repetitions", "1")
        self.assertEqual(first.returncode, 0, first.stderr)
        before = json.loads((self.path / "out.json").read_text())["turns"]
        second = self.run_it("--repetitions", "2", "--picture", self.path / "out.svg")
        self.assertEqual(second.returncode, 0, second.stderr)
        after = json.loads((self.path / "out.json").read_text())["turns"]
        self.assertEqual([name for name in before if "int4, " in name], list(before))
        for name, turns in before.items():
            self.assertEqual(turns, after[name][:1])
            self.assertEqual(len(after[name]), 2)
        rows = [line.split(" | ") for line in second.stdout.splitlines() if line.startswith("| entrodraft")]
        self.assertEqual([row[-2:] for row in rows], [["4", "4 |"]] * 3)
        self.assertIn("HumanEval: ms a token", (self.path / "out.svg").read_text())

    def test_what_was_measured_otherwise_is_not_mixed_in(self):
        self.assertEqual(self.run_it("--repetitions", "1").returncode, 0)
        other = self.run_it("--threads", "1")
        self.assertIn("was measured with threads 2, not 1", other.stderr)
        self.assertNotEqual(other.returncode, 0)

    def test_models_that_are_not_there_are_named(self):
        missing = self.run_it("--draft", "none")
        self.assertIn("left out: demo-target and its draft are not both there", missing.stdout)
        self.assertIn("nothing to measure", missing.stderr)
        program = self.run_it("--openvino", "/no/python")
        self.assertEqual(program.returncode, 2)
        self.assertIn("--openvino /no/python: no such program", program.stderr)


class Figures(unittest.TestCase):
    def test_texts_are_compared_with_the_same_engines_plain_ones(self):
        plain, draft = types.SimpleNamespace(name="p", group="plain"), types.SimpleNamespace(name="d", group="draft")
        turns = types.SimpleNamespace(of=lambda contender: {
            "p": [[["a", 1, 10], ["b", 2, 20], ["c", 3, 30]]], "d": [[["a", 1, 5], ["x", 2, 6], ["c", 3, 7]]]}[contender.name])
        prompts = [("HumanEval", []), ("HumanEval", []), ("Spec-Bench", [])]
        figures = real.figures_of([[plain, draft]], prompts, turns)
        self.assertEqual([f["as_plain"] for f in figures], [3, 2])
        self.assertEqual([f["ms of HumanEval"] for f in figures], [15, 5.5])
        self.assertEqual([f["ms of Spec-Bench"] for f in figures], [30, 7])
        self.assertEqual(figures[1]["first ms"], 2000)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
