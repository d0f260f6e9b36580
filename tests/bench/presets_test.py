#!/usr/bin/env python3
"""bench/presets.py: its data, formulas, synthetic texts and options; with --binary also replays and runs of the demo models.

    tests/bench/presets_test.py [--binary build/entrodraft]
"""

import contextlib
import io
import json
import math
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import presets  # noqa: E402
import synthetic_texts  # noqa: E402

BINARY = None
DATA = presets.load()
# What the GPT-2 study's speed-ups divide, where that is not its time of plain decoding.
DIVIDED = {"gpt2-table-2": 18.4, "gpt2-table-3": 9.5, "gpt2-table-4": 18.4, "gpt2-table-5": 18.4}
NUMBERS = {"ms_per_token", "simulated_ms_per_token", "speedup", "expected_speedup", "theoretical_speedup", "alpha",
           "accepted_share", "level_shares"}
FIELDS = {"name", "kind", "source", "about", "setting", "cases", "facts", "notes", "commands", "table", "shows_lengths",
          "shows_texts"}
SETTING = {"prompt", "prompt_tokens", "max_new_tokens", "mean_new_tokens", "max_draft_tokens", "no_repeat_ngram_size",
           "top_p", "dtype", "drafter"}
CASE = {"name", "temperature", "t_draft_ms", "t_target_ms", "c", "costs_origin", "simulation_costs", "alpha", "alpha_from",
        "matching_share", "cascade", "rows", "shapes", "published_c"}
DEMO = ["--target", str(ROOT / "model/demo/target"), "--draft", str(ROOT / "model/demo/draft")]


def cases():
    return [(preset, case) for preset in DATA.values() for case in preset.get("cases", [])]


