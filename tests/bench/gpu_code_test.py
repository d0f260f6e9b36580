#!/usr/bin/env python3
"""bench/gpu_code.py: its reading of machine code, and what must stay true of the kernels as nvcc compiles them.

    python3 tests/bench/gpu_code_test.py [--nvcc FILE]

The second half is skipped, with a line that says why, where there is no nvcc or no nvdisasm.
"""

import argparse
import os
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import gpu_code  # noqa: E402

NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"

CODE = """
.text._Z3oneP5uint4:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/               @P0 LDG.E.128.CONSTANT R8, desc[UR4][R2.64] ;
        /*0020*/                   LDG.E R12, desc[UR4][R2.64+0x80] ;
        /*0030*/              @!P1 LDG.E.U16 R13, [R4.64] ;
.L_x_0:
        /*0040*/                   HMMA.16816.F32.BF16 R16, R20, R10, R16 ;
        /*0050*/                   LDG.E.64 R4, desc[UR4][R4.64] ;
        /*0060*/                   IADD3 R12, R12, R13, RZ ;
.text._Z3twov:
        /*0000*/                   EXIT ;
"""

REPORT = """ptxas info    : Compiling entry function '_Z3oneP5uint4' for 'sm_90'
ptxas info    : Function properties for _Z3oneP5uint4
    40 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 92 registers, used 1 barriers, 4096 bytes smem
ptxas info    : Compiling entry function '_Z3twov' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 4 registers
"""


class Reading(unittest.TestCase):
    def test_loads_are_under_way_until_one_of_their_registers_is_read(self):
        kernels = gpu_code.read_code(CODE)
        self.assertEqual(list(kernels), ["_Z3oneP5uint4", "_Z3twov"])
        code = kernels["_Z3oneP5uint4"]
        self.assertEqual(len(code), 7)
        self.assertEqual(gpu_code.most_under_way(code), (3, 16 + 4 + 2))
        self.assertEqual(gpu_code.most_under_way(code[2:]), (3, 4 + 2 + 8), "R10 was not loaded there")
        self.assertEqual(gpu_code.most_under_way(kernels["_Z3twov"]), (0, 0))

    def test_loads_and_stores_before_the_wait_are_counted(self):
        code = [("PREEXIT", ""), ("LDG.E", "R4, desc[UR4][R2.64]"), ("STG.E", "desc[UR4][R2.64], R4"), ("ACQBULK", ""),
                ("LDG.E", "R5, desc[UR4][R2.64]")]
        self.assertEqual(gpu_code.before_wait(code), 2)
        self.assertEqual(gpu_code.before_wait(code[2:]), 1)
        self.assertIsNone(gpu_code.before_wait(code[:3]))

    def test_one_load_after_another_is_one_under_way(self):
        step = [("LDG.E.128", "R4, desc[UR4][R2.64]"), ("FFMA", "R0, R7, R8, R0")]
        self.assertEqual(gpu_code.most_under_way(step * 10), (1, 16))

    def test_ptxas_reports_registers_and_spills(self):
        self.assertEqual(gpu_code.read_report(REPORT), {"_Z3oneP5uint4": (92, 20), "_Z3twov": (4, 0)})

    def test_names_are_those_of_the_source(self):
        if not shutil.which("c++filt"):
            self.skipTest("no c++filt")
        mangled = "_ZN10entrodraft5model3gpu12_GLOBAL__N_112attend_tilesI13__nv_bfloat16Li4EEEvNS1_8RowTableEi"
        self.assertEqual(gpu_code.short_names([mangled]), {mangled: "attend_tiles<bfloat16, 4>"})


