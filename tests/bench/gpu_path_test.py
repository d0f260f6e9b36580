#!/usr/bin/env python3
"""bench/gpu_path.py: the cost model of a pass on GPUs against figures computed by hand, the file of its constants, and measured
passes beside it.

    tests/bench/gpu_path_test.py
"""

import copy
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import gpu_path  # noqa: E402
from gpu_path import Kernels, Rates, predicted_pass, predicted_prompt  # noqa: E402
from gpus import SHAPES, Shape  # noqa: E402
from json_file import BadFile  # noqa: E402

HARDWARE = ROOT / "bench/hardware.json"
# 2 layers of 128, 4 heads of 32 over 2 KV heads, MLP of 256, vocabulary of 640. A layer has 128 * (128 + 2 * 64) for queries,
# keys and values, 128 * 128 behind attention, 3 * 128 * 256 in the MLP: 147,456; the head 81,920. Read in all: 376,832.
TINY = Shape("llama", 2, 128, 4, 2, 256, 640)
# 4 products of 2 us, 1 attention of 5 us, a gap of 1 us: 4 * 3 + 6 = 18 us a layer; 4 us for the head.
KERNELS = Kernels(a_layer=((4, 2e-6), (1, 5e-6)), head=4e-6, gap=1e-6, attention_share=0.5, attention_factor=1.5, rows_a_launch=64,
                  pass_end=50e-6, step_end=20e-6, chunk=512, prompt_attention_share=0.5)
RATES = Rates(read=1e9, operations=1e12, memory=1e9, sums={2: (5e-6, 20e-6)})


class ByHand(unittest.TestCase):
    def test_a_pass_of_one_row(self):
        parts = predicted_pass(RATES, KERNELS, TINY, 1, 1, 1000)
        self.assertAlmostEqual(parts.reading, 753664 / 1e9)  # two bytes each
        self.assertAlmostEqual(parts.operations, 753664 / 1e12)  # two operations each
        # Keys and values of 2 heads of 32 in 2 bytes are 256 bytes a position and layer, at half of the rate; 4 operations for each of
        # the 128 numbers of the queries and position, one and a half times.
        self.assertAlmostEqual(parts.attention, 2 * (256e3 / 0.5e9 + 1.5 * 4 * 1000 * 128 / 1e12))
        self.assertAlmostEqual(parts.kernels, 40e-6)
        self.assertEqual((parts.sums, parts.end), (0, 50e-6))
        self.assertAlmostEqual(parts.total, 753.664e-6 + 0.753664e-6 + 1025.536e-6 + 40e-6 + 50e-6)

    def test_a_step_of_a_draft_loop_does_not_wait_for_the_host(self):
        alone, in_loop = (predicted_pass(RATES, KERNELS, TINY, 1, 1, 1000, in_loop=each) for each in (False, True))
        self.assertAlmostEqual(alone.total - in_loop.total, 30e-6)

    def test_more_rows_read_the_weights_again_where_a_launch_ends(self):
        self.assertEqual([KERNELS.readings(rows) for rows in (1, 16, 17, 64, 65, 128)], [1, 1, 1, 1, 2, 2])
        eight, many = (predicted_pass(RATES, KERNELS, TINY, 1, rows, 0) for rows in (8, 65))
        self.assertAlmostEqual(eight.total, 753.664e-6 + 8 * 0.753664e-6 + 40e-6 + 50e-6)
        self.assertAlmostEqual(many.reading, 2 * 753.664e-6)

    def test_two_gpus_read_half_and_sum_up_twice_a_layer(self):
        parts = predicted_pass(RATES, KERNELS, TINY, 2, 1, 1000)
        self.assertAlmostEqual(parts.reading, 753664 / 2 / 1e9)
        self.assertAlmostEqual(parts.sums, 4 * 5e-6)  # 512 bytes are no cheaper than the smaller size that is known
        self.assertAlmostEqual(parts.attention, predicted_pass(RATES, KERNELS, TINY, 1, 1, 1000).attention / 2)

    def test_an_embedding_of_more_than_a_gibibyte_is_summed_up_once_more(self):
        self.assertEqual([SHAPES[name].all_reduces(8) for name in ("llama-3-8b", "llama-3-70b")], [64, 161])

    def test_sums_grow_with_their_bytes(self):
        self.assertEqual(RATES.sum(1, 1e9), 0)
        self.assertAlmostEqual(RATES.sum(2, 16384), 5e-6)
        self.assertAlmostEqual(RATES.sum(2, (16384 + 262144) / 2), 12.5e-6)
        self.assertAlmostEqual(RATES.sum(2, 262144), 20e-6)

    def test_a_prompt_of_a_chunk_and_a_padded_one(self):
        prompt = predicted_prompt(RATES, KERNELS, TINY, 512 + 70)
        # Of 294,912 numbers in layers; 512 rows, then 70 padded to 128: arithmetic is less than reading here.
        self.assertAlmostEqual(prompt.products, 2 * 2 * 294912 / 1e9)
        # 512 rows over 256 positions in the middle, 70 over 512 + 35, at half of the rate.
        self.assertAlmostEqual(prompt.attention, 2 * 4 * (512 * 256 + 70 * 547) * 128 / 0.5e12)
        # A row moves 28 * 128 + 4 * 128 + 256 + 6 * 256 bytes a layer.
        self.assertAlmostEqual(prompt.activations, 2 * 640 * 5888 / 1e9)
        self.assertAlmostEqual(prompt.kernels, 2 * (2 * 18e-6 + 50e-6))
        self.assertAlmostEqual(prompt.share, prompt.products / prompt.total)
        with_arithmetic = predicted_prompt(RATES._replace(operations=1e11), KERNELS, TINY, 512)
        self.assertAlmostEqual(with_arithmetic.products, 2 * 294912 * 512 / 1e11)

    def test_a_short_prompt_is_padded(self):
        self.assertEqual(predicted_prompt(RATES, KERNELS, TINY, 3).activations, predicted_prompt(RATES, KERNELS, TINY, 16).activations)


