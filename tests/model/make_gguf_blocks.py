"""Writes gguf_blocks.json: what PyPI's gguf (0.19.0) dequantises random blocks of every type of GGUF files to.

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


def mixed(words):
    """SplitMix64's finish."""
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
    return words ^ words >> np.uint64(31)


def blocks_of(kind):
    """Any bytes, so any scale: infinite, tiny and none too; then blocks of zeros, of ones, and without a scale."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
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


def main():
    np.seterr(all="ignore")
    found = {kind.name: {"number": int(kind), "inputs": gguf.GGML_QUANT_SIZES[kind][0],
                         "bytes": gguf.GGML_QUANT_SIZES[kind][1],
                         "digests": digests_of(gguf.quants.dequantize(blocks_of(kind), kind).astype(np.float32))}
             for kind in KINDS}
    text = json.dumps({"blocks": BLOCKS, "blocks_of_digest": BLOCKS_OF_DIGEST, "types": found}, indent=1)
    pathlib.Path(__file__).with_name("gguf_blocks.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
