#!/usr/bin/env python3
"""bench/theory.py: formulas against enumeration and the paper's own numbers, and the command from outside."""

import contextlib
import fractions
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import theory  # noqa: E402


def command(*words):
    """(code, standard output, standard error) of theory.py."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            theory.main(words)
        except SystemExit as end:
            return end.code, out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def result_of(*words):
    code, out, err = command(*words, "--json")
    assert code == 0, err
    return json.loads(out)


class Formulas(unittest.TestCase):
    def test_expected_tokens_are_the_mean_over_all_outcomes_of_a_round(self):
        for alpha in (0, 0.3, 0.8, 1):
            for k in (0, 1, 4, 15):
                outcomes = [(alpha ** accepted * (1 - alpha if accepted < k else 1), accepted + 1)
                            for accepted in range(k + 1)]
                self.assertAlmostEqual(sum(chance for chance, _ in outcomes), 1)
                self.assertAlmostEqual(theory.expected_tokens(alpha, k), sum(p * tokens for p, tokens in outcomes))

    def test_the_best_length_is_the_shortest_of_the_fastest_in_exact_arithmetic(self):
        def factor(alpha, k, c):
            return sum(alpha ** i for i in range(k + 1)) / (k * c + 1)

        for alpha in (0.1, 0.5, 0.85, 1):
            for c in (0, 0.05, 0.3, 1):
                exact = [factor(fractions.Fraction(alpha), k, fractions.Fraction(c)) for k in range(16)]
                row = theory.best_length(alpha, c, c, 15)
                self.assertAlmostEqual(row["walltime_factor"], float(max(exact)))
                if not (alpha == 1 and c == 1):  # where all are equal
                    self.assertEqual(row["best_k"], exact.index(max(exact)), (alpha, c))

    def test_pass_times_are_on_lines_through_what_was_timed(self):
        times = theory.PassTimes([1.0, None, 1.4, None, 1.8])
        self.assertAlmostEqual(times.of(1), 1.0)
        self.assertAlmostEqual(times.of(2), 1.2)
        self.assertAlmostEqual(times.of(128), 1 + 127 * 0.2)
        self.assertAlmostEqual(theory.PassTimes([3.0]).of(9), 3.0)
        bent = theory.PassTimes([1.0, 1.0, 4.0])
        self.assertEqual([bent.of(rows) for rows in (1, 2, 3, 5)], [1, 1, 4, 10])

    def test_goodput_of_one_sequence_over_free_rows_is_the_walltime_factor(self):
        target, draft = theory.PassTimes([1.0]), theory.PassTimes([0.05])
        row = theory.best_length(0.8, 0.05, 0.05, 15)
        k, ratio = theory.best_goodput(0.8, 1, target, draft, 128)
        self.assertEqual(k, row["best_k"])
        self.assertAlmostEqual(ratio, row["walltime_factor"])

    def test_goodput_by_hand_drafts_less_as_batches_grow_and_then_nothing(self):
        # A pass takes 0.9 + 0.1 a row, a draft pass 0.1: at 2 sequences and k 1 that is 2 * 1.5 tokens in 1.3 + 0.1.
        target, draft = theory.PassTimes([1.0, 1.1]), theory.PassTimes([0.1])
        self.assertAlmostEqual(theory.goodput(0.5, 1, 2, target, draft), 3 / 1.4)
        lengths = [theory.best_goodput(0.5, batch, target, draft, 128)[0] for batch in (1, 4, 16, 64)]
        self.assertEqual(lengths, sorted(lengths, reverse=True))
        self.assertGreater(lengths[0], 0)
        self.assertEqual(lengths[-1], 0)
        self.assertEqual(theory.best_goodput(0.5, 64, target, draft, 128)[1], 1)
        self.assertEqual(theory.best_goodput(1, 64, theory.PassTimes([1.0]), draft, 128)[0], 1, "two rows each, no more")

    def test_the_best_length_by_hand(self):
        # At alpha 0.8 and c 0.05 the factor rises up to k = 8, (1 - 0.8^9) / (0.2 * 1.4), and falls at 9.
        row = theory.best_length(0.8, 0.05, 0.05, 15)
        self.assertEqual(row["best_k"], 8)
        self.assertAlmostEqual(row["expected_tokens"], 4.32891136)
        self.assertAlmostEqual(row["operations_factor"], (8 * 0.05 + 9) / 4.32891136)
        self.assertAlmostEqual(row["bound"], 1.8 / 1.05)
        self.assertGreaterEqual(row["walltime_factor"], row["bound"])

    def test_nothing_is_drafted_where_it_cannot_pay(self):
        for c in (0.3, 0.5):  # Corollary 3.9: only alpha > c pays
            row = theory.best_length(0.3, c, c, 15)
            self.assertEqual((row["best_k"], row["walltime_factor"], row["operations_factor"], row["bound"]), (0, 1, 1, None))
        self.assertGreaterEqual(theory.best_length(0.3, 0.29, 0.29, 15)["best_k"], 1)

    def test_where_everything_is_accepted_drafts_go_to_the_cap(self):
        row = theory.best_length(1, 0.1, 0, 12)
        self.assertEqual((row["best_k"], row["operations_factor"]), (12, 1))
        self.assertAlmostEqual(row["walltime_factor"], 13 / 2.2)

    def test_table_1_of_the_paper(self):
        for alpha, k, walltime, operations in ((0.8, 5, 3.69, 1.63), (0.9, 10, 6.86, 1.60)):
            self.assertAlmostEqual(theory.walltime_factor(alpha, k, 0), walltime, delta=0.005)
            self.assertAlmostEqual(theory.operations_factor(alpha, k, 0), operations, delta=0.005)


class Command(unittest.TestCase):
    def test_rows_go_through_all_alphas_for_each_c(self):
        rows = result_of("--alpha", "0.5,0.9", "--c", "0,0.1", "--c-operations", "0.2,0.3", "--max-tokens", "10")["rows"]
        self.assertEqual([(row["alpha"], row["c"], row["c_operations"]) for row in rows],
                         [(0.5, 0, 0.2), (0.9, 0, 0.2), (0.5, 0.1, 0.3), (0.9, 0.1, 0.3)])

    def test_tables_and_json_say_the_same(self):
        code, text, _ = command("--alpha", "0.6,0.8", "--c", "0.05", "--max-tokens", "5")
        self.assertEqual(code, 0)
        self.assertIn("Figure 3", text)
        self.assertNotIn("k=7", text)  # longer than --max-tokens
        with tempfile.TemporaryDirectory() as work:
            output = pathlib.Path(work) / "theory.json"
            result = result_of("--alpha", "0.8,0", "--c", "0,0.05", "--c-operations", "0.1", "--output", str(output))
            self.assertEqual(result, json.loads(output.read_text()))
        self.assertEqual((result["command"], result["max_tokens"], len(result["rows"])), ("theory", 15, 4))
        self.assertEqual(result["rows"][2]["best_k"], 8)
        self.assertEqual(result["rows"][2]["c_operations"], 0.1)
        self.assertIsNone(result["rows"][1]["bound"])
        self.assertEqual(len(result["expected_tokens"]), 5 * 2)
        self.assertEqual(len(result["factors"]), 5 * 2 * 2)

    def test_bad_options_are_refused_in_one_line(self):
        for words in (["--alpha", "1.5"], ["--alpha", ""], ["--c=-1"], ["--c", "0.1,x"], ["--c", "nan"], ["--c", "inf"],
                      ["--max-tokens", "0"], ["--max-tokens", "2.5"], ["--output", "-"], ["--c-operations", "1,2"],
                      ["--c", "0.1,0.2,0.3", "--c-operations", "1,2"]):
            code, _, err = command(*words)
            self.assertEqual((code, err.count("\n")), (2, 1), (words, err))


if __name__ == "__main__":
    unittest.main()
