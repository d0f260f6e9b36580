#!/usr/bin/env python3
"""bench/scaling_model.py: the model against times that were made by it, files that are not as they should be, and the command;
with --binary also bench/scaling.py on two ranks.

    tests/bench/scaling_test.py [--binary build/entrodraft]
"""

import contextlib
import copy
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import scaling_model as model  # noqa: E402
from gpus import LARGE, SHAPES, Hardware, gpu_row, read_hardware  # noqa: E402
from scaling_model import Latency, Link, Setting  # noqa: E402

BINARY = None
HARDWARE = str(ROOT / "bench/hardware.json")
ROUND_NUMBERS = Hardware(1e12, 100e9, 1e18, 10e-6, 100e9, 5e-6, 10e9, 8)


def run_of(ranks, t_target, limit, all_reduces=0, size=0, link=Link(), shards=None):
    return Latency("made up", Setting(ranks, 1, "colocated"), False, "", ranks, t_target, limit, 0.0, all_reduces, size, link,
                   shards=shards or {})


def latency(ranks, t_target_ms, limit_ms, threads=1, cores=2):
    """What bench latency writes, as far as it is read."""
    several = ranks > 1
    return {
        "environment": {"ranks": ranks, "threads_per_rank": threads, "cores": cores, "host_ranks": ranks,
                        "draft_placement": "colocated", "dtype": "float16"},
        "t_draft_ms": 0.05, "t_target_ms": [t_target_ms, t_target_ms], "tensor_parallel": ranks,
        "target_shape": {"layers": 6, "hidden_size": 320, "vocab_size": 4096, "all_reduces_per_pass": 13 if several else 0,
                         "all_reduce_bytes_per_pass": 13 * 1280 if several else 0},
        "target": [{"rows": 1, "limit_ms": limit_ms}],
        "collectives": [{"name": "round packet: broadcast of 256 bytes", "bytes": 256, "median_ms": 0.001},
                        {"name": "gather of candidates, 16 rows", "bytes": 136, "median_ms": 0.001},
                        *({"name": f"all-reduce of hidden, {rows} rows", "bytes": rows * 1280,
                           "median_ms": 1e-3 + rows * 1280 * 0.5e-6} for rows in (1, 2, 16))]}  # alpha 1 us, beta 0.5 ns


def compare(ranks, plain, drafting):
    rates = [("plain", "", plain), ("model, static", "", drafting / 2), ("model, expected-gain", "", drafting),
             ("model, x", "longest, for the oracle", 1e9)]
    return {"environment": latency(ranks, 1, 1)["environment"], "temperatures": [{"temperature": 0, "settings": [
        {"setting": name, "kind": kind, "tokens_per_second": rate} for name, kind, rate in rates]}]}


class Model(unittest.TestCase):
    def test_the_fit_finds_the_alpha_and_beta_that_times_were_made_of(self):
        alpha, beta = model.fit_link([(size, 3e-6 + size * 0.25e-9) for size in (1280, 2560, 20480, 4e6)])
        self.assertAlmostEqual(alpha / 3e-6, 1, places=9)
        self.assertAlmostEqual(beta / 0.25e-9, 1, places=9)

    def test_the_fit_has_the_least_relative_errors(self):
        samples = [(1000, 2e-6), (2000, 2.4e-6), (16000, 5e-6)]

        def error(alpha, beta):
            return sum(((alpha + size * beta - seconds) / seconds) ** 2 for size, seconds in samples)

        alpha, beta = model.fit_link(samples)
        for up, right in ((1.01, 1), (0.99, 1), (1, 1.01), (1, 0.99)):
            self.assertLess(error(alpha, beta), error(alpha * up, beta * right))

    def test_the_fit_is_never_negative(self):
        shrinking, steep = model.fit_link([(1000, 2e-6), (2000, 1e-6)]), model.fit_link([(1000, 1e-6), (2000, 4e-6)])
        self.assertTrue(shrinking.alpha > 0 == shrinking.beta)
        self.assertTrue(steep.beta > 0 == steep.alpha)

    def test_the_fit_needs_two_sizes_and_times_above_0(self):
        for samples in ([(1000, 1e-6), (1000, 2e-6)], [(1000, 0), (2000, 2e-6)], []):
            with self.assertRaises(ValueError):
                model.fit_link(samples)

    def test_predicts_by_what_ranks_can_read_by_division_and_by_shard(self):
        base = run_of(1, 10e-3, 8e-3)
        # Two ranks that together read no faster than one did, and 5 all-reduces of 1000 bytes of 3 us each.
        two = run_of(2, 1, 8e-3, 5, 1000, Link(1e-6, 2e-9))
        predicted = model.prediction(base, two)
        self.assertAlmostEqual(predicted["by reading"], 10e-3 + 15e-6)
        self.assertAlmostEqual(predicted["by division"], 5e-3 + 15e-6)
        self.assertEqual(model.row_of(base, two, None)["predicted_ms"], predicted["by reading"] * 1e3)
        # A shard that takes 3 ms by itself, where it could be read in 2 ms: four times as long beside the other rank.
        base.shards = {4: (1, 1, 1), 2: (3e-3, 1, 2e-3)}
        self.assertAlmostEqual(model.prediction(base, two)["by shard"], 12e-3 + 15e-6)
        self.assertEqual(model.row_of(base, two, None)["compute_by"], "by shard")
        # From a base of two ranks its own all-reduces are taken off first.
        four, measured_two = run_of(4, 1, 4e-3, 5, 1000, Link(2e-6, 2e-9)), run_of(2, 10e-3, 8e-3, 5, 1000, Link(1e-6, 2e-9))
        self.assertAlmostEqual(model.prediction(measured_two, four)["by division"], (10e-3 - 15e-6) / 2 + 20e-6)

    def test_replicas_have_to_come_out_whole(self):
        self.assertEqual((model.replicas_rate(8, 2, 2), model.replicas_rate(8, 3, 2)), (8, 0))


