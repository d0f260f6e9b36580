"""Does the report know its files by what they hold, draw what they allow, refuse what makes no sense, and cut
nothing off?"""

import contextlib
import io
import json
import pathlib
import re
import tempfile
import unittest

import numpy as np

import synthetic
from recording import write_recording

try:
    from figures import drawing
except ImportError as missing:
    raise unittest.SkipTest(f"needs matplotlib 3.7: {missing}") from None

import report
from figures import chrome_trace, inputs, of_recordings, of_rules, of_time

RULES = {"static": ("threshold", [1.5, 2.25, 3]), "constant": ("tokens", [1, 3, 5])}


def settings():
    made = [{"setting": f"{rule}:{name}={value}", "rule": rule, "parameters": {name: value}, "draft": 0,
             "ms_per_token": 0.3 + value / 50, "interval_ms_per_token": [0.29, 0.45], "share_of_oracle_gain": 0.5}
            for rule, (name, values) in RULES.items() for value in values]
    made.append({**made[0], "setting": "heuristic:tokens=5:persistent", "rule": "heuristic",
                 "parameters": {"tokens": 5, "persistent": True}})
    made += [{"setting": rule, "rule": rule, "parameters": {}, "draft": 0, "ms_per_token": cost}
             for rule, cost in (("plain", 0.6), ("oracle", 0.2))]
    return made


def confirmed():
    return [{**setting, "simulated_ms_per_token": setting["ms_per_token"],
             "measured_ms_per_token": 1.02 * setting["ms_per_token"]} for setting in settings()[:3]]


def compared():
    rows = [("plain", 1.0), ("model, static:threshold=2.25", 1.4), ("model, static:threshold=3", 1.3),
            ("model, expected-gain", 1.5), ("model, constant:tokens=5, gumbel", 1.2)]
    return [{"setting": name, "kind": "", "ms_per_token": 1 / speedup, "speedup": speedup,
             "predicted_speedup": 1.01 * speedup, "share_of_oracle_gain": speedup - 1,
             "time_share": {"draft": 0.2, "score": 0.7, "verify": 0.06, "other": 0.04}} for name, speedup in rows]


def a_round(identity, number, position, entropies, accepted, **more):
    return {"id": identity, "round": number, "position": position, "drafted": [7] * len(entropies),
            "entropies_nats": entropies, "probabilities": [0.5] * len(entropies), "draft_end": "rule",
            "accepted": accepted, "next_token": 3, "draft_passes": len(entropies), "draft_ms": 0.25, "target_ms": 1.5,
            **more}


def rounds():
    random = np.random.default_rng(3)
    return [a_round("a$b_" + str(text), 1 + number, 5 + 3 * number,
                    list(map(float, random.gamma(2, 1, number % 5))), min(2, number % 5))
            for text in range(3) for number in range(40)]


def steps():
    return [{"ph": "X", "name": name, "ts": 1000.0 * number + at, "dur": long, "pid": 0, "tid": rank,
             "args": {"round": number}}
            for number in range(1, 6) for rank in range(2)
            for name, at, long in (("draft", 0, 200), ("score", 210, 600))]


def json_lines(objects):
    return "".join(json.dumps(each) + "\n" for each in objects)


def results():
    stats = [{"new_tokens": 32, "target_passes": 10 + text, "drafted": 40, "accepted": 22 - text, "ms_per_token": 0.3}
             for text in range(6)]
    return [{"id": text, "text": "x", "stats": each} for text, each in enumerate(stats)] + [{"id": 9, "error": "no prompt"}]


def preset_case(temperature):
    rows = [{"setting": f"constant:{k}" if k else "none", "rule": f"constant:{k}" if k else "none", "ms_per_token": 3.0 + k,
             "published_ms_per_token": 2.5 + k, "speedup": 2.0, "published_speedup": 1.5, "accepted_of_rows": 0.1 * k,
             "ms_per_round": 4.0 + k, "drafted_of_rounds": [k, k, 1],
             "ms_of_a_text": {"mean": 300.0, "deviation": 20.0, "p90": 330.0, "p99": 350.0}} for k in range(4)]
    rows += [{"setting": f"static:{at}, cap {cap}", "rule": f"static:{at}", "ms_per_token": 2.0 + at * cap / 100}
             for at in (2, 5) for cap in (10, 100)]
    return {"case": "nucleus", "temperature": temperature, "basis": "REPLAYED", "rows": rows}


