"""Of bench/never_slower.py: is the useless draft the draft with its embedding in reverse, are prompts as long as asked for,
and does the table show what is slower?"""

import json
import pathlib
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import never_slower  # noqa: E402


def cell(draft, seconds):
    return {"batch": 4, "prompt_tokens": 25, "new_tokens": 200, "draft": draft, "seconds": seconds, "drafting": 0.125}


class NeverSlower(unittest.TestCase):
    def test_the_useless_draft_has_its_embedding_in_reverse_and_all_else_as_it_was(self):
        with tempfile.TemporaryDirectory() as work:
            draft = pathlib.Path(work) / "draft"
            draft.mkdir()
            header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "model.embed_tokens.weight": {
                "dtype": "F32", "shape": [3, 2], "data_offsets": [8, 32]}}).encode()
            values = struct.pack("<8f", 9, 8, 1, 2, 3, 4, 5, 6)
            (draft / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + values)
            made = never_slower.reversed_embedding(draft, pathlib.Path(work) / "useless") / "model.safetensors"
            self.assertEqual(struct.unpack("<8f", made.read_bytes()[-32:]), (9, 8, 5, 6, 3, 4, 1, 2))
            self.assertEqual(made.read_bytes()[:8 + len(header)], struct.pack("<Q", len(header)) + header)

    def test_prompts_and_texts_are_as_long_as_asked_for_and_differ(self):
        with tempfile.TemporaryDirectory() as work:
            file = pathlib.Path(work) / "prompts.jsonl"
            never_slower.write_prompts(file, 60, 25, 8)
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            self.assertEqual([len(line["prompt_token_ids"]) for line in lines], [60] * 8)
            self.assertEqual(len({tuple(line["prompt_token_ids"]) for line in lines}), 8)
            lengths = [line["max_new_tokens"] for line in lines]
            self.assertEqual((min(lengths), max(lengths), sum(lengths)), (19, 31, 8 * 25))

    def test_the_table_has_a_row_a_cell_and_marks_what_is_slower(self):
        table = never_slower.markdown([cell("its draft", (1.25, 0.9, 2.5)), cell("useless", (0.975, 0.97, 0.979)),
                                       cell("other", (0.975, 0.9, 1))])
        self.assertIn("| 4 | 25 | 200 | 1.250 (0.900 to 2.500); 12.5 % | **0.975** (0.970 to 0.979); 12.5 % | "
                      "**0.975** (0.900 to 1.000); 12.5 % |\n", table)
        self.assertIn("2 of 3 cells below 0.98 of plain, 1 of them by their whole intervals\n", table)


if __name__ == "__main__":
    unittest.main()
