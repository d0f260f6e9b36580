#!/usr/bin/env python3
"""The parts of bench/peers that decide what is compared: the GGUF file's weights, texts that part, modes that leave.

Asks no peer and times nothing. Exits with 77 where gguf or numpy is missing.
"""

import argparse
import contextlib
import io
import math
import pathlib
import random
import sys
import tempfile
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "bench/peers"))

import gguf_file  # noqa: E402  (exits with 77)
import gguf  # noqa: E402
import numpy as np  # noqa: E402
import passes  # noqa: E402
import side_by_side  # noqa: E402
from side_by_side import Answer  # noqa: E402


def rotated(vector, position, pairs):
    """The vector with each pair of features turned by its own angle."""
    turned = list(vector)
    for number, (a, b) in enumerate(pairs):
        angle = position * 10000.0 ** (-number / len(pairs))
        turned[a] = vector[a] * math.cos(angle) - vector[b] * math.sin(angle)
        turned[b] = vector[a] * math.sin(angle) + vector[b] * math.cos(angle)
    return turned


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def one_head(rng, size):
    return [rng.uniform(-1, 1) for _ in range(size)]


class Permutation(unittest.TestCase):
    def test_scores_of_reordered_heads_under_neighbouring_pairs_are_those_of_the_checkpoint(self):
        rng, size = random.Random(1), 8
        halves = [(i, i + size // 2) for i in range(size // 2)]
        neighbours = [(2 * i, 2 * i + 1) for i in range(size // 2)]
        query, key = one_head(rng, size), one_head(rng, size)
        rows = gguf_file.interleaved_rows(1, size)
        want = dot(rotated(query, 5, halves), rotated(key, 2, halves))
        reordered = [query[row] for row in rows], [key[row] for row in rows]
        got = dot(rotated(reordered[0], 5, neighbours), rotated(reordered[1], 2, neighbours))
        self.assertAlmostEqual(want, got, places=12)
        unordered = dot(rotated(query, 5, neighbours), rotated(key, 2, neighbours))
        self.assertGreater(abs(want - unordered), 1e-3)  # the order matters

    def test_every_row_stays_in_its_head_and_is_used_once(self):
        rows = gguf_file.interleaved_rows(3, 4)
        self.assertEqual(rows, [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11])


class File(unittest.TestCase):
    def written(self, dtype):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "model.gguf")
            gguf_file.write(ROOT / "model/demo/smallest", file, dtype)
            reader = gguf.GGUFReader(file)
            tensors = {one.name: (one.tensor_type, np.array(gguf.quants.dequantize(one.data, one.tensor_type)))
                       for one in reader.tensors}
            return {name: field.contents() for name, field in reader.fields.items()}, tensors

    def test_sizes_and_vocabulary_are_the_checkpoints(self):
        fields, tensors = self.written("float16")
        self.assertEqual(fields["general.architecture"], "llama")
        sizes = {"block_count": 1, "attention.head_count": 4, "attention.head_count_kv": 2,
                 "attention.key_length": 16, "rope.dimension_count": 16, "embedding_length": 48}
        self.assertEqual({key: fields[f"llama.{key}"] for key in sizes}, sizes)
        self.assertEqual(len(fields["tokenizer.ggml.tokens"]), 4096)
        self.assertEqual(fields["tokenizer.ggml.tokens"][0], "<|endoftext|>")
        self.assertEqual(fields["tokenizer.ggml.token_type"][:2], [gguf.TokenType.CONTROL, gguf.TokenType.NORMAL])
        self.assertNotIn("output.weight", tensors)  # tied

    def test_float16_and_float32_hold_the_checkpoints_values_in_the_new_order(self):
        source = dict(gguf_file.read_tensors(ROOT / "model/demo/smallest"))
        for dtype, kind in (("float16", gguf.GGMLQuantizationType.F16), ("float32", gguf.GGMLQuantizationType.F32)):
            _, tensors = self.written(dtype)
            self.assertEqual(len(tensors), len(source))
            self.assertEqual(tensors["blk.0.ffn_up.weight"][0], kind)
            self.assertEqual(tensors["blk.0.attn_norm.weight"][0], gguf.GGMLQuantizationType.F32)
            up = source["model.layers.0.mlp.up_proj.weight"]
            self.assertTrue(np.array_equal(tensors["blk.0.ffn_up.weight"][1], up))
            query = source["model.layers.0.self_attn.q_proj.weight"]
            reordered = query[gguf_file.interleaved_rows(4, 16)]
            self.assertTrue(np.array_equal(tensors["blk.0.attn_q.weight"][1], reordered))

    def test_bfloat16_is_rounded_to_the_nearest(self):
        source = dict(gguf_file.read_tensors(ROOT / "model/demo/smallest"))["model.layers.0.mlp.up_proj.weight"]
        written = self.written("bfloat16")[1]["blk.0.ffn_up.weight"][1]
        self.assertTrue(np.all(np.abs(written - source) <= np.abs(source) * 2.0 ** -8))
        self.assertFalse(np.array_equal(written, source))

    def test_what_cannot_be_written_is_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            config = (ROOT / "model/demo/smallest/config.json").read_text()
            biased = config.replace('"attention_bias": false', '"attention_bias": true')
            pathlib.Path(folder, "config.json").write_text(biased)
            with self.assertRaisesRegex(gguf_file.Refused, "attention_bias"):
                gguf_file.write(folder, pathlib.Path(folder, "out"), "float32")

    def test_files_that_are_not_what_they_say_are_refused(self):
        config = (ROOT / "model/demo/smallest/config.json").read_text()
        for name, content in (("config.json", "[]"), ("config.json", "{}"), ("config.json", "{"),
                              ("tokenizer.json", "{}"), ("tokenizer.json", '{"model": []}'),
                              ("model.safetensors", "")):
            with self.subTest(name=name, content=content), tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "config.json").write_text(config)
                tokenizer = (ROOT / "model/demo/smallest/tokenizer.json").read_text()
                pathlib.Path(folder, "tokenizer.json").write_text(tokenizer)
                pathlib.Path(folder, name).write_text(content)
                with self.assertRaisesRegex(gguf_file.Refused, folder):
                    gguf_file.write(folder, pathlib.Path(folder, "out"), "float32")


class Contender:
    def __init__(self, name, group, ours=False):
        self.name, self.group, self.ours = name, group, ours


class Loading(Contender):
    """Counts how often it is loaded, and how many are at once."""

    loaded, most = [], 0

    def __init__(self, name, group, ours=False, seconds=1.0):
        super().__init__(name, group, ours)
        self.stays, self.seconds, self.starts, self.asked = ours, seconds, 0, []

    def start(self):
        self.starts += 1
        Loading.loaded.append(self)
        Loading.most = max(Loading.most, len(Loading.loaded))

    def stop(self):
        Loading.loaded.remove(self)

    def ask(self, prompt, new_tokens):
        assert self in Loading.loaded
        self.asked.append(new_tokens)
        return Answer([1] * new_tokens, self.seconds, self.seconds)


class SideBySide(unittest.TestCase):
    def test_a_text_parts_at_the_first_other_token_or_where_the_shorter_ends(self):
        self.assertIsNone(side_by_side.parting([1, 2], [1, 2]))
        self.assertEqual(side_by_side.parting([1, 2, 3], [1, 5, 3]), 1)
        self.assertEqual(side_by_side.parting([1, 2, 3], [1, 2]), 2)

    def test_modes_that_cannot_be_the_best_drop_out_and_ours_stay(self):
        contenders = [Contender("a", "plain"), Contender("b", "plain"), Contender("c", "lookup"),
                      Contender("d", "plain", True)]
        seconds = {"a": 1.0, "b": 1.4, "c": 9.0, "d": 20.0}
        results = {name: [{0: Answer([1, 2], s, s)}] for name, s in seconds.items()}
        self.assertEqual([c.name for c in side_by_side.kept(contenders, results, 1.3)], ["a", "c", "d"])

    def check(self, ours, theirs, is_tie, rounding, texts=1):
        contenders = [Contender("entrodraft plain", "plain", True), Contender("peer", "plain")]
        results = {"entrodraft plain": [{id: Answer(ours, 1, 1) for id in range(texts)}],
                   "peer": [{id: Answer(theirs, 1, 1) for id in range(texts)}]}
        with contextlib.redirect_stdout(io.StringIO()):
            return side_by_side.check_texts(contenders, results, is_tie, lambda name: rounding)

    def test_another_text_ends_the_run_unless_it_is_a_tie_or_rounding_explains_it(self):
        with self.assertRaises(SystemExit):
            self.check([1, 2], [1, 3], lambda *_: False, None)
        self.assertEqual(self.check([1, 2], [1, 3], lambda *_: True, None)["peer"], 0)
        with self.assertRaises(SystemExit):
            self.check([1, 2], [1, 3], lambda *_: True, None, texts=2)
        self.assertEqual(self.check([1, 2], [1, 3], lambda *_: False, "rounding", texts=2)["peer"], 0)

    def test_the_best_mode_is_one_that_did_not_drop_out(self):
        def one(group, ours, *ms):
            return {"group": group, "ours": ours, "ms_per_token": ms[0], "ms_per_token_of_repetitions": list(ms)}

        figures = {"entrodraft plain": one("plain", True, 1, 1), "entrodraft ngram": one("lookup", True, 1, 1),
                   "entrodraft default rule": one("draft model", True, 1, 1), "slow": one("plain", False, 3, 3),
                   "dropped": one("draft model", False, 9)}
        with contextlib.redirect_stdout(io.StringIO()):
            ratios = {ratio["best"]: ratio for ratio in side_by_side.print_ratios(figures)}
        self.assertEqual(ratios["of all"]["theirs"], "slow")
        self.assertEqual(ratios["of all"]["ratios"], [3, 3])
        self.assertEqual(ratios["with the draft model"]["theirs"], "dropped")
        self.assertNotIn("look-up", ratios)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            ratios = {ratio["best"]: ratio for ratio in side_by_side.print_ratios(figures, ["draft 3"])}
        self.assertEqual(set(ratios), {"plain", "with the draft model of those run", "of those run"})
        self.assertIn("best modes of those run (--modes draft 3), their", said.getvalue())

    def turns(self, contenders, resident, repetitions=1, keep=100):
        options = types.SimpleNamespace(repetitions=repetitions, block=1, new_tokens=5, keep=keep, resident=resident)
        with contextlib.redirect_stderr(io.StringIO()):
            return side_by_side.take_turns(contenders, {0: [1], 1: [1]}, options, lambda results: None)

    def test_no_more_modes_are_loaded_at_once_than_may_be_and_ours_stay(self):
        Loading.loaded, Loading.most = [], 0
        contenders = [Loading(name, "plain") for name in "abcd"] + [Loading("own", "plain", True)]
        results = self.turns(contenders, 2)
        self.assertEqual(Loading.most, 3)
        self.assertEqual(Loading.loaded, [])
        self.assertEqual([contender.starts for contender in contenders], [2, 2, 2, 2, 1])
        self.assertEqual({name: [sorted(one) for one in runs] for name, runs in results.items()},
                         {name: [[0, 1]] for name in ("a", "b", "c", "d", "own")})

    def test_a_mode_that_had_to_be_loaded_first_decodes_a_whole_sequence(self):
        Loading.loaded, Loading.most = [], 0
        contenders = [Loading("a", "plain"), Loading("b", "plain")]
        self.turns(contenders, 1)
        # The second block begins with b, which is still loaded.
        self.assertEqual([contender.asked for contender in contenders], [[5, 5, 5, 5], [5, 5, 8, 5]])
        contenders = [Loading("a", "plain"), Loading("b", "plain")]
        self.turns(contenders, 2)
        self.assertEqual([contender.asked for contender in contenders], [[5, 5, 8, 5]] * 2)

    def test_a_mode_that_drops_out_is_stopped(self):
        Loading.loaded, Loading.most = [], 0
        slow = Loading("slow", "plain", seconds=9)
        self.turns([Loading("quick", "plain"), slow], 2, repetitions=2, keep=1.3)
        self.assertEqual((slow.starts, slow.asked), (1, [5, 5, 8, 5]))

    def test_prompts_that_cannot_be_used_are_refused_in_a_line(self):
        def refused(text):
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder, "prompts")
                file.write_text(text)
                said = io.StringIO()
                with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(said):
                    side_by_side.read_prompts(argparse.ArgumentParser(usage="x"),
                                              types.SimpleNamespace(prompts=file, limit=9))
                self.assertEqual(ended.exception.code, 2)
                return said.getvalue()

        good = '{"id": 1, "prompt_token_ids": [3]}\n'
        for text, why in (("", "no prompt"), ("[1]", "prompt 0, from 0: not an object"),
                          (good + "7", "prompt 1, from 0"),
                          ("{", "not JSON"), (good + good, "a second prompt of the id 1"),
                          ('{"prompt": "x"}', "no prompt_token_ids"), ('{"prompt_token_ids": ["a"]}', "or these"),
                          ('{"id": [1], "prompt_token_ids": [3]}', "an id that is a list")):
            self.assertIn(why, refused(text), text)


class Passes(unittest.TestCase):
    def compared(self, dtype, torch):
        """Times of contenders that take 1, 2 and 6 ms, in turns; and what is printed of them."""
        order = []

        def taking(name, ms):
            return lambda options, dtype, model: order.append(name) or {"1 row": ms, "prompt of 8": 9 * ms}

        options = types.SimpleNamespace(llama=None, torch=torch, repetitions=3)
        made = {"ours": taking("ours", 1.0), "transformers": taking("transformers", 2.0), "on_torch": taking("torch", 6.0)}
        with unittest.mock.patch.multiple(passes, **made), contextlib.redirect_stderr(io.StringIO()):
            times = passes.compare(options, dtype)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            passes.print_table(dtype, times)
        return order, times, said.getvalue()

    def test_contenders_take_turns_and_each_has_its_ratio(self):
        order, times, said = self.compared("float32", True)
        self.assertEqual(order, ["ours", "transformers", "torch", "transformers", "torch", "ours", "torch", "ours", "transformers"])
        self.assertEqual(times["--backend torch"]["prompt of 8"], [54.0] * 3)
        self.assertRegex(said, r"(?m)^1 row +1.000  transformers +2.000  2.000 .*--backend torch +6.000  6.000 ")
        self.assertRegex(said, r"(?m)^prompt of 8 +9.000  transformers +18.000  2.000 ")

    def test_what_has_no_8_bit_weights_is_left_out(self):
        self.assertEqual(set(self.compared("int8", True)[1]), {"entrodraft"})
        self.assertEqual(set(self.compared("float32", False)[1]), {"entrodraft", "transformers"})

    def test_prompts_share_no_beginning(self):
        self.assertEqual(len({passes.prompt_ids(4, number)[0] for number in range(9)}), 9)


if __name__ == "__main__":
    unittest.main()
