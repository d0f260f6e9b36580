"""Of the benches without a peer: do intervals hold beyond the table, do failing commands end a bench, and does tuning
see counts that differ?"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import runs  # noqa: E402
import tuning  # noqa: E402

COSTS = {"t_draft_ms": 0.1, "t_target_ms": [1.0, 1.2]}


def counted(passes, **more):
    """A setting: `passes` of one row, as many of two."""
    return {"new_tokens": 3 * passes, "rounds": 2 * passes, "drafted": passes, "accepted": passes,
            "target_passes": 2 * passes, "draft_passes": passes, "passes_of_rows": [0, passes, passes], **more}


def tuned(passes, rule):
    setting = counted(passes)
    return {**setting, "setting": rule, "rule": rule,
            "counts_times_costs_ms_per_token": tuning.ms_per_token(setting, COSTS)}


class Runs(unittest.TestCase):
    def test_intervals_hold_beyond_the_table(self):
        self.assertEqual(runs.students_t(10), 2.262)
        for n, value in ((11, 2.228), (21, 2.086), (61, 2.0003)):
            self.assertAlmostEqual(runs.students_t(n), value, places=3)
        self.assertEqual(runs.interval([1.0] * 12), "1.000 (1.000 to 1.000)")

    def test_a_command_that_fails_ends_the_bench_with_its_complaint(self):
        with self.assertRaisesRegex(SystemExit, "exit code 3: no such model"):
            runs.run([sys.executable, "-c", "import sys; print('no such model', file=sys.stderr); sys.exit(3)"])
        with self.assertRaisesRegex(SystemExit, "/no/such/program: No such file"):
            runs.run(["/no/such/program"])
        self.assertEqual(runs.run([sys.executable, "-c", "print(5)"]).stdout, "5\n")


class Tuning(unittest.TestCase):
    def test_counts_of_tune_must_be_those_of_the_sweep_but_for_expected_gain(self):
        self.assertEqual(tuning.differing([tuned(4, "static")], [counted(4)], COSTS), ([], 0))
        lines, wrong = tuning.differing([tuned(4, "static"), tuned(4, "expected-gain")], [counted(5), counted(5)],
                                        COSTS)
        self.assertEqual(wrong, 1)
        self.assertIn("static: 0.7667 ms by tune's counts, 0.7667 by the sweep's, WHICH MUST BE EQUAL: new_tokens 12 and "
                      "15", lines[0])
        self.assertNotIn("MUST", lines[1])

    def test_costs_of_tune_must_be_those_of_the_sweep(self):
        own = tuned(4, "static")
        own["counts_times_costs_ms_per_token"] *= 1.001
        self.assertEqual(tuning.differing([own], [counted(4)], COSTS)[1], 1)

    def test_a_sweep_goes_from_the_first_to_the_last_setting_of_each_rule(self):
        tried = [{"rule": "static", "parameters": {"entropy_threshold": value}} for value in (0.5, 1, 2, 2.25, 3)]
        tried += [{"rule": "plain"}, {"rule": "heuristic", "parameters": {"num_draft_tokens": 5,
                                                                          "heuristic_persistent": True}}]
        self.assertEqual(tuning.spread(tried, 3), {"static": ["static:0.5", "static:2", "static:3"],
                                                   "heuristic": ["heuristic:5:persistent"]})
        self.assertEqual(tuning.spread([{"rule": "expected-gain", "parameters": {}}], 3),
                         {"expected-gain": ["expected-gain"]})


if __name__ == "__main__":
    unittest.main()
