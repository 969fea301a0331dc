"""Writes src/formats/gguf/lattice-points.ts from the tables of ggml's gguf package: pip install gguf==0.19.0 numpy."""

import base64
import json
import sys
from pathlib import Path

import gguf.quants as quants

TARGET = Path(__file__).parents[2] / "src" / "formats" / "gguf" / "lattice-points.ts"
NAMES = ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"]


def places(name: str) -> tuple[list[int], int, bytes]:
    """Values that occur, values a point, and the place of each value among them as a stream of bits, lowest first."""
    kind = getattr(quants, name)
    kind.init_grid()
    values = sorted({int(value) for value in kind.grid.reshape(-1)})
    bits = (len(values) - 1).bit_length()
    stream = sum(values.index(int(value)) << (bits * i) for i, value in enumerate(kind.grid.reshape(-1)))
    return values, kind.grid_shape[1], stream.to_bytes(kind.grid_shape[0] * kind.grid_shape[1] * bits // 8, "little")


def main() -> None:
    lines = [
        "/**",
        " * Lattice points of ggml's IQ formats, as listed in ggml-common.h. Made by scripts/goldens/lattice-tables.py from gguf 0.19.0",
        " * (MIT): the distinct values, the number of values of a point, and their indices into the distinct values as a base64 bit",
        " * stream.",
        " */",
        "",
        "export const latticePoints = {",
    ]
    for name in NAMES:
        values, size, stream = places(name)
        text = base64.b64encode(stream).decode()
        lines.append(f"  {name}: {{ values: {values}, size: {size}, places: {json.dumps(text)} }},")
    lines.append("} as const;")
    TARGET.write_text("\n".join(lines) + "\n")


sys.exit(main())
