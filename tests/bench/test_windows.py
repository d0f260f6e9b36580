"""Of bench/windows.py: are positions stretched where they must be, is the cache counted as it is, and what is in a table?"""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import windows  # noqa: E402


class Windows(unittest.TestCase):
    def checkpoint(self, work):
        directory = pathlib.Path(work) / "model"
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps({
            "max_position_embeddings": 2048, "rope_theta": 5000.0, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "hidden_size": 64}))
        (directory / "model.safetensors").write_bytes(bytes(768))
        return directory

    def test_positions_are_stretched_where_there_are_too_few(self):
        with tempfile.TemporaryDirectory() as work:
            directory = self.checkpoint(work)
            same = windows.stretched(directory, pathlib.Path(work) / "same", 2048)
            self.assertEqual((same / "config.json").read_text(), (directory / "config.json").read_text())
            config = json.loads((windows.stretched(directory, pathlib.Path(work) / "longer", 8192) / "config.json").read_text())
            self.assertEqual(config["rope_parameters"], {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0,
                                                         "original_max_position_embeddings": 2048})
            self.assertEqual(config["max_position_embeddings"], 8192)

    def test_a_cache_is_keys_and_values_of_all_layers_in_float32(self):
        with tempfile.TemporaryDirectory() as work:
            self.assertEqual(windows.cache_over_weights(self.checkpoint(work), 100), 3 * 2 * 2 * 16 * 4 * 100 / 768)

    def test_each_window_is_tried_with_the_draft_and_with_each_number_of_chunks_of_the_target(self):
        settings = windows.settings_of("small", [64, 256], [0, 32])
        self.assertEqual(list(settings), ["plain", "draft", "draft, 64", "self, 64", "self, 64 + 32 chunks", "draft, 256",
                                          "self, 256", "self, 256 + 32 chunks"])
        self.assertEqual(settings["self, 64 + 32 chunks"],
                         ["--draft", "self", "--draft-window", "64:chunks=32"])

    def test_the_table_has_a_row_a_setting_beside_the_whole_draft(self):
        cell = {"context": 8000, "cache_over_weights": 12.34, "tokens_a_pass": 3.456, "least": 1.5, "most": 2.5}
        table = windows.markdown([{**cell, "draft": "draft", "over_plain": 1.6}, {**cell, "draft": "self, 64", "over_plain": 2}])
        self.assertIn("| 8000, 12.3 | self, 64 | 3.46 | 2.00 (1.50 to 2.50) | 1.25 |\n", table)


if __name__ == "__main__":
    unittest.main()