class OfTheProject(unittest.TestCase):
    """The constants of bench/hardware.json."""

    def setUp(self):
        self.rates, self.kernels = gpu_path.read_gpu_path(HARDWARE)

    def total_ms(self, hardware, shape, gpus, rows=1, context=1000, **options):
        return predicted_pass(self.rates[hardware], self.kernels, SHAPES[shape], gpus, rows, context, **options).total * 1e3

    def test_llama_8b_on_an_h200_by_hand(self):
        # 15.009 GB at 4.3 TB/s: 3.490 ms; arithmetic of a row 0.024; 32 layers of 4.096 MB of keys and values at 2.451 TB/s: 0.053,
        # and 0.001 of arithmetic; eight kernels a layer, with the gaps 21.2 us: 0.683 with the head's 4.7 us.
        layer = 4 * 2.1 + 2 * 2.6 + 2.6 + 5
        self.assertAlmostEqual(self.kernels.layer * 1e6, layer)
        by_hand = 15.0093 / 4.3 + 15.0093 / 620 + 32 * (4.096 / 2451 + 24.576 / 620e3) + (32 * layer + 4.7) / 1e3 + 0.05
        self.assertAlmostEqual(self.total_ms("H200 SXM", "llama-3-8b", 1), by_hand, places=3)

    def test_are_those_of_the_estimate_that_they_were_taken_from(self):
        self.assertAlmostEqual(self.total_ms("H200 SXM", "llama-3-8b", 1) / 4.2, 1, delta=0.08)

    def test_prompts_reach_the_goal(self):
        for tokens in gpu_path.PROMPTS:
            prompt = predicted_prompt(self.rates["H200 SXM"], self.kernels, SHAPES["llama-3-8b"], tokens)
            self.assertGreater(prompt.share, gpu_path.GOAL, tokens)

    def test_eight_rows_are_nearly_free(self):
        self.assertLess(self.total_ms("H200 SXM", "llama-3-8b", 1, rows=8) / self.total_ms("H200 SXM", "llama-3-8b", 1), 1.05)

    def test_a_figure_without_a_source_is_refused(self):
        whole = json.loads(HARDWARE.read_text())
        for change, part in ((lambda each: each["gpu_path"]["gap_us"].pop("source"), "field gpu_path.gap_us.source is missing"),
                             (lambda each: each["gpu_path"]["kernels"][1].update(a_layer=0.5),
                              "field gpu_path.kernels[1].a_layer must be a whole number"),
                             (lambda each: each["hardware"][0]["reached"]["sums"][2].pop("source"),
                              "field hardware[0].reached.sums[2].source is missing")):
            content = copy.deepcopy(whole)
            change(content)
            with tempfile.TemporaryDirectory() as work:
                file = pathlib.Path(work) / "hardware.json"
                file.write_text(json.dumps(content))
                with self.assertRaises(BadFile) as refused:
                    gpu_path.read_gpu_path(file)
                self.assertIn(part, str(refused.exception))

    def test_without_such_figures_nothing_is_said(self):
        with tempfile.TemporaryDirectory() as work:
            file = pathlib.Path(work) / "hardware.json"
            file.write_text("{}")
            self.assertEqual(gpu_path.gpu_path_report(file)[0], "")


