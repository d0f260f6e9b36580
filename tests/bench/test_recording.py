"""Is what the reader of recordings reads what was written, and is everything else refused by file and block?"""

import contextlib
import io
import json
import pathlib
import struct
import tempfile
import unittest
import zlib

import numpy as np

import synthetic
from recording import MAGIC, RecordingError, Text, main, pack, read_recording, write_recording
from runs import ratio_interval


def block(fields, raw_columns=b""):
    """A block with columns as bytes: those of the format's page are written out by hand here."""
    text = json.dumps(fields).encode()
    packed = zlib.compress(struct.pack("<I", len(text)) + text + raw_columns)
    return b"EDR1" + struct.pack("<II", len(packed), zlib.crc32(packed)) + packed


class ReadingARecording(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.file = pathlib.Path(scratch.name) / "demo.edr"
        self.texts = synthetic.texts(3, n_drafts=2, places=20)
        write_recording(self.file, synthetic.header(2), self.texts, [{"id": 9, "error": "the prompt is too long"}])
        self.bytes = self.file.read_bytes()
        self.ends = [0]  # where each block ends
        while self.ends[-1] < len(self.bytes):
            self.ends.append(self.ends[-1] + 12 + struct.unpack_from("<I", self.bytes, self.ends[-1] + 4)[0])

    def assert_refused(self, data, *said):
        self.file.write_bytes(data)
        with self.assertRaises(RecordingError) as refused:
            read_recording(self.file)
        for words in (str(self.file), *said):
            self.assertIn(words, str(refused.exception))
        self.assertNotIn("\n", str(refused.exception))

    def with_text(self, change):
        """The file's bytes with `change` made to the columns of its first text."""
        text = Text(dict(self.texts[0].fields), dict(self.texts[0].columns))
        change(text)
        return self.bytes[:self.ends[1]] + pack({"kind": "text", **text.fields}, text.columns)

    def test_gives_back_what_was_written(self):
        read = read_recording(self.file)
        self.assertIsNone(read.torn)
        self.assertEqual(read.header["target"], synthetic.header()["target"])
        self.assertEqual(read.n_drafts, 2)
        self.assertEqual([error["error"] for error in read.errors], ["the prompt is too long"])
        self.assertEqual(len(read.texts), 3)
        for wrote, got in zip(self.texts, read.texts):
            self.assertEqual(got.fields["pieces"], wrote.fields["pieces"])
            self.assertEqual(got.columns.keys(), wrote.columns.keys())
            for name, values in wrote.columns.items():
                np.testing.assert_array_equal(got.columns[name], values, name)
                self.assertEqual(got.columns[name].dtype.itemsize, 4)

    def test_reads_bytes_that_stand_plane_by_plane(self):
        columns = [{"name": "prompt_token", "type": "i32", "count": 2}, {"name": "token", "type": "i32", "count": 1},
                   {"name": "target_entropy", "type": "f32", "count": 1},
                   {"name": "target_log_probability", "type": "f32", "count": 1},
                   {"name": "target_margin", "type": "f32", "count": 1}]
        fields = {"kind": "text", "id": "a", "prompt_tokens": 2, "new_tokens": 1, "finish_reason": "length",
                  "pieces": ["x"], "columns": columns}
        # 0x04030201 and 0x14131211: first bytes, second bytes, ...; then one value a column, which has one order
        raw = bytes.fromhex("0111 0212 0313 0414") + struct.pack("<ifff", -1, 2.25, -0.5, 1.5)
        self.file.write_bytes(block({"kind": "recording", "schema_version": 1, "target": {}, "drafts": [],
                                     "max_draft_tokens": 15})
                              + block(fields, raw))
        (text,) = read_recording(self.file).texts
        self.assertEqual(list(text.columns["prompt_token"]), [0x04030201, 0x14131211])
        self.assertEqual(text.columns["token"][0], -1)
        self.assertEqual(text.columns["target_entropy"][0], np.float32(2.25))

    def test_lays_astray_chains_beside_their_mismatches(self):
        text = read_recording(self.file).texts[1]
        for draft in (0, 1):
            chains = text.astray(draft, "entropy")
            self.assertEqual(len(chains), np.count_nonzero(~text.matches(draft)))
            self.assertEqual([len(chain) for chain in chains], list(text.of_draft(draft, "astray_length")))
            np.testing.assert_array_equal(np.concatenate(chains), text.of_draft(draft, "astray_entropy"))
        self.assertEqual(text.of_draft(0, "top_token").shape, (20, 8))

    def test_reads_a_draft_that_is_always_right(self):
        texts = synthetic.texts(1, agreement=50.0, places=10)
        write_recording(self.file, synthetic.header(), texts)
        (text,) = read_recording(self.file).texts
        self.assertTrue(text.matches(0).all())
        self.assertEqual(text.astray(0, "token"), [])

    def test_keeps_whole_blocks_before_a_torn_last_one(self):
        for cut in (self.ends[3] + 3, self.ends[3] + 12, self.ends[4] - 1):
            self.file.write_bytes(self.bytes[:cut])
            read = read_recording(self.file)
            self.assertEqual(len(read.texts), 2)
            self.assertIn("block 3: torn", read.torn)

    def test_is_refused_without_a_whole_first_block(self):
        self.assert_refused(b"", "block 0", "empty")
        self.assert_refused(self.bytes[:40], "block 0", "torn")

    def test_is_refused_with_another_magic(self):
        at = self.ends[2]
        self.assert_refused(self.bytes[:at] + b"EDR2" + self.bytes[at + 4:], "block 2", "EDR2")
        self.assert_refused(self.bytes + b"x", "block 5", "b'x'")

    def test_is_refused_with_a_flipped_bit(self):
        at = self.ends[2] + 50
        flipped = self.bytes[:at] + bytes([self.bytes[at] ^ 16]) + self.bytes[at + 1:]
        self.assert_refused(flipped, "block 2", "CRC-32")

    def test_is_refused_where_the_stream_is_no_zlib(self):
        packed = b"not packed"
        made = MAGIC + struct.pack("<II", len(packed), zlib.crc32(packed)) + packed
        self.assert_refused(self.bytes[:self.ends[1]] + made, "block 1", "zlib")

    def test_is_refused_where_the_stream_is_cut_short(self):
        packed = zlib.compress(b"0123456789" * 9)[:-6]
        made = MAGIC + struct.pack("<II", len(packed), zlib.crc32(packed)) + packed
        self.assert_refused(self.bytes[:self.ends[1]] + made, "block 1", "does not end")

    def test_is_refused_with_columns_that_do_not_add_up(self):
        def shorter(name):
            def change(text):
                text.columns[name] = text.columns[name][:-1]
            return change

        for name in ("prompt_token", "target_entropy", "draft.0.rank", "draft.1.top_token", "draft.0.astray_length",
                     "draft.1.astray_entropy"):
            self.assert_refused(self.with_text(shorter(name)), "block 1", f"column {name} has")

    def test_is_refused_with_missing_unknown_or_wrong_columns(self):
        for change, said in ((lambda text: text.columns.pop("draft.1.overlap"), "draft.1.overlap is missing"),
                             (lambda text: text.columns.update(extra=np.zeros(3)), "unknown column extra"),
                             (lambda text: text.columns.update(token=np.zeros(20)), "column token of type f32"),
                             (lambda text: text.fields.pop("pieces"), "field pieces is missing"),
                             (lambda text: text.fields["pieces"].pop(), "19 pieces for 20 new tokens")):
            self.assert_refused(self.with_text(change), "block 1", said)

    def test_is_refused_with_values_behind_or_beyond_the_block(self):
        columns = [{"name": "a", "type": "i32", "count": 2}]
        head = self.bytes[:self.ends[1]]
        text = {"kind": "text", "columns": columns}
        self.assert_refused(head + block(text, b"\0" * 7), "block 1", "2 values in 7 bytes")
        self.assert_refused(head + block(text, b"\0" * 9), "block 1", "1 bytes behind")
        self.assert_refused(head + block({"kind": "text", "columns": columns * 2}, b"\0" * 16), "column a twice")
        columns[0]["count"] = -1
        self.assert_refused(head + block(text), "count -1")

    def test_is_refused_with_an_unknown_version_or_kind(self):
        self.assert_refused(block({"kind": "recording", "schema_version": 2}), "schema_version 2")
        self.assert_refused(block({"kind": "text"}), "block 0", "'text'")
        self.assert_refused(self.bytes[:self.ends[1]] + block({"kind": "picture"}), "block 1", "'picture'")


class AcceptanceOfDrafts(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.file = pathlib.Path(scratch.name) / "demo.edr"
        self.texts = synthetic.texts(4, n_drafts=2, places=30)

    def figures(self, texts):
        write_recording(self.file, synthetic.header(2), texts)
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            main([str(self.file), "--json"])
        return json.loads(told.getvalue())["figures"]

    def test_alpha_is_the_mean_overlap_over_all_places_of_a_draft(self):
        figures = self.figures(self.texts)
        self.assertEqual([(each["draft"], each["texts"], each["places"]) for each in figures], [(1, 4, 120), (2, 4, 120)])
        for each in figures:
            overlap = np.concatenate([text.columns[f"draft.{each['draft'] - 1}.overlap"] for text in self.texts])
            self.assertAlmostEqual(each["alpha"], overlap.mean())
            self.assertAlmostEqual(each["matching_share"], overlap.mean())  # greedy
            low, high = each["interval_alpha"]
            self.assertTrue(0 < low < each["alpha"] < high <= 1)
            self.assertEqual(sum(part["places"] for part in each["by_entropy"]), 120)
            self.assertAlmostEqual(sum(part["places"] * part["alpha"] for part in each["by_entropy"]), overlap.sum())

    def test_places_beyond_the_text_do_not_count_and_temperatures_are_kept_apart(self):
        for text, temperature in zip(self.texts, (0, 1, 1, 0.5)):
            text.fields.update(temperature=temperature, new_tokens=20, pieces=text.fields["pieces"][:20])
        figures = self.figures(self.texts)
        self.assertEqual([(each["temperature"], each["draft"], each["places"]) for each in figures],
                         [(0, 1, 20), (0, 2, 20), (0.5, 1, 20), (0.5, 2, 20), (1, 1, 40), (1, 2, 40)])
        self.assertEqual(figures[0]["interval_alpha"], [figures[0]["alpha"]] * 2)  # of a single text

    def test_the_interval_covers_the_true_rate_about_as_often_as_it_says(self):
        random, covered = np.random.default_rng(0), 0
        for _ in range(400):
            chances = random.beta(8, 4, 12)  # a text each, of mean 2 / 3
            low, high = ratio_interval(list(random.binomial(60, chances)), [60] * 12)
            covered += low <= 2 / 3 <= high
        self.assertAlmostEqual(covered / 400, 0.95, delta=0.03)


if __name__ == "__main__":
    unittest.main()
