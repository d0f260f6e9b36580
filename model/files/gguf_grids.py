"""Writes gguf_grids.cpp, beside it: the grids of ggml's IQ types, as PyPI's gguf has them.

    python model/files/gguf_grids.py        (gguf 0.19.0)
"""

import pathlib

import numpy as np
from gguf import quants

HEAD = """// Grids of ggml's IQ types (MIT; see NOTICE). Written by gguf_grids.py; not edited by hand.
#include "model/files/gguf_grids.h"

// clang-format off
namespace entrodraft::model {
"""
GRIDS = (("kGridIq1", quants.IQ1_S), ("kGridIq2Xxs", quants.IQ2_XXS), ("kGridIq2Xs", quants.IQ2_XS),
         ("kGridIq2S", quants.IQ2_S), ("kGridIq3Xxs", quants.IQ3_XXS), ("kGridIq3S", quants.IQ3_S))
WIDTH = 120


def packed(kind):
    """A point of the grid as 16 bits: the places of its values in the type's list of values, the first lowest."""
    kind.init_grid()
    points = kind.grid.reshape(kind.grid_shape)
    places = np.searchsorted(np.array(kind.grid_map, np.float32), points)
    bits = 16 // points.shape[1]
    return [int(sum(int(place) << bits * i for i, place in enumerate(point))) for point in places]


def main():
    signs = [i | (i.bit_count() & 1) << 7 for i in range(128)]
    assert list(quants.IQ2_XXS.ksigns) == signs  # which gguf_blocks.cpp computes
    text = HEAD
    for name, kind in GRIDS:
        points = packed(kind)
        text += f"\nconst std::uint16_t {name}[{len(points)}] = {{"
        line = ""
        for i, point in enumerate(points):
            item = f"{point}" + ("," if i + 1 < len(points) else "};")
            if not line or len(line) + 1 + len(item) > WIDTH:
                text += line + "\n"
                line = "    " + item
            else:
                line += " " + item
        text += line + "\n"
    text += "\n} // namespace entrodraft::model\n"
    pathlib.Path(__file__).with_name("gguf_grids.cpp").write_text(text)


if __name__ == "__main__":
    main()