def command(*words):
    """(code, standard output and error) of presets.py."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            presets.main([*(["--binary", BINARY] if BINARY else []), *words])
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
            told.write(str(end.code))
    return code, told.getvalue()


class Data(unittest.TestCase):
    def test_every_field_is_known(self):
        for preset in DATA.values():
            self.assertLessEqual(set(preset), FIELDS, preset["name"])
            self.assertLessEqual(set(preset.get("setting", {})), SETTING, preset["name"])
        for preset, case in cases():
            self.assertLessEqual(set(case), CASE, preset["name"])
            for row in case["rows"]:
                self.assertLessEqual(set(row), NUMBERS | set(presets.ASKED), preset["name"])

    def test_costs_and_their_origin_go_together(self):
        for preset, case in cases():
            self.assertEqual(presets.cost_ratio(case) is not None, "costs_origin" in case, preset["name"])
            self.assertLessEqual(len({"alpha", "alpha_from", "matching_share"} & set(case)), 1, preset["name"])

    def test_kinds_have_what_they_show(self):
        for preset in DATA.values():
            self.assertEqual(preset["kind"] in ("speed", "alpha", "simulation-cost"), "cases" in preset, preset["name"])
        for preset, case in cases():
            for row in case["rows"]:
                self.assertEqual("rule" in row, preset["kind"] != "alpha", preset["name"])
            source = case.get("alpha_from")
            self.assertTrue(source is None or source in [row["rule"] for row in case["rows"]], preset["name"])

    def test_published_speedups_are_those_of_their_times(self):
        for preset, case in cases():
            for row in case["rows"]:
                plain = DIVIDED.get(preset["name"], presets.published_ms(case, "none"))
                if {"speedup", "ms_per_token"} <= set(row) and plain:
                    self.assertAlmostEqual(row["speedup"], plain / row["ms_per_token"], delta=0.012 * row["speedup"],
                                           msg=f"{preset['name']} {row}")

    def test_the_thesis_ran_in_float32_and_simulated_at_rounded_costs(self):
        for name, preset in DATA.items():
            if name.startswith("thesis-") and preset["kind"] == "speed":
                self.assertEqual(preset["setting"]["dtype"], "float32", name)
        self.assertEqual(DATA["thesis-default"]["cases"][0]["simulation_costs"], {"t_draft_ms": 7, "t_target_ms": 34})
        self.assertEqual(len(DATA["thesis-latency"]["table"]), 1 + 9)

    def test_the_headline_over_the_thesis_baseline(self):
        case = DATA["thesis-default"]["cases"][0]
        best = max(presets.published_over_heuristic(case, row) or 0 for row in case["rows"])
        self.assertAlmostEqual(best, 1.07, delta=0.01)

    def test_constant_10_is_a_curve_and_no_cap(self):
        preset = DATA["thesis-candidate-length"]
        self.assertEqual([row["rule"] for row in preset["cases"][0]["rows"]][-2:], ["heuristic:5:persistent", "constant:10"])
        self.assertEqual(preset["setting"]["max_draft_tokens"], 100)

    def test_leviathans_table_3_is_whole(self):
        self.assertEqual(sum(len(case["rows"]) for case in DATA["leviathan-table-3"]["cases"]), 32)


class Formulas(unittest.TestCase):
    def test_alpha_of_a_share_is_the_one_that_gives_it(self):
        for alpha in (0.0, 0.3, 0.9, 1.0):
            for k in (1, 2, 7):
                share = (presets.expected_tokens(alpha, k) - 1) / k
                self.assertAlmostEqual(presets.alpha_of_share(share, k), alpha, places=9)

    def test_the_theoretical_column_of_the_gpt2_study_but_for_its_misprint(self):
        printed = {1: [1.338, 1.084, 0.998, 0.766, 0.618], 2: [0.946, 0.309], 3: [0.950, 0.742, 0.454], 4: [1.124, 0.913, 0.609]}
        for table, figures in printed.items():
            case = DATA[f"gpt2-table-{table}"]["cases"][0]
            rows = [row for row in case["rows"] if "theoretical_speedup" in row]
            self.assertEqual([row["theoretical_speedup"] for row in rows], figures)
            for row in rows:
                ours = presets.walltime_factor(row["accepted_share"], presets.constant_of(row), presets.cost_ratio(case))
                if (table, row["rule"]) == (1, "constant:4"):
                    self.assertAlmostEqual(ours, 0.914, places=3)
                else:
                    self.assertAlmostEqual(ours, row["theoretical_speedup"], delta=0.002)

    def test_plain_decoding_of_the_gpt2_study_takes_what_its_baselines_say(self):
        baselines = {case["name"]: case["rows"][0]["ms_per_token"] for case in DATA["gpt2-baselines"]["cases"]}
        targets = {1: "gpt2-large", 2: "gpt2-medium", 3: "gpt2", 4: "gpt2-medium", 5: "gpt2-medium", 6: "gpt2-large", 7: "gpt2-large"}
        for table, target in targets.items():
            none = DATA[f"gpt2-table-{table}"]["cases"][0]["rows"][0]
            self.assertEqual((none["rule"], none["ms_per_token"]), ("none", baselines[target]), table)

    def test_accepted_over_k_plus_1_leaves_the_targets_token_out(self):
        setting = {"ms_per_token": 1, "speedup": 1, "new_tokens": 30, "target_passes": 10, "rounds": 10, "drafted": 40,
                   "accepted": 20}
        self.assertEqual(presets.figures_of(setting, {"rule": "constant:4"})["accepted_of_rows"], 20 / (10 * 5))

    def test_the_spread_of_texts(self):
        self.assertEqual(presets.spread_of([3, 1]), {"mean": 2, "deviation": math.sqrt(2), "p90": 3, "p99": 3})


    def test_a_pass_of_t5_reads_the_matrices_of_its_decoder_that_the_source_has_no_part_in(self):
        path = ROOT / "tests/model/encoder_decoders/t5-untied/target"
        config = json.loads((path / "config.json").read_text())
        with open(path / "model.safetensors", "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        read = sum(math.prod(tensor["shape"]) for name, tensor in header.items() if len(tensor.get("shape", [])) == 2
                   and (name.startswith("decoder.block") and "EncDecAttention.k" not in name and "EncDecAttention.v" not in name
                        and "bias" not in name or name == "lm_head.weight"))
        shape = presets.T5(config["num_decoder_layers"], config["d_model"], config["num_heads"] * config["d_kv"],
                           config["d_ff"], config["vocab_size"])
        self.assertEqual(shape.weights_of_a_pass, read)

    def test_table_2_is_replayed_at_the_costs_of_its_shapes(self):
        for case in DATA["leviathan-table-2"]["cases"]:
            self.assertAlmostEqual(case["t_target_ms"], 9.28, delta=0.01)
            c, row = presets.cost_ratio(case), case["rows"][0]
            self.assertTrue(0.3 * case["published_c"] < c < 0.65 * case["published_c"], case["name"])
            self.assertGreater(presets.iid_of(presets.published_alpha_of)(case, row), presets.iid_at_published_c(case, row))


class SyntheticTexts(unittest.TestCase):
    def test_the_shift_gives_the_acceptance(self):
        for alpha in (0.01, 0.625, 0.99):
            self.assertAlmostEqual(synthetic_texts.acceptance_of(synthetic_texts.shift_of(alpha)), alpha, places=9)

    def test_as_many_match_as_the_acceptance_says(self):
        texts = synthetic_texts.Texts(100, 50, 10, seed=1)
        for alpha in (0.0, 0.3, 0.8, 1.0):
            shift = synthetic_texts.shift_of(alpha)
            columns = [texts.columns(text, shift) for text in range(100)]
            matching = sum(list(each["draft.0.token"]).count(synthetic_texts.TEXT) for each in columns)
            self.assertAlmostEqual(matching / 5000, alpha, delta=0.025)

    def test_a_draft_goes_on_behind_a_mismatch_to_the_cap_or_the_end(self):
        columns = synthetic_texts.Texts(1, 6, 4, seed=0).columns(0, -math.inf)
        self.assertEqual(list(columns["draft.0.astray_length"]), [3, 3, 3, 2, 1, 0])
        self.assertEqual(len(columns["draft.0.astray_entropy"]), 12)


class Options(unittest.TestCase):
    def refused(self, part, *words):
        code, told = command(*words)
        self.assertEqual(code, 2, told)
        self.assertIn(part, told)

    def test_the_list_names_all(self):
        code, told = command("--list")
        self.assertEqual((code, [line.split()[0] for line in told.splitlines()]), (0, list(DATA)))

    def test_what_has_no_effect_is_refused(self):
        self.refused("did you mean chen-gpt2?", "chen-gpt")
        self.refused("--alpha has no effect", "leviathan-table-3", "--alpha", "0.5")
        self.refused("--input has no effect", "thesis-default", "--input", "x")
        self.refused("-- has no effect", "thesis-default", "--", "--threads", "1")
        self.refused("--texts has no effect", "thesis-default", *DEMO, "--texts", "3")
        self.refused("--target has no effect", "leviathan-theory", "--target", "x")
        self.refused("--seed has no effect", "notes-lenience", "--seed", "0")
        self.refused("1.5 is not from 0 to 1", "thesis-default", "--alpha", "1.5")

    def test_what_a_preset_needs_is_said(self):
        self.refused("--input FILE is missing", "thesis-default", *DEMO)
        self.refused("takes --draft DIR twice", "gpt2-table-5", *DEMO, "--input", "x")
        self.refused("takes --draft DIR not at all", "notes-lookup", *DEMO, "--input", "x")


class WithTheProgram(unittest.TestCase):
    def setUp(self):
        if BINARY is None:
            self.skipTest("needs --binary")
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = pathlib.Path(work.name)

    def result(self, *words):
        """(text, JSON) of a preset that is served."""
        output = self.work / "result.json"
        code, told = command("--output", str(output), *words)
        self.assertEqual(code, 0, told)
        return told, json.loads(output.read_text())

    def row(self, result, name, case=0):
        return next(row for row in result["cases"][case]["rows"] if row["setting"] == name)

    def test_the_program_knows_every_rule(self):
        rules = {row["rule"] for preset, case in cases() for row in case["rows"] if "rule" in row}
        program = presets.Program(presets.parse(["x", "--binary", BINARY])[1], self.work)
        recording = self.work / "texts.edr"
        synthetic_texts.Texts(1, 4, 15, 0).write(recording, 9.8, {"schema_version": 1, "t_draft_ms": 0, "t_target_ms": [1]})
        costs = ["--t-draft", "1", "--t-target", "1"]
        settings = program.simulate(recording, sorted(rules - {"none"}), (), costs)
        self.assertEqual(len(settings), len(rules))

    def test_a_replay_is_solved_for_the_published_baseline(self):
        told, result = self.result("thesis-default", "--texts", "200")
        heuristic, simulated = self.row(result, "heuristic:5:persistent"), self.row(result, "static:4.75")
        self.assertAlmostEqual(heuristic["speedup"], 33.84 / 24.85, delta=0.01)
        self.assertEqual(heuristic["speedup_over_heuristic"], 1)
        self.assertNotIn("speedup_over_heuristic", simulated)
        self.assertAlmostEqual(self.row(result, "none")["ms_per_token"], 34.15)
        self.assertAlmostEqual(simulated["ms_per_token"] * simulated["speedup"], 34, places=6)
        self.assertIn("rows of its simulation at 7 and 34 ms", told)
        self.assertIn("SYNTHETIC", told)

    def test_higher_thresholds_cost_more_with_a_cap_of_100(self):
        _, result = self.result("thesis-num-k", "--texts", "100")
        over = {rule: self.row(result, f"{rule}, cap 100")["ms_per_token"] / self.row(result, f"{rule}, cap 10")["ms_per_token"]
                for rule in ("static:2", "static:7")}
        self.assertAlmostEqual(over["static:2"], 1, delta=0.02)
        self.assertGreater(over["static:7"], 1.02)

    def test_rounds_and_times_of_texts_are_read_off_traces(self):
        _, result = self.result("thesis-candidate-length", "--texts", "2")
        lengths = self.row(result, "constant:10")["drafted_of_rounds"]
        self.assertEqual(lengths[:3], [10, 10, 10])
        self.assertLess(lengths[-1], 10)  # no more than the text still takes
        _, result = self.result("chen-k-sweep", "--texts", "20")
        for k in (0, 4):
            row = self.row(result, f"constant:{k}" if k else "none")
            self.assertAlmostEqual(row["ms_of_a_text"]["mean"], 128 * row["ms_per_token"], places=6)
            self.assertLess(row["accepted_of_rows"] * (k + 1) + 1, row["tokens_per_pass"] + 0.05)

    def test_plain_decoding_and_a_lookup_run_without_a_draft(self):
        prompts = self.work / "prompts.jsonl"
        prompts.write_text('{"prompt": "The ferry left"}\n')
        words = [*DEMO[:2], "--input", str(prompts), "--max-new-tokens", "8", "--", "--threads", "1"]
        _, result = self.result("gpt2-baselines", *words)
        self.assertEqual([row["rule"] for row in result["cases"][-1]["rows"]], ["none"])
        _, result = self.result("notes-lookup", *words)
        self.assertGreaterEqual(self.row(result, "constant:10")["tokens_per_pass"], 1)

    def test_drafters_are_measured_beside_published_alphas(self):
        prompts = self.work / "prompts.jsonl"
        prompts.write_text('{"prompt": "The ferry left"}\n')
        told, result = self.result("leviathan-table-3", *DEMO, "--input", str(prompts), "--max-new-tokens", "8", "--",
                                   "--threads", "1")
        self.assertEqual([each["temperature"] for each in result["ours"]], [0, 1])
        self.assertIn("T5-XXL EnDe", told)


# Stands in for entrodraft: keeps what it was asked, and answers bench compare with a setting for each rule.
STAND_IN = """#!{python}
import json, pathlib, sys
words = sys.argv[1:]
value = lambda name: words[words.index(name) + 1] if name in words else None
with open({log!r}, "a") as log:
    lines = [json.loads(line) for line in open(value("--input"))] if value("--input") else []
    print(json.dumps(dict(words=words, lines=lines)), file=log)
