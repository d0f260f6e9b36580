"""Writes gguf_blocks.json: what PyPI's gguf (0.19.0) dequantises random blocks of every type of GGUF files to, and
what Q1_0 and Q2_0 are by ggml's definition, which that version lacks.

Blocks and digests are functions that gguf_blocks_test.cpp has too, so the file holds digests alone: of the bits of the
float32 numbers of so many blocks each. Run by hand when a type comes; the test reads its output only.

    python tests/model/make_gguf_blocks.py        (gguf, numpy)
"""

import json
import pathlib

import gguf
import numpy as np

BLOCKS, BLOCKS_OF_DIGEST = 1024, 256
KIND = gguf.GGMLQuantizationType
KINDS = [KIND.Q4_0, KIND.Q4_1, KIND.Q5_0, KIND.Q5_1, KIND.Q8_0, KIND.Q2_K, KIND.Q3_K, KIND.Q4_K, KIND.Q5_K, KIND.Q6_K,
         KIND.IQ1_S, KIND.IQ1_M, KIND.IQ2_XXS, KIND.IQ2_XS, KIND.IQ2_S, KIND.IQ3_XXS, KIND.IQ3_S, KIND.IQ4_NL,
         KIND.IQ4_XS, KIND.TQ1_0, KIND.TQ2_0, KIND.MXFP4, KIND.NVFP4]
BITS = {"Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18)}  # number, inputs and bytes of a block


def mixed(words):
    """SplitMix64's finish."""
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
    return words ^ words >> np.uint64(31)


def blocks_of(kind, size):
    """Any bytes, so any scale: infinite, tiny and none too; then blocks of zeros, of ones, and without a scale."""
    numbers = np.arange(BLOCKS * size, dtype=np.uint64) + np.uint64(int(kind) << 32)
    blocks = (mixed(numbers) & np.uint64(255)).astype(np.uint8).reshape(BLOCKS, size)
    blocks[13::16, :4] = 0
    blocks[14::16, -4:] = 0
    blocks[15::32] = 0
    blocks[31::32] = 255
    return blocks


def digests_of(values):
    bits = values.view(np.uint32).astype(np.uint64)
    bits[np.isnan(values)] = 0x7fc00000
    places = np.arange(bits.size, dtype=np.uint64).reshape(bits.shape)
    parts = mixed(bits | places << np.uint64(32)).reshape(BLOCKS // BLOCKS_OF_DIGEST, -1)
    return [f"{np.bitwise_xor.reduce(part):016x}" for part in parts]


def values_of_bits(blocks, inputs):
    """A float16, then each input's bits: -1 or 1 times it, or with two bits -1 to 2 times."""
    scales = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").reshape(BLOCKS, inputs, -1).astype(np.float32)
    return scales * (bits[:, :, 0] * 2 - 1 if bits.shape[2] == 1 else bits[:, :, 0] + 2 * bits[:, :, 1] - 1)


def main():
    np.seterr(all="ignore")
    found = {}
    for kind in KINDS:
        inputs, size = gguf.GGML_QUANT_SIZES[kind]
        values = gguf.quants.dequantize(blocks_of(kind, size), kind).astype(np.float32)
        found[kind.name] = {"number": int(kind), "inputs": inputs, "bytes": size, "digests": digests_of(values)}
    for name, (number, inputs, size) in BITS.items():
        values = values_of_bits(blocks_of(number, size), inputs)
        found[name] = {"number": number, "inputs": inputs, "bytes": size, "digests": digests_of(values)}
    text = json.dumps({"blocks": BLOCKS, "blocks_of_digest": BLOCKS_OF_DIGEST, "types": found}, indent=1)
    pathlib.Path(__file__).with_name("gguf_blocks.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