class Kernels(unittest.TestCase):
    """What the code for GPUs lives by. Figures are floors a little below what nvcc 13.0 makes."""

    @classmethod
    def setUpClass(cls):
        if not os.access(NVCC, os.X_OK):
            raise unittest.SkipTest("needs nvcc")
        nvdisasm = gpu_code.find_nvdisasm(NVCC)
        if not nvdisasm:
            raise unittest.SkipTest("needs nvdisasm: of the CUDA toolkit, or pip install nvidia-cuda-nvdisasm")
        cls.kernels = gpu_code.compiled(gpu_code.ARCHITECTURES, NVCC, nvdisasm)

    def each(self, word):
        found = [kernel for kernel in self.kernels if kernel.name.startswith(word)]
        self.assertEqual({kernel.arch for kernel in found}, set(gpu_code.ARCHITECTURES), word)
        for kernel in found:
            with self.subTest(kernel=kernel.name, arch=kernel.arch):
                yield kernel

    def test_nothing_is_spilled(self):
        self.assertGreater(len(self.kernels), 100)
        self.assertEqual([kernel for kernel in self.kernels if kernel.spilled_bytes], [])

    def test_attention_of_16_bits_asks_for_all_of_its_keys_and_values_at_once(self):
        for chunks in (2, 4, 8):  # of 32 dimensions
            for kernel in [*self.each(f"attend_tiles<bfloat16, {chunks}>"), *self.each(f"attend_tiles<half, {chunks}>")]:
                share = 32 * 32 * chunks * 2 // 32  # of a lane of 32 keys, and of as many values
                self.assertGreaterEqual(kernel.bytes_under_way, share)
                self.assertGreaterEqual(kernel.copies, share // gpu_code.WIDE)
                self.assertGreater(kernel.tensor_core_steps, 0)

    def test_attention_leaves_two_blocks_to_a_multiprocessor(self):
        for kernel in [*self.each("attend_tiles"), *self.each("attend_latents")]:
            if not kernel.name.startswith("attend_tiles") or not kernel.name.endswith("8>"):
                self.assertLessEqual(kernel.registers, 128)  # 65,536 over two blocks of 256 threads

    def test_states_of_linear_attention_leave_two_blocks_to_a_multiprocessor(self):
        for kernel in self.each("apply_delta_rule"):
            self.assertLessEqual(kernel.registers, 128)

    def test_latent_attention_copies_its_keys_and_multiplies_them_twice(self):
        for kernel in self.each("attend_latents"):
            chunks, own = (int(number) for number in kernel.name.rstrip(">").split(", ")[1:])
            self.assertGreater(kernel.copies, 0)  # in a loop, few at once, for the first step and the next
            # Of a warp: 16 keys, a quarter of the chunks; 8 dimensions, 32 keys, two terms of weights.
            self.assertGreaterEqual(kernel.tensor_core_steps, 2 * 2 * (chunks // 4) + 2 * 2 * own)

    def test_only_float32_is_attended_key_by_key(self):
        self.assertEqual({kernel.name for kernel in self.kernels if kernel.name.startswith("attend_blocks")},
                         {"attend_blocks<256, 256>", "attend_blocks<576, 512>"})

    def test_norms_ask_for_weights_before_their_sums(self):
        for kernel in self.each("add_and_norm_held_rows"):  # the row, what is added, weights and biases
            self.assertGreaterEqual(kernel.bytes_under_way, 96 if kernel.name.endswith(" 2>") else 192)

    def test_merges_read_a_part_a_lane(self):
        for word in ("merge_parts", "merge_noisy_parts", "merge_excess"):
            for kernel in self.each(word):
                if not kernel.name.startswith("merge_parts_of_queries"):
                    self.assertLessEqual(kernel.loads, 8)

    def test_products_have_weights_under_way(self):
        for kernel in self.each("multiply_tensor_cores"):
            # Of 8 bits in groups of 64 nvcc asks for seven times 16 bytes for 10.0.
            is_short = kernel.arch == 100 and any(f"Coded<{form}>" in kernel.name for form in (9, 13))
            self.assertGreaterEqual(kernel.bytes_under_way, 112 if is_short else 128)

    def test_weights_leave_the_second_level_cache_first(self):
        for word, reads_weights in (("multiply_tensor_cores", True), ("multiply_experts", True), ("multiply_heads", True),
                                    ("read_all", True), ("attend_tiles", False), ("add_and_norm_held_rows", False),
                                    ("place_heads", False)):
            for kernel in self.each(word):
                self.assertEqual(kernel.evicts_first, reads_weights)

    def test_products_of_up_to_32_rows_leave_two_blocks_to_a_multiprocessor(self):
        self.assertEqual({kernel.name.rstrip(">").split(", ")[-1] for kernel in self.each("multiply_tensor_cores")},
                         {"1", "2", "4", "8"})  # of 8 rows
        for kernel in self.each("multiply_tensor_cores"):
            if not kernel.name.endswith(", 8>"):
                self.assertLessEqual(kernel.registers, 128)

    def test_every_kernel_starts_the_next_and_waits_for_the_one_before(self):
        for kernel in self.kernels:
            with self.subTest(kernel=kernel.name, arch=kernel.arch):
                expected = 1 if kernel.arch >= 90 else 0
                # That in front of NCCL's kernels lets none begin (dist/comm/nccl_guard.h).
                starts = 0 if kernel.name == "wait_for_all_before" else expected
                self.assertEqual((kernel.starts_next, kernel.waits), (starts, expected))
        self.assertEqual(sum(kernel.name == "wait_for_all_before" for kernel in self.kernels), len(gpu_code.ARCHITECTURES))

    def test_nothing_but_weights_is_read_before_the_wait(self):
        for kernel in self.kernels:
            with self.subTest(kernel=kernel.name, arch=kernel.arch):
                if kernel.arch < 90:
                    continue
                if kernel.name.startswith(("multiply_tensor_cores", "multiply_heads")):
                    self.assertGreaterEqual(kernel.before_wait, 2)  # those that a lane has under way together
                elif kernel.name.startswith("add_and_norm_held_rows"):
                    self.assertGreaterEqual(kernel.before_wait, 1)
                elif kernel.name == "push_words":
                    self.assertEqual(kernel.before_wait, 1)  # a word of the host's, by one lane
                else:
                    self.assertEqual(kernel.before_wait, 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc")
    options, rest = parser.parse_known_args()
    NVCC = options.nvcc or NVCC
    ended = unittest.main(argv=[__file__, *rest], exit=False).result
    for _, reason in ended.skipped:
        print("skipped:", reason)
    sys.exit(1 if not ended.wasSuccessful() else 77 if ended.skipped else 0)