if words[0] == "tokenize":
    for line in lines:
        print(json.dumps(dict(id=line["id"], token_ids=list(range(len(line["text"].split()))))))
    sys.exit()
setting = lambda name, kind="", drafted=40: dict(
    setting=name, kind=kind, rule=name, ms_per_token=2.0 if drafted else 4.0, speedup=2.0 if drafted else 1.0, new_tokens=30,
    target_passes=10, rounds=10, drafted=drafted, accepted=drafted // 2, ms_of_texts=[20.0, 40.0], oracle_speedup=3.0,
    levels=[dict(drafted=10, accepted=6)] if words.count("--draft") > 1 else [], iid=dict(alpha=0.7, c=0.1))
rules = [rule for rule in (value("--rules") or "none").split(",") if rule != "none"]
settings = [setting("plain", drafted=0), *map(setting, rules), setting("longest", "longest, for the oracle")]
pathlib.Path(value("--output")).write_text(json.dumps(dict(
    environment=dict(dtype=value("--dtype")), temperatures=[dict(temperature=0, settings=settings)])))
"""


class OnModels(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = pathlib.Path(work.name)
        self.binary, self.log = self.work / "entrodraft", self.work / "log"
        self.binary.write_text(STAND_IN.format(python=sys.executable, log=str(self.log)))
        self.binary.chmod(0o755)
        self.prompts = self.work / "prompts.jsonl"
        self.prompts.write_text("".join(json.dumps(line) + "\n" for line in (
            {"prompt": " ".join(["word"] * 30)}, {"id": "b", "prompt_token_ids": [5, 6, 7]}, {"prompt": "third"})))

    def result(self, *words):
        """(text, JSON, what the program was asked)."""
        output = self.work / "result.json"
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            presets.main(["--binary", str(self.binary), "--output", str(output), *words])
        asked = [json.loads(line) for line in self.log.read_text().splitlines()]
        return told.getvalue(), json.loads(output.read_text()), asked

    def of_model(self, *words):
        return self.result(*words, "--target", "T", "--input", str(self.prompts), "--prompts", "2")

    def test_prompts_are_cut_and_carry_the_presets_filters(self):
        told, _, asked = self.of_model("thesis-default", "--draft", "D")
        compare = next(each for each in asked if each["words"][:2] == ["bench", "compare"])
        self.assertEqual([len(line["prompt_token_ids"]) for line in compare["lines"]], [25, 3])
        self.assertEqual([line["id"] for line in compare["lines"]], [0, "b"])
        self.assertTrue(all(line["no_repeat_ngram_size"] == 6 for line in compare["lines"]))
        self.assertIn("2 prompts, at most 25 new tokens, 1 of them shorter than the preset's", told)

    def test_the_thesis_runs_in_float32_unless_told_otherwise(self):
        for words, dtype in (([], "float32"), (["--", "--dtype", "bfloat16"], "bfloat16")):
            _, result, _ = self.result("thesis-default", "--target", "T", "--draft", "D", "--input", str(self.prompts), *words)
            self.assertEqual(result["environment"]["dtype"], dtype)

    def test_settings_that_differ_in_their_limits_run_apart(self):
        _, result, asked = self.of_model("thesis-final-token", "--draft", "D")
        limits = [[word for word in each["words"] if word in ("--drop-stop-token", "--min-draft-tokens")]
                  for each in asked if each["words"][:2] == ["bench", "compare"]]
        self.assertEqual(limits, [[], ["--drop-stop-token"], ["--min-draft-tokens"],
                                  ["--min-draft-tokens", "--drop-stop-token"]])
        rows = {row["setting"]: row for row in result["cases"][0]["rows"]}
        self.assertEqual(rows["static:2.25, drop"]["published_ms_per_token"], 26.82)
        self.assertEqual(rows["oracle (predicted from costs)"]["speedup"], 3.0)

    def test_lenience_and_spread_come_from_runs(self):
        _, result, asked = self.of_model("notes-lenience", "--draft", "D")
        acceptances = [word for each in asked for word in each["words"] if str(word).startswith("rejection:")]
        self.assertEqual(acceptances, [f"rejection:lenience={value}" for value in (0.5, 0.3, 0.1)])
        _, result, _ = self.of_model("chen-k-sweep", "--draft", "D")
        row = next(row for row in result["cases"][0]["rows"] if row["rule"] == "constant:4")
        self.assertEqual((row["ms_of_a_text"]["mean"], row["ms_per_round"], row["accepted_of_rows"]), (30, 6, 20 / 50))

    def test_a_lossy_acceptance_runs_apart_and_is_named(self):
        _, result, asked = self.of_model("bild", "--draft", "D")
        compares = [each["words"] for each in asked if each["words"][:2] == ["bench", "compare"]]
        by_acceptance = {words[words.index("--acceptances") + 1] if "--acceptances" in words else "": words for words in compares}
        self.assertEqual((len(compares), set(by_acceptance)), (2, {"bild", ""}))
        lossy = by_acceptance["bild"]
        self.assertEqual((lossy[lossy.index("--rules") + 1], lossy[lossy.index("--max-draft-tokens") + 1]), ("confidence:0.6", "10"))
        self.assertIn("--drop-stop-token", lossy)
        self.assertNotIn("--drop-stop-token", by_acceptance[""])
        self.assertEqual([case["rows"][0]["published_speedup"] for case in result["cases"][:4]], [1.43, 1.34, 1.48, 1.71])
        self.assertIn("confidence:0.6, drop, bild, LOSSY", [row["setting"] for row in result["cases"][-1]["rows"]])

    def test_a_cascade_shows_each_level(self):
        _, result, _ = self.of_model("gpt2-table-5", "--draft", "L", "--draft", "S")
        row = next(row for row in result["cases"][0]["rows"] if row["rule"] == "constant:2")
        self.assertEqual([row[f"published_accepted_share_of_level_{level}"] for level in (2, 1)], [0.59, 0.49])
        self.assertEqual([row[f"accepted_share_of_level_{level}"] for level in (2, 1)], [0.6, 0.5])

    def test_several_published_pairs_stand_beside_one_run_a_temperature(self):
        _, result, asked = self.of_model("leviathan-table-2", "--draft", "D")
        self.assertEqual([case["case"] for case in result["cases"][-2:]], ["ours", "ours"])
        self.assertEqual(len(result["cases"]), 12 + 2)
        self.assertEqual(sum(each["words"][:2] == ["bench", "compare"] for each in asked), 2)

    def test_a_presets_own_prompt_needs_no_file(self):
        _, result, asked = self.result("chen-gpt2", "--target", "T", "--draft", "D")
        self.assertEqual({each["lines"][0]["prompt"] for each in asked if each["lines"]},
                         {"Alan Turing theorized that computers would one day become"})
        self.assertEqual(result["prompts"], 1)


if __name__ == "__main__":
    if "--binary" in sys.argv:
        at = sys.argv.index("--binary")
        BINARY = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