ALPHAS = (0.3, 0.6, 0.9)
FILES = {
    "sim": {"command": "simulate", "recordings": ["one"], "costs": {}, "settings": settings()},
    "tuned": {"command": "tune", "simulated": settings(), "confirmed": confirmed(), "winner": {}},
    "scale": {"command": "scaling", "model": {"compute_ms": 1.0, "alpha_us": 2.0, "beta_ns_per_byte": 0.1},
              "measured": [{"ranks": ranks, "placement": "colocated", "t_target_ms": 1 / ranks,
                            "predicted_ms": 0.9 / ranks, "t_draft_ms": 0.1, "over_cores": ranks > 2,
                            "is_base": ranks == 1, "compute_by": "by shard" if ranks == 2 else "by reading"}
                           for ranks in (1, 2, 4)],
              "extrapolated": [{"hardware": "big", "shape": "large", "gpus": gpus, "t_target_ms": 1.0,
                                "tokens_per_second": 50.0 * gpus} for gpus in (8, 64, 512)]},
    "compare": {"environment": {"cpu": "any"}, "prompts": 4, "costs": [],
                "temperatures": [{"temperature": 0.0, "settings": compared()}]},
    "latency": {"schema_version": 1, "t_draft_ms": 0.05, "t_target_ms": [0.5, None, 0.6], "context": 64,
                "target": [{"rows": 1, "median_ms": 0.5, "p90_ms": 0.7, "limit_ms": 0.4}]},
    "line": {"traceEvents": steps()},
    "preset": {"command": "presets", "preset": "chen-k-sweep", "about": "K", "cases": [preset_case(0), preset_case(1)]},
    "theory": {"command": "theory", "max_tokens": 15,
               "rows": [{"alpha": alpha, "c": c, "c_operations": c, "best_k": round(5 * alpha), "expected_tokens": 2.0,
                         "walltime_factor": 1 + alpha, "operations_factor": 1.5,
                         "bound": 1 + alpha / 2 if alpha > c else None} for alpha in ALPHAS for c in (0.05, 0.4)],
               "expected_tokens": [{"k": k, "alpha": alpha, "expected_tokens": 1 + k * alpha}
                                   for alpha in ALPHAS for k in (1, 3)],
               "factors": [{"k": k, "c": c, "c_operations": c, "alpha": alpha, "walltime_factor": 1 + alpha - c,
                            "operations_factor": 1 + c * k} for alpha in ALPHAS for k in (1, 3) for c in (0.05, 0.4)]},
}


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = pathlib.Path(scratch.name)
        self.output = self.directory / "out"

    def write(self, name, content):
        path = self.directory / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def write_recording(self, name, n_texts=4, **how):
        path = self.directory / name
        write_recording(path, synthetic.header(how.get("n_drafts", 1)), synthetic.texts(n_texts, **how))
        return str(path)

    def write_all(self):
        return [self.write_recording("one", n_drafts=2), self.write_recording("other", seed=4),
                self.write("rounds", json_lines(rounds())), self.write("results", json_lines(results())),
                *(self.write(name, data) for name, data in FILES.items())]

    def run_report(self, *arguments):
        """Exit code and what was said on stderr."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            try:
                code = report.main([*map(str, arguments), "--output", str(self.output)])
            except SystemExit as ended:
                code = ended.code
        return (1, code) if isinstance(code, str) else (code, said.getvalue())

    def page(self):
        return (self.output / report.PAGE).read_text(encoding="utf-8")


class TheReport(Scratch):
    def test_knows_files_by_what_they_hold(self):
        read = inputs.read_all(self.write_all())
        self.assertEqual([source.kind for source in read.sources],
                         ["recording", "recording", "trace", "results", "simulation", "tuning", "scaling", "comparison",
                          "costs", "timeline", "preset", "theory"])

    def test_draws_every_figure_from_a_mix_of_files_into_a_page_that_needs_no_other(self):
        code, said = self.run_report(*self.write_all())
        self.assertEqual(code, 0, said)
        page = self.page()
        for _, plots in report.GROUPS:
            for plot in plots:
                self.assertIn(f'id="{plot.name}"', page)
                self.assertTrue(list(self.output.glob(f"{plot.name}*.png")), plot.name)
        self.assertNotIn("not drawn", page)
        self.assertEqual(page.count("<img "), page.count('src="data:image/png;base64,'))
        self.assertEqual(page.count("<img "), len(list(self.output.glob("*.png"))))
        for outside in ("http:", "https:", "<script", "<link"):
            self.assertNotIn(outside, page)

    def test_cuts_nothing_off_and_gives_every_figure_labels(self):
        read = inputs.read_all(self.write_all())
        with drawing.settings():
            self.assertEqual({each.figure.get_suptitle() for each in self.drawn(read, "speedup")},
                             {"Speed-up over plain decoding"})
            for plot, each in [(plot, each) for _, plots in report.GROUPS for plot in plots
                               for each in plot.figures(read, drawing.Choice())]:
                name, axes = f"{plot.name}, {each.of}", each.figure.axes
                self.assertTrue(any(axis.get_xlabel() for axis in axes), name)
                self.assertTrue(any(axis.get_ylabel() or axis.get_yticklabels() for axis in axes), name)
                each.figure.canvas.draw()
                box, (width, height) = each.figure.get_tightbbox(), each.figure.get_size_inches()
                self.assertGreaterEqual(min(box.x0, box.y0), -0.01, name)
                self.assertLessEqual(box.x1, width + 0.01, name)
                self.assertLessEqual(box.y1, height + 0.01, name)

    def drawn(self, read, name):
        plot = next(plot for _, plots in report.GROUPS for plot in plots if plot.name == name)
        return plot.figures(read, drawing.Choice())

    def test_draft_lengths_are_whole_and_no_time_is_negative(self):
        wide = [{**each, "interval_ms_per_token": [-0.4, 2.0]} for each in confirmed()]
        both = [{**each, "rule": "constant", "parameters": {"tokens": k}, "setting": f"constant:tokens={k}"}
                for k, each in zip((4, 5, 6), confirmed())]
        tuned = {**FILES["tuned"], "confirmed": wide + both}
        with drawing.settings():
            (each,) = self.drawn(inputs.read_all([self.write("tuned", tuned)]), "cost-over-threshold")
            each.figure.canvas.draw()
            self.assertGreaterEqual(each.figure.axes[0].get_ylim()[0], 0)
            ticks = each.figure.axes[1].get_xticks()
            self.assertEqual(list(ticks), [round(tick) for tick in ticks])
            self.assertEqual(len(each.figure.legends[0].get_texts()), 4)  # simulated, measured, plain, oracle

    def test_the_figure_along_a_text_names_the_prompt_and_both_models_tokens(self):
        path, text = self.directory / "named", synthetic.text(np.random.default_rng(0), places=20)
        drafted = text.of_draft(0, "token")
        text.fields["token_texts"] = {str(token): f"D{token}" for token in drafted}
        text.fields["token_texts"].update({str(token): f"P{token}" for token in text.columns["prompt_token"]})
        write_recording(path, synthetic.header(), [text])
        with drawing.settings():
            (each,) = self.drawn(inputs.read_all([str(path)]), "entropy-along-text")
            each.figure.canvas.draw()
            axis = each.figure.axes[0]
            below = [label.get_text() for label in axis.get_xticklabels()]
            above = [label.get_text() for label in axis.child_axes[0].get_xticklabels()]
        self.assertEqual(below, ["" if match else f"D{token}" for match, token in zip(text.matches(0), drafted)])
        self.assertEqual(above[:5], [f"P{token}" for token in text.columns["prompt_token"]])
        self.assertEqual(len(above), 25)

    def test_says_what_is_not_drawn_and_what_it_needs(self):
        code, _ = self.run_report(self.write("latency", FILES["latency"]))
        self.assertEqual(code, 0)
        page = self.page()
        self.assertIn('id="target-over-rows"', page)
        self.assertIn("Entropy along a text: not drawn: needs entrodraft record", page)
        self.assertNotIn('id="calibration"', page)

    def test_labels_keep_the_name_of_the_rule_and_what_differs_at_the_end(self):
        from figures.drawing import shortened

        disco = "disco:threshold=0.2:bias=1.4:entropy=0.1:probability=0.4:position="
        labels = [shortened(f"{disco}{position}") for position in (0.5, 0.75)]
        self.assertEqual(len(set(labels)), 2)
        for label in labels:
            self.assertTrue(label.startswith("disco:threshold=0.2:"), label)
            self.assertLessEqual(len(label), 60)
        self.assertEqual(shortened("static:threshold=2.25"), "static:threshold=2.25")

    def test_environments_are_words(self):
        environment = {"cpu": "any", "ranks": 2, "hosts": ["a", "b"], "random_weights": None,
                       "machine": {"cores": 2, "seconds": 12.3456789, "trusted": False}}
        code, _ = self.run_report(self.write("latency", {**FILES["latency"], "environment": environment}))
        self.assertEqual(code, 0)
        self.assertIn("cpu any, ranks 2, hosts a b, random weights none, machine (cores 2, seconds 12.3457, trusted no)",
                      self.page())
        self.assertNotIn("{", re.sub(r"<style>.*?</style>", "", self.page(), flags=re.S))

    def test_escapes_what_files_and_options_say(self):
        evil = {**FILES["latency"], "environment": {"cpu": "<script>alert(1)</script>"}}
        code, _ = self.run_report(self.write("a<b>&\"c.json", evil), "--title", "<b>bold</b> & co")
        self.assertEqual(code, 0)
        page = self.page()
        self.assertIn("<h1>&lt;b&gt;bold&lt;/b&gt; &amp; co</h1>", page)
        self.assertIn("a&lt;b&gt;&amp;&quot;c.json", page)
        self.assertNotIn("<script", page)

    def test_chooses_text_and_draft(self):
        trace, recorded = self.write("rounds", json_lines(rounds())), self.write_recording("one", n_drafts=2)
        code, _ = self.run_report(trace, recorded, "--text", "a$b_1", "--draft", "2")
        self.assertEqual(code, 0)
        self.assertIn("text &#x27;a$b_1&#x27;", self.page())
        self.assertTrue((self.output / "entropy-histograms-one-draft-2.png").exists())
        self.assertFalse((self.output / "entropy-histograms-one-draft-1.png").exists())

    def test_refuses_options_without_effect(self):
        recorded, costs = self.write_recording("one"), self.write("latency", FILES["latency"])
        for said, arguments in (("--draft 2", [recorded, "--draft", "2"]), ("--draft 1", [costs, "--draft", "1"]),
                                ("--text 77", [recorded, "--text", "77"]), ("--text 0", [costs, "--text", "0"]),
                                ("--perfetto", [recorded, "--perfetto", str(self.directory / "x")]),
                                ("given twice", [recorded, recorded]), ("--colour", [recorded, "--colour"]),
                                ("'0'", [recorded, "--draft", "0"])):
            code, error = self.run_report(*arguments)
            self.assertEqual(code, 2, error)
            self.assertIn(said, error)
            self.assertEqual(error.count("\n"), 1, error)
        self.assertFalse(self.output.exists())

    def test_refuses_files_by_name_place_and_reason(self):
        trace = json_lines(rounds())
        bad_share = [{**compared()[0], "time_share": {"draft": "much"}}]
        for name, content, said in (
                ("nothing", "", "the file is empty"), ("words", "good morning", "not JSON"),
                ("list", "[1]", "JSON list"),
                ("texts", '{"id": 0, "text": "x"}\n', "none of the files"),
                ("results", '{"id": 0, "stats": {"new_tokens": "many"}}\n', "line 1: field new_tokens"),
                ("preset", {"command": "presets", "preset": "x", "cases": [{"case": "y", "temperature": 0, "rows": [{}]}]},
                 "cases[0].rows[0]: field setting is missing"),
                ("half", trace[:500] + "\n" + trace, "line "),
                ("verified", json_lines([a_round(0, 1, 5, [1.0], 2)]), "line 1: 2 accepted of 1 drafted"),
                ("nan", '{"command": "simulate", "settings": [{"setting": "x", "rule": "x", "ms_per_token": NaN}]}',
                 "settings[0]: field ms_per_token"),
                ("lacks", {"command": "scaling", "measured": [{"ranks": 1}]},
                 "measured[0]: field t_target_ms is missing"),
                ("share", {"temperatures": [{"temperature": 0, "settings": bad_share}]}, "field time_share"),
                ("line", {"traceEvents": [{"ph": "X", "name": "draft"}]}, "traceEvents[0]: field ts is missing"),
                ("processes", {"traceEvents": [{"ph": "M", "pid": [1]}]}, "traceEvents[0]: field pid holds [1]"),
                ("iid", {"command": "theory", "rows": [{"alpha": 1}]}, "rows[0]: field c is missing")):
            path = self.write(name, content)
            code, error = self.run_report(path)
            self.assertEqual(code, 1, name)
            self.assertIn(path, error)
            self.assertIn(said, error)
            self.assertNotIn("\n", error)
        path = self.directory / "bytes"
        path.write_bytes(b"\xff\xfe\x00")
        self.assertIn("neither a recording", self.run_report(path)[1])
        self.assertIn("No such file", self.run_report(self.directory / "absent")[1])

    def test_shows_what_stands_before_a_tear_and_says_so(self):
        trace = self.write("rounds", json_lines(rounds())[:-40])
        recorded = pathlib.Path(self.write_recording("one"))
        recorded.write_bytes(recorded.read_bytes()[:-9])
        code, said = self.run_report(trace, recorded)
        self.assertEqual(code, 0)
        self.assertIn("line 120 is torn", said)
        self.assertIn("block 4: torn", said)
        self.assertIn("block 4: torn", self.page())

    def test_leaves_replays_of_check_out(self):
        lines = [a_round(0, 1, 5, [1.0], 1), a_round(0, 2, 5, [], 0, plain=True)]
        (source,) = inputs.read_all([self.write("rounds", json_lines(lines))]).sources
        self.assertEqual([row["round"] for row in source.data], [1])

    def test_draws_rounds_of_a_drafter_without_entropies(self):
        lines = [{**a_round(0, number, 5 + number, [1.0, 1.0], 1), "entropies_nats": [None, None],
                  "probabilities": [None, None]} for number in range(5)]
        code, said = self.run_report(self.write("rounds", json_lines(lines)))
        self.assertEqual(code, 0, said)
        self.assertIn('id="candidate-length"', self.page())
        self.assertNotIn('id="calibration"', self.page())

    def test_writes_a_trace_for_perfetto(self):
        lines = [a_round("a", 1, 5, [1.0], 1), a_round("b", 1, 9, [1.0], 0, draft_ms=0.5),
                 a_round("a", 2, 7, [2.0], 1)]
        file = self.directory / "perfetto.json"
        code, said = self.run_report(self.write("rounds", json_lines(lines)), self.write("line", FILES["line"]),
                                     "--perfetto", file)
        self.assertEqual(code, 0, said)
        events = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"]
        made = [(event["name"], event["ts"], event["dur"], event["tid"]) for event in events if event["pid"] == 0]
        self.assertEqual(made, [("draft", 0, 250, 0), ("score", 500, 1500, 0), ("draft", 0, 500, 1),
                                ("score", 500, 1500, 1), ("draft", 2000, 250, 0), ("score", 2250, 1500, 0)])
        self.assertEqual(sum(event["pid"] == 1 for event in events), len(FILES["line"]["traceEvents"]))


class NumbersOfFigures(unittest.TestCase):
    def test_fit_finds_the_logistic_curve_that_made_the_data(self):
        random = np.random.default_rng(5)
        entropy = random.gamma(2, 1.2, 200_000)
        matched = random.random(len(entropy)) < 1 / (1 + np.exp(-(2.2 - 1.3 * np.sqrt(entropy))))
        np.testing.assert_allclose(of_recordings.fit_logistic(entropy, matched), [2.2, -1.3], atol=0.03)

    def test_fit_stays_finite_where_entropy_tells_all(self):
        fitted = of_recordings.fit_logistic(np.array([0.1, 0.2, 3.0, 4.0]), np.array([True, True, False, False]))
        self.assertTrue(np.isfinite(fitted).all())
        self.assertLess(fitted[1], 0)

    def test_wilson_interval_is_the_known_one(self):
        low, high = of_recordings.wilson(np.array([8, 0, 10]), np.array([10, 10, 10]))
        np.testing.assert_allclose(low, [0.4902, 0, 0.7225], atol=1e-4)
        np.testing.assert_allclose(high, [0.9433, 0.2775, 1], atol=1e-4)

    def test_bins_hold_equal_counts_in_order_of_entropy(self):
        middle, n_accepted, counts = of_recordings.equal_bins(np.arange(200.0)[::-1], np.arange(200) < 100)
        self.assertEqual(list(counts), [40] * 5)
        self.assertEqual(list(middle), sorted(middle))
        self.assertEqual(list(n_accepted), [0, 0, 20, 40, 40])

    def test_separation_counts_pairs_in_order_and_ties_half(self):
        for scores, word, expected in (([1, 2, 3, 4], "yynn", 1), ([1, 1, 1, 1], "ynyn", 0.5),
                                       ([1, 3, 2], "yyn", 0.5)):
            matched = np.array([letter == "y" for letter in word])
            self.assertEqual(of_recordings.separation(np.array(scores, dtype=float), matched), expected)

    def test_verified_tokens_end_with_the_first_that_fell(self):
        lines = [a_round(0, 1, 5, [1.0, 2.0, 3.0, 4.0], 1), a_round(0, 2, 7, [5.0], 1)]
        entropy, n_accepted = of_recordings.verified_of(lines)
        self.assertEqual(list(entropy), [1, 2, 5])
        self.assertEqual(list(n_accepted), [True, False, True])

    def test_a_length_counts_places_that_can_hold_it_and_no_others(self):
        def shares(*words, cap=15):
            return list(of_recordings.shares_of_lengths([np.array([letter == "y" for letter in word])
                                                         for word in words], cap))

        self.assertEqual(shares("yynyy"), [4 / 5, 2 / 4, 0, 0, 0])
        self.assertEqual(shares("yyyy", cap=3), [1, 1, 1])
        self.assertEqual(shares("yyy", "n"), [3 / 4, 1, 1])  # the short text says nothing of 2 and 3
        self.assertEqual(shares("", ""), [])
        self.assertEqual(shares(), [])

    def test_ends_of_texts_do_not_move_the_shares(self):
        matched = np.random.default_rng(2).random((20_000, 12)) < 0.8
        np.testing.assert_allclose(of_recordings.shares_of_lengths(list(matched), 6), 0.8 ** np.arange(1, 7), atol=0.01)

    def test_rules_are_read_from_names_of_settings(self):
        for name, expected in (
                ("model, static:threshold=2.25", ("model", "static", {"threshold": 2.25}, None)),
                ("model ahead of 8, moving-average:factor=1e-05:window=7, gumbel",
                 ("model ahead of 8", "moving-average", {"factor": 1e-05, "window": 7}, "gumbel")),
                ("ngram+model, cumulative:threshold=10:window=7, block",
                 ("ngram+model", "cumulative", {"threshold": 10, "window": 7}, "block")),
                ("model, heuristic:tokens=5:persistent", ("model", "heuristic", {"tokens": 5, "persistent": 1}, None)),
                ("model, expected-gain", ("model", "expected-gain", {}, None)),
                ("model, expected-gain, typical", ("model", "expected-gain", {}, "typical")),
                ("model, constant:tokens=5, bild", ("model", "constant", {"tokens": 5}, "bild")),
                ("model, constant:tokens=5, rejection:lenience=0.5",
                 ("model", "constant", {"tokens": 5}, "rejection:lenience=0.5")),
                ("model, static:threshold=2:of=adjusted", None),
                ("plain", None), ("plain, gumbel", None),
                ("draft1<draft2, constant:tokens=5 / constant:tokens=3", None)):
            self.assertEqual(of_rules.rule_of(name), expected, name)

    def test_runs_of_a_tuning_join_simulations_of_the_same_costs_only(self):
        def points_of(costs):
            sources = [inputs.Source("simulation", "s", {"settings": settings(), "costs": {"t_draft_ms": 1}}, "s"),
                       inputs.Source("tuning", "t", {"simulated": [], "confirmed": confirmed(), "costs": costs}, "t")]
            ((_, note, points),) = of_rules.sweeps(inputs.Inputs(sources), drawing.Choice())
            return note, sum(point["measured"] is not None for point in points)

        self.assertEqual(points_of({"t_draft_ms": 1}), ("s, measured in t", 3))
        self.assertEqual(points_of({"t_draft_ms": 2}), ("s", 0))

    def test_gumbel_is_predicted_from_plain_decoding_of_its_own(self):
        names = ("plain", "model, static:threshold=2", "plain, gumbel", "model, static:threshold=2, gumbel")
        settings = [{"setting": name, "ms_per_token": 1.0 + at, "predicted_speedup": 2.0}
                    for at, name in enumerate(names)]
        for temperature, expected in ((1.0, {"T 1, model": 0.5, "T 1, model, gumbel": 1.5}),
                                      (0.0, {"T 0, model": 0.5, "T 0, model, gumbel": 0.5})):
            source = inputs.Source("comparison", "c", {}, "c")
            found = {note: points for _, note, points
                     in of_rules.of_comparison(source, {"temperature": temperature, "settings": settings})}
            self.assertEqual({note: points[0]["simulated"] for note, points in found.items()},
                             {f"c, {note}": value for note, value in expected.items()})
            self.assertEqual({each["foretold"] for points in found.values() for each in points
                              if each["simulated"] is not None}, {"predicted"})

    def test_plain_decoding_belongs_to_every_draft(self):
        both = [{**setting, "draft": draft} for draft in (0, 1) for setting in settings() if setting["rule"] != "plain"]
        source = inputs.Source("simulation", "s", {"settings": both + [settings()[-2]], "costs": {}}, "s")
        found = [[each["rule"] for each in points].count("plain")
                 for _, _, points in of_rules.sweeps(inputs.Inputs([source]), drawing.Choice())]
        self.assertEqual(found, [1, 1])

    def test_a_time_line_cut_short_still_has_a_round_of_median_length(self):
        events = [{**step, "tid": number} for number, step in enumerate(steps()[:3])]
        rounds = of_time.rounds_of([{**step, "args": {"round": step["tid"]}} for step in events])
        self.assertEqual(of_time.round_of_median_length(rounds), (0, 2))

    def test_labels_differ_where_file_names_do_not(self):
        self.assertEqual(inputs.labels_of(["a/one.json", "b/two.json"]), ["one", "two"])
        self.assertEqual(inputs.labels_of(["a/one.json", "a/one.edr"]), ["one.json", "one.edr"])
        self.assertEqual(inputs.labels_of(["a/one.json", "b/one.json"]), ["a/one.json", "b/one.json"])

    def test_pieces_show_what_cannot_be_seen(self):
        self.assertEqual(drawing.shown_piece(" a\nb"), "·a↵b")
        self.assertEqual(drawing.shown_piece("\x07\U0010fffd"), "□□")
        self.assertEqual(len(drawing.shown_piece("x" * 50)), 12)

    def test_batches_are_lines_of_one_round(self):
        lines = [a_round("a", 1, 5, [], 0), a_round("b", 1, 5, [], 0), a_round("a", 2, 6, [], 0)]
        self.assertEqual([len(batch) for batch in chrome_trace.batches_of(lines)], [2, 1])


if __name__ == "__main__":
    unittest.main()