class Report(unittest.TestCase):
    def test_has_all_contexts_on_one_gpu_and_one_on_more(self):
        text, fields = gpu_path.gpu_path_report(HARDWARE, ["llama-3-8b", "opt-125m", "llama-3-70b"])
        rows = [(row["gpus"], row["context"]) for row in fields["gpu_path"]
                if (row["hardware"], row["shape"]) == ("H200 SXM", "llama-3-8b")]
        self.assertEqual(rows, [(1, 64), (1, 1000), (1, 4000), (1, 30000), (2, 1000), (4, 1000), (8, 1000)])
        small = [row["context"] for row in fields["gpu_path"] if row["shape"] == "opt-125m" and row["gpus"] == 1]
        self.assertEqual(small, [64, 1000] * 2)  # it has 2,048 positions
        self.assertNotIn(("llama-3-70b", 1), [(row["shape"], row["gpus"]) for row in fields["gpu_path"]])  # 141 GB
        self.assertEqual({row["tokens"] for row in fields["gpu_path_prompts"] if row["shape"] == "opt-125m"}, {512, 2048})
        self.assertIn("llama-3-8b on H200 SXM", text)
        self.assertIn("8 kernels a layer", text)

    def test_a_measured_pass_stands_beside_its_prediction(self):
        measured = {"environment": {"device": "NVIDIA H200", "dtype": "bfloat16"}, "tensor_parallel": 1, "context": 1000,
                    "t_target_ms": [8.590] + [9.5] * 7,
                    "target_shape": {"layers": 32, "hidden_size": 4096, "vocab_size": 128256}}
        others = [copy.deepcopy(measured) for _ in range(3)]
        others[0]["environment"]["device"] = "NVIDIA RTX 5090"
        others[1]["target_shape"]["layers"] = 31
        others[2]["environment"].pop("device")
        with tempfile.TemporaryDirectory() as work:
            files = [pathlib.Path(work) / f"{i}.json" for i in range(4)]
            for file, content in zip(files, [measured, *others]):
                file.write_text(json.dumps(content))
            text, fields = gpu_path.gpu_path_report(HARDWARE, ["llama-3-8b"], files)
        row, = fields["gpu_path_measured"]
        self.assertAlmostEqual(row["t1_ms"] / row["t1_predicted_ms"], 2, delta=0.01)
        self.assertGreater(row["t8_predicted_ms"], row["t1_predicted_ms"])
        self.assertIn("t(1) measured 8.590 ms, predicted 4.303, 2.00 of it", text)

    def test_names_of_devices_are_those_of_hardware(self):
        rates = {"H100 SXM": 1, "H200 SXM": 2}
        for device, name in (("NVIDIA H200", "H200 SXM"), ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H100-SXM5-80GB", "H100 SXM"),
                             ("NVIDIA GH200 480GB", None), ("cpu", None)):
            self.assertEqual(gpu_path.hardware_named(device, rates), name)


if __name__ == "__main__":
    unittest.main()
