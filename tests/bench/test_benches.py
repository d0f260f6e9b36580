"""Of the benches without a peer: do intervals hold beyond the table, do failing commands end a bench, and does tuning
see counts that differ? What is shown of the oracle's share, and of SmartSpec's goodput?"""

import pathlib
import subprocess
import sys
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import batches  # noqa: E402
import oracle  # noqa: E402
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

    def test_the_median_of_20_lies_between_the_6th_and_the_15th(self):
        self.assertEqual(runs.median_interval(range(20)), (9.5, 5, 14))
        self.assertEqual(runs.median_interval([3, 1, 2]), (2, 1, 3))

    def test_a_command_that_fails_ends_the_bench_with_its_complaint(self):
        with self.assertRaisesRegex(SystemExit, "exit code 3: no such model"):
            runs.run([sys.executable, "-c", "import sys; print('no such model', file=sys.stderr); sys.exit(3)"])
        with self.assertRaisesRegex(SystemExit, "/no/such/program: No such file"):
            runs.run(["/no/such/program"])
        self.assertEqual(runs.run([sys.executable, "-c", "print(5)"]).stdout, "5\n")


class WithoutNumpy(unittest.TestCase):
    def test_scripts_that_need_it_say_so_in_one_line(self):
        for name in ("recording.py", "explore.py"):
            code = (f"import runpy, sys; sys.modules['numpy'] = None; sys.argv = [{name!r}, 'x.edr']; "
                    f"sys.path.insert(0, {str(BENCH)!r}); runpy.run_path({str(BENCH / name)!r}, run_name='__main__')")
            ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            self.assertEqual(ended.returncode, 2, ended.stderr)
            self.assertRegex(ended.stderr, rf"^{name}: needs numpy \(pip install numpy\): [^\n]*\n$")


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
        tried = [{"rule": "static", "setting": f"static:threshold={value}"} for value in (0.5, 1, 2, 2.25, 3)]
        tried += [{"rule": rule, "setting": rule} for rule in ("plain", "expected-gain")]
        self.assertEqual(tuning.spread(tried, 3), {
            "static": ["static:threshold=0.5", "static:threshold=2", "static:threshold=3"], "expected-gain": ["expected-gain"]})


def shown_of(**speedups):
    """Settings of simulate, by rule, under an oracle of 2."""
    return {rule.replace("_", "-"): {"setting": rule, "speedup": speedup, "share_of_oracle_speedup": speedup / 2,
                                     "speedup_tuned_on": 3 - speedup}
            for rule, speedup in {"plain": 1.0, "oracle": 2.0, **speedups}.items()}


class Oracle(unittest.TestCase):
    def test_rules_are_sorted_by_their_mean_and_ours_is_last(self):
        results = {("draft", 0): shown_of(static=1.5, svip=1.4, expected_gain=1.45),
                   ("draft", 1): shown_of(static=1.2, svip=1.6, expected_gain=1.52)}
        lines = oracle.table_of(results).splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:5]], ["svip", "static", "expected-gain", "plain"])
        self.assertEqual(lines[1].split()[1:], ["70.0", "80.0"])
        self.assertEqual(lines[4].split()[2:], ["50.0", "50.0"])
        self.assertEqual(lines[-2].split()[-2:], ["1.0357", "1.2667"])  # over svip, over static
        self.assertEqual(lines[-1].split()[-2:], ["0.9667", "0.9500"])
        self.assertIn("draft, T 1: static; svip", oracle.settings_of(results))

    def test_costs_are_a_line_whose_row_and_draft_pass_are_as_said(self):
        times = oracle.COSTS["t_target_ms"]
        self.assertEqual((times[0], times[1], times[-1], len(times)), (1, 1.02, 1.3, 16))
        self.assertEqual(oracle.COSTS["t_draft_ms"], 0.1)


class Batches(unittest.TestCase):
    def test_goodput_is_that_of_the_costs_and_unknown_without_acceptance(self):
        flat = batches.pass_times({"t_draft_ms": 0.05, "t_target_ms": [1.0, None, 1.0]})
        dear = batches.pass_times({"t_draft_ms": 0.05, "t_draft_row_ms": 0.05, "t_target_ms": [1.0, 2.0]})
        self.assertEqual(batches.smartspec(0.8, 1, flat).split(), ["8", "3.092"])
        self.assertEqual(batches.smartspec(0.8, 16, dear).split(), ["0", "1.000"])
        self.assertAlmostEqual(dear[1].of(4), 0.2)
        self.assertEqual(batches.smartspec(None, 1, flat).split(), ["-", "-"])


if __name__ == "__main__":
    unittest.main()
