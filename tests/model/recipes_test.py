#!/usr/bin/env python3
"""recipes.py: bytes of every kind of tensor, which are the same on every machine, and when files are made."""

import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import recipes  # noqa: E402

LINES = """parts a-key
half F16 4 uniform 0.5 1
brain BF16 4 uniform 0.5 1
whole F32 2 uniform 0.5 1
bytes U8 8 bytes 119 3
nibbles I32 2 nibbles 0 15
float8 F8_E4M3 4x64 float8
blocks U8 2x36 blocks 18 0:f16:0.001:0 17:u8:3:2
table I64 1 zlib eNpjZoAAAAAgAAQ=
again I64 1 same table
"""


def made(text):
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "file.recipe"
        path.write_text(text)
        return recipes.read(path)


class Recipes(unittest.TestCase):
    def test_bytes_are_the_same_everywhere(self):
        recipe = made(LINES)
        contents = recipe.contents()
        self.assertEqual(len(contents), 8 + 8 + 8 + 8 + 8 + 256 + 72 + 8 + 8)
        self.assertEqual(hashlib.sha256(contents).hexdigest(), "41f32aa19deeff388119a9e28b94c4e8c98ade0b799a21411f3f2370f37b84a6")

    def test_numbers_are_within_what_the_line_says(self):
        recipe = made("parts k\nx F32 64x64 uniform 0.5 1\nf F8_E4M3 64x64 float8\nn I32 64 nibbles 2 5\nb U8 900 blocks 18 0:f16:0.001:0.002\n")
        values = struct.unpack("<4096f", recipe.tensors["x"][2])
        self.assertEqual((min(values), max(values), len(set(values))), (1 - 255 / 512, 1 + 255 / 512, 256))
        self.assertAlmostEqual(sum(values) / len(values), 1, delta=0.02)
        self.assertFalse({0x7F, 0xFF} & set(recipe.tensors["f"][2]))
        self.assertEqual(len(set(recipe.tensors["f"][2])), 254)
        self.assertEqual({half for byte in recipe.tensors["n"][2] for half in (byte & 15, byte >> 4)}, {2, 3, 4, 5, 6})
        scales = [struct.unpack("<e", recipe.tensors["b"][2][i:i + 2])[0] for i in range(0, 900, 18)]
        self.assertTrue(all(0.00099 < scale < 0.00301 for scale in scales))
        self.assertGreater(len(set(scales)), 30)

    def test_matrices_of_a_stream_begin_alike(self):
        wide, narrow = (made(f"parts {width}\nx U8 3x{width} uniform 1 0 s\n".replace("U8", "F32")) for width in (40, 24))
        for row in range(3):
            self.assertEqual(wide.tensors["x"][2][row * 160:row * 160 + 96], narrow.tensors["x"][2][row * 96:row * 96 + 96])
        self.assertNotEqual(made("parts 1\nx F32 40 uniform 1 0\n").contents(), made("parts 2\nx F32 40 uniform 1 0\n").contents())

    def test_safetensors_have_their_header(self):
        contents = made("safetensors k\na F16 2x3 uniform 1 0\nb F32 - uniform 1 0\n").contents()
        length, = struct.unpack("<Q", contents[:8])
        header = json.loads(contents[8:8 + length])
        self.assertEqual(header["a"], {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]})
        self.assertEqual(header["b"], {"dtype": "F32", "shape": [], "data_offsets": [12, 16]})
        self.assertEqual((len(contents) - 8 - length, length % 8), (16, 0))

    def test_tensors_of_another_file(self):
        with tempfile.TemporaryDirectory() as scratch:
            whole, part = (pathlib.Path(scratch) / name / "model.safetensors.recipe" for name in ("whole", "part"))
            for path, text in ((whole, "safetensors k\na F32 3 uniform 1 0\nb F32 2x5 uniform 1 0\n"),
                               (part, "safetensors k\nb F32 2x5 of ../whole/model.safetensors\n")):
                path.parent.mkdir()
                path.write_text(text)
                recipes.write(recipes.read(path), path.with_suffix(""))
            self.assertEqual(recipes.read(part).tensors["b"], recipes.read(whole).tensors["b"])

    def test_what_does_not_fit_is_refused(self):
        for line, word in (("x F32 2 gaussian 1", "gaussian"), ("x I64 2 zlib eNpjZoAAAAAgAAQ=", "makes 8 bytes")):
            with self.assertRaisesRegex(ValueError, word):
                made(f"parts k\n{line}\n")

    def test_a_file_is_made_where_it_is_missing_or_older(self):
        with tempfile.TemporaryDirectory() as scratch:
            file = pathlib.Path(scratch) / "deep" / "model.safetensors"
            file.parent.mkdir()
            recipe = file.with_name("model.safetensors.recipe")
            recipe.write_text("safetensors k\nx F32 4 uniform 1 0\n")

            def run():
                subprocess.run([sys.executable, HERE / "recipes.py", scratch], check=True)
                return file.read_bytes(), file.stat().st_ino

            first, number = run()
            self.assertEqual(run(), (first, number))
            file.unlink()
            self.assertEqual(run()[0], first)
            recipe.write_text("safetensors k\nx F32 4 uniform 2 0\n")
            later = file.stat().st_mtime_ns + 1
            os.utime(recipe, ns=(later, later))
            self.assertNotEqual(run()[0], first)
            self.assertEqual([path.name for path in file.parent.iterdir() if path.suffix not in (".safetensors", ".recipe")], [])


if __name__ == "__main__":
    unittest.main()