class Gpus(unittest.TestCase):
    def test_shapes_have_the_parameters_of_their_models(self):
        for name, parameters in (("llama-3-8b", 8030261248), ("llama-3-70b", 70553706496), ("llama-3-405b", 405853388800),
                                 ("falcon-40b", 41303293952), ("opt-66b", 65719701504), ("opt-6.7b", 6658473984),
                                 ("opt-2.7b", 2651596800), ("opt-125m", 125239296)):
            self.assertEqual(sum(SHAPES[name].weights(1)[1:]), parameters, name)

    def test_a_pass_reads_all_but_the_embedding(self):
        shape = SHAPES["llama-3-8b"]
        read = {gpus: shape.weights(gpus)[0] for gpus in (1, 8, 16)}
        self.assertEqual(read[1], 8030261248 - 65 * 4096 - 128256 * 4096)
        # Units of the vocabulary do not come out whole: the first of eight ranks has half a unit more than its part.
        self.assertEqual(read[8] * 8 - read[1], 8 * 32 * 4096)
        # Eight KV heads on 16 ranks: each holds a copy of one.
        self.assertGreaterEqual(read[16] - read[8] / 2, 32 * 2 * 128 * 4096 / 2)

    def test_all_reduces_are_hierarchical(self):
        in_node = 10e-6 + 2 * 7 / 8 * 16e3 / 100e9
        self.assertEqual(ROUND_NUMBERS.all_reduce(1, 16e3), 0)
        self.assertAlmostEqual(ROUND_NUMBERS.all_reduce(8, 16e3), in_node, places=15)
        self.assertAlmostEqual(ROUND_NUMBERS.all_reduce(32, 16e3), in_node + 2 * 2 * 5e-6 + 2 * 3 / 4 * 2e3 / 10e9, places=15)

    def test_a_pass_is_reading_and_two_all_reduces_a_layer(self):
        shape = SHAPES["llama-3-8b"]
        row = gpu_row(ROUND_NUMBERS, shape, 8, 0.5)
        self.assertAlmostEqual(row["all_reduces_ms"], 64e3 * ROUND_NUMBERS.all_reduce(8, 8192))
        self.assertAlmostEqual(row["t_target_ms"] - row["all_reduces_ms"], 2 * shape.weights(8)[0] / 0.5e12 * 1e3)
        self.assertAlmostEqual(1e3 / row["tokens_per_second"] - row["t_target_ms"], 20e-3)
        self.assertIn("do not fit", gpu_row(ROUND_NUMBERS, SHAPES["llama-3-405b"], 8, 0.5)["why"])
        self.assertIn("its 32 heads", gpu_row(ROUND_NUMBERS, shape, 64, 0.5)["why"])
        falcon = gpu_row(ROUND_NUMBERS, SHAPES["falcon-40b"], 8, 0.5)
        self.assertAlmostEqual(falcon["all_reduces_ms"], 60e3 * ROUND_NUMBERS.all_reduce(8, 16384))  # one a layer

    def test_the_projects_own_hardware_file_is_whole(self):
        hardware, published = read_hardware(HARDWARE)
        self.assertEqual((len(hardware), len(published)), (3, 2))
        self.assertEqual(hardware["H200 SXM"].memory_bandwidth, 4.8e12)


