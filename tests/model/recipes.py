#!/usr/bin/env python3
"""Writes the random weights of the tests' checkpoints. Git holds a recipe of each file in its place, FILE.recipe, a line a tensor.

    python3 tests/model/recipes.py [FOLDER ...]

makes every FILE that is missing, or older than its recipe or this script, in tests/model or in the given folders. The build runs it.
Standard library only. The scripts make_*.py write recipes and compute the goldens with the same bytes.

A recipe begins with a line `safetensors KEY` or `parts KEY`: the file is the tensors' bytes one after another, and for safetensors a header
before them, which follows from the lines. A line of a tensor is NAME TYPE SHAPE KIND ARGUMENT... (12x40; - is a scalar), with one of these KINDs:

    uniform SCALE OFFSET [STREAM [ROW]]   OFFSET + SCALE * u, where u is an odd multiple of 1/256 below 1; from that row on
    bytes LOW COUNT                 bytes of LOW to LOW + COUNT - 1
    nibbles LOW COUNT               bytes whose halves are both of LOW to LOW + COUNT - 1
    float8                          8-bit floats (e4m3) that are numbers
    blocks SIZE FIELD...            blocks of SIZE random bytes, but for fields: AT:f16:SCALE:OFFSET or AT:u8:LOW:COUNT
    zlib BASE64                     these bytes, compressed
    same NAME                       the bytes of a tensor before
    of FILE                         those of the tensor of that name in a safetensors file, whose path is the recipe's folder and FILE

Random bytes are those of SHAKE-256: of a row its own, from the stream's name and the row's number, so that matrices of one stream have the same
rows, of which the narrower one has the beginning. A stream is called STREAM, or KEY and NAME.
"""

import base64
import hashlib
import json
import math
import os
import pathlib
import struct
import sys
import zlib

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I8": 1, "U8": 1, "BOOL": 1}
SHORTEST_ROW = 16  # shorter ones are made together


def stored(value, dtype):
    """Rounded to 32 bits first, as torch does."""
    whole = struct.pack("<f", value)
    if dtype == "F32":
        return whole
    if dtype == "F16":
        return struct.pack("<e", *struct.unpack("<f", whole))
    bits = struct.unpack("<I", whole)[0]
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)  # BF16: to the nearest


def uniform(scale, offset, dtype):
    """What each of 256 random bytes stands for."""
    return [stored(offset + scale * ((2 * byte - 255) / 256), dtype) for byte in range(256)]


def within(low, count):
    return [bytes([low + byte % count]) for byte in range(256)]


def nibbles(low, count):
    return [bytes([low + (byte & 15) % count | low + (byte >> 4) % count << 4]) for byte in range(256)]


def float8():
    return [bytes([byte ^ (byte & 127 == 127)]) for byte in range(256)]


def put(data, at, stride, table, source):
    """Writes what the bytes of `source` stand for at every `stride`."""
    for i in range(len(table[0])):
        data[at + i::stride] = source.translate(bytes(entry[i] for entry in table))


def of_safetensors(file, name):
    contents = file.read_bytes()
    length, = struct.unpack("<Q", contents[:8])
    begin, end = json.loads(contents[8:8 + length])[name]["data_offsets"]
    return contents[8 + length + begin:8 + length + end]


class Recipe:
    """Tensors in order, each with its line and bytes."""

    def __init__(self, container, key, folder=HERE):
        self.container, self.key, self.folder, self.lines, self.tensors = container, key, folder, [], {}

    def add(self, name, dtype, shape, *how):
        """Returns the tensor's bytes."""
        words = [name, dtype, "x".join(map(str, shape)) or "-", *map(str, how)]
        self.lines.append(" ".join(words))
        data = bytes(self.made(name, dtype, shape, *words[3:]))
        if len(data) != math.prod(shape) * SIZES[dtype]:
            raise ValueError(f"{self.lines[-1]}: makes {len(data)} bytes")
        self.tensors[name] = (dtype, shape, data)
        return data

    def add_bytes(self, name, dtype, shape, data):
        """What is not random."""
        return self.add(name, dtype, shape, "zlib", base64.b64encode(zlib.compress(bytes(data), 9)).decode())

    def made(self, name, dtype, shape, kind, *arguments):
        if kind == "zlib":
            return zlib.decompress(base64.b64decode(arguments[0]))
        if kind == "same":
            return self.tensors[arguments[0]][2]
        if kind == "of":
            return of_safetensors(self.folder / arguments[0], name)
        if kind == "uniform":
            scale, offset, *stream = arguments
            table = uniform(float(scale), float(offset), dtype)
            return self.random(name, shape, table, *stream)
        if kind in TABLES:
            in_bytes = [*shape[:-1], (shape or [1])[-1] * SIZES[dtype]]
            return self.random(name, in_bytes, TABLES[kind](*map(int, arguments)))
        if kind == "blocks":
            return self.blocks(name, shape, int(arguments[0]), [field.split(":") for field in arguments[1:]])
        raise ValueError(f"{name}: no kind of tensor is called '{kind}'")

    def random(self, name, shape, table, stream=None, first=0):
        total = math.prod(shape)
        row = shape[-1] if len(shape) > 1 and shape[-1] >= SHORTEST_ROW else total
        stream = hashlib.shake_256((stream or f"{self.key}/{name}").encode())
        source = bytearray()
        for number in range(int(first), int(first) + total // row):
            of_row = stream.copy()
            of_row.update(b" %d" % number)
            source += of_row.digest(row)
        data = bytearray(total * len(table[0]))
        put(data, 0, len(table[0]), table, source)
        return data

    def blocks(self, name, shape, size, fields):
        data = self.random(name, shape, within(0, 256))
        for at, kind, first, second in fields:
            table = uniform(float(first), float(second), "F16") if kind == "f16" else within(int(first), int(second))
            put(data, int(at), size, table, bytes(data[int(at)::size]))
        return data

    def contents(self):
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for name, (dtype, shape, data) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
            at += len(data)
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        parts = [data for _, _, data in self.tensors.values()]
        return b"".join([struct.pack("<Q", len(text)), text, *parts] if self.container == "safetensors" else parts)

    def write(self, file):
        """The recipe and what it makes."""
        pathlib.Path(f"{file}.recipe").write_text("\n".join([f"{self.container} {self.key}", *self.lines]) + "\n")
        write(self, file)


TABLES = {"bytes": within, "nibbles": nibbles, "float8": float8}


def read(path):
    first, *lines = path.read_text().splitlines()
    recipe = Recipe(*first.split(), folder=path.parent)
    for line in lines:
        name, dtype, shape, *how = line.split()
        recipe.add(name, dtype, [] if shape == "-" else [int(n) for n in shape.split("x")], *how)
    return recipe


def write(recipe, file):
    scratch = file.with_name(f"{file.name}.{os.getpid()}")  # builds may make the same file at once
    scratch.write_bytes(recipe.contents())
    scratch.replace(file)


def is_current(file, path):
    try:
        made = file.stat().st_mtime_ns
    except FileNotFoundError:
        return False
    return made >= max(path.stat().st_mtime_ns, pathlib.Path(__file__).stat().st_mtime_ns)


def main():
    for folder in map(pathlib.Path, sys.argv[1:] or [HERE]):
        for path in sorted(folder.rglob("*.recipe")):
            file = path.with_suffix("")
            if not is_current(file, path):
                write(read(path), file)


if __name__ == "__main__":
    main()