class Files(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work, self.n_files = pathlib.Path(work.name), 0

    def file(self, content):
        self.n_files += 1
        path = self.work / f"{self.n_files}.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def command(self, *words):
        """(code, standard output, standard error) of scaling_model.py."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                model.main(words)
            except SystemExit as end:
                is_text = isinstance(end.code, str)
                return 1 if is_text else end.code, out.getvalue(), err.getvalue() + (end.code + "\n" if is_text else "")
        return 0, out.getvalue(), err.getvalue()

    def result(self, *words):
        code, out, err = self.command(*words, "--json")
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def test_are_ordered_by_ranks_and_those_over_the_cores_are_left_out(self):
        files = [self.file(each) for each in (latency(2, 0.6, 0.4), compare(2, 1500, 3000), latency(1, 1, 0.8),
                                              latency(4, 9, 0.2))]
        result = self.result(*files)
        one, two, four = result["measured"]
        self.assertEqual([row["ranks"] for row in (one, two, four)], [1, 2, 4])
        self.assertEqual([row["over_cores"] for row in (one, two, four)], [False, False, True])
        self.assertTrue(one["is_base"])
        self.assertEqual(two["file"], files[0])
        self.assertAlmostEqual(two["alpha_us"], 1)
        self.assertAlmostEqual(two["beta_ns_per_byte"], 0.5)
        self.assertEqual((two["drafting_tokens_per_second"], two["drafting"]), (3000, "model, expected-gain"))
        self.assertAlmostEqual(two["predicted_by_reading_ms"], 0.5 + 13 * 1.64e-3)
        self.assertAlmostEqual(two["speedup"], 1 / 0.6)
        self.assertAlmostEqual(two["efficiency"], 0.5 / 0.6)
        known = result["model"]
        self.assertEqual(known["best_for_latency"], "2 ranks of 1 thread, colocated")  # four take turns on two cores
        self.assertEqual(known["best_for_throughput"], "1 rank of 1 thread, colocated")
        self.assertEqual(known["best_by"], "plain")  # one rank was not compared
        self.assertAlmostEqual(known["alpha_us"], 1)
        self.assertIn("(over cores)", self.command(*files)[1])

    def test_threads_count_as_cores_do(self):
        files = [self.file(each) for each in (latency(1, 1, 0.8, 1, 4), latency(1, 0.4, 0.4, 4, 4), latency(2, 0.5, 0.4, 2, 4))]
        result = self.result(*files)
        self.assertAlmostEqual(result["measured"][1]["efficiency"], 1 / 0.4 / 4)
        self.assertAlmostEqual(result["measured"][2]["efficiency"], 1 / 0.5 / 4)
        self.assertEqual(result["model"]["best_for_throughput"], "1 rank of 1 thread, colocated")
        self.assertIn("on 4 cores: 4 replicas of 1 rank", self.command(*files)[1])

    def test_bad_ones_are_refused_with_file_and_field(self):
        def changed(content, change):
            content = copy.deepcopy(content)
            change(content)
            return content

        one, two = latency(1, 1, 0.8), latency(2, 0.6, 0.4)
        cases = [
            ([changed(two, lambda each: each["environment"].pop("host_ranks"))], "field environment.host_ranks is missing"),
            ([changed(two, lambda each: each["target"][0].update(limit_ms="fast"))],
             "field target[0].limit_ms must be a number above 0"),
            ([changed(two, lambda each: each["collectives"].__delitem__(slice(3, 5)))], "at least two sizes"),
            ([changed(two, lambda each: each.update(t_target_ms=[]))], "field t_target_ms must be a list"),
            ([changed(two, lambda each: each.update(t_target_ms=[True]))], "field t_target_ms[0] must be a number above 0"),
            ([changed(two, lambda each: each.update(target=[3]))], "field target[0] must be an object"),
            ([changed(two, lambda each: each.update(tensor_parallel=1.5))], "field tensor_parallel must be a whole number"),
            ([one, changed(two, lambda each: each["target_shape"].update(layers=7))], "another target"),
            ([{"rows": 3}], "neither of bench latency"), (["{"], "not JSON"), (["[1]"], "one JSON object"),
            ([one, compare(2, 1, 1)], "no file of bench latency"),
            ([one, changed(compare(1, 1, 1), lambda each: each["temperatures"][0]["settings"].pop(0))],
             "field temperatures[0].settings has no plain decoding"),
            ([one, latency(1, 2, 0.8)], "give one of them"),
            ([latency(1, 1, 0.8, 4), latency(2, 1e-3, 1e-3)], "longer than the whole pass")]
        for contents, part in cases:
            files = [self.file(each) for each in contents]
            code, _, err = self.command(*files)
            self.assertEqual((code, err.count("\n")), (1, 1), err)
            self.assertIn(part, err)
            self.assertIn(files[-1], err)

    def test_a_figure_of_hardware_without_a_source_is_refused(self):
        whole = json.loads(pathlib.Path(HARDWARE).read_text())
        for change, part in ((lambda each: each["hardware"][0]["memory_gb"].pop("source"),
                              "field hardware[0].memory_gb.source is missing"),
                             (lambda each: each["hardware"].append(each["hardware"][0]), "field hardware[3].name appears twice"),
                             (lambda each: each["published"][1].update(shape="x"), "field published[1].shape names none"),
                             (lambda each: each.update(schema_version=2), "field schema_version must be 1")):
            content = copy.deepcopy(whole)
            change(content)
            code, _, err = self.command("--hardware", self.file(content))
            self.assertEqual(code, 1)
            self.assertIn(part, err)

    def test_measured_beside_predicted_and_carried_to_gpus(self):
        one, two = self.file(latency(1, 1, 0.8)), self.file(latency(2, 0.6, 0.4))
        code, text, err = self.command(one, two, "--hardware", HARDWARE, "--shapes", "llama-3-8b,falcon-40b")
        self.assertEqual(code, 0, err)
        for part in ("within the cores: 1.15\n", "EXTRAPOLATION", "no more than its 32 heads", "published for 8 GPUs: 276.0"):
            self.assertIn(part, text)
        output = self.work / "scaling.json"
        result = self.result(one, two, "--output", str(output))
        self.assertEqual(result, json.loads(output.read_text()))
        self.assertEqual((result["command"], result["extrapolated"]), ("scaling", []))
        self.assertAlmostEqual(result["measured"][1]["predicted_ms"], 0.52132)

    def test_no_measurement_is_needed_to_extrapolate(self):
        result = self.result("--hardware", HARDWARE, "--bandwidth-share", "1")
        self.assertIsNone(result["model"])
        for row in result["extrapolated"]:  # broadcast and gather are the rest
            self.assertAlmostEqual(row["tokens_per_second"] * row["t_target_ms"], 1000, delta=60)
        self.assertEqual(len(result["extrapolated"]) + len(result["not_extrapolated"]), 3 * len(LARGE) * 7)

    def test_bad_options_and_files_end_in_one_line(self):
        whole = self.file(latency(1, 1, 0.8))
        for words, expected in (([], 2), (["--shapes", "llama-3-8b"], 2), (["--hardware", HARDWARE, "--shapes", "llama-9"], 2),
                                (["--hardware", HARDWARE, "--bandwidth-share", "1.5"], 2),
                                ([self.file(compare(1, 1, 1))], 1), (["/no/such/file.json"], 1),
                                (["--hardware", self.file(compare(1, 1, 1))], 1),
                                ([self.file(latency(1, 1, 1)), "--output", "-"], 2), ([whole, "--output", whole], 2)):
            code, _, err = self.command(*words)
            self.assertEqual((code, err.count("\n")), (expected, 1), (words, err))

    def test_reads_what_the_program_measures(self):
        if BINARY is None:
            self.skipTest("needs --binary")
        golden, output = ROOT / "tests/model/golden", self.work / "scaling.json"
        ended = subprocess.run(
            [sys.executable, ROOT / "bench/scaling.py", "--binary", BINARY, "--ranks", "1,2", "--shards", "--repetitions", "3",
             "--target", golden / "llama-target", "--draft", golden / "llama-draft", "--output", output],
            capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        one, two = json.loads(output.read_text())["measured"]
        self.assertEqual((one["all_reduces_ms"], two["compute_by"]), (0, "by shard"))
        self.assertGreater(two["all_reduces_ms"], 0)
        self.assertGreater(two["broadcast_and_gather_ms"], 0)


if __name__ == "__main__":
    if "--binary" in sys.argv:
        at = sys.argv.index("--binary")
        BINARY = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
