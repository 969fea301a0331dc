#!/usr/bin/env python3
"""Writes src/formats/gguf/blocks.json.golden: random blocks of every format, and their values by gguf's numpy code.

Bytes are random but for binary16 factors, which are small numbers so that no value is infinite or no number.

Needs: pip install gguf (made with 0.19.0)
"""

import base64
import json
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

WEIGHTS = 512
# Offsets of binary16 numbers in a block.
FACTORS = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "MXFP4": [],
    "NVFP4": [],
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
    "IQ1_S": [0],
    "IQ1_M": [],
}
# Formats that the package has no values of, by their definition in llama.cpp's ggml-common.h: number, weights, bits, value of a code.
DEFINED = {"Q1_0": (41, 128, 1, lambda code: 2 * code - 1), "Q2_0": (42, 64, 2, lambda code: code - 1)}


def encode(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def main() -> None:
    random = np.random.default_rng(1)
    formats = {}
    for name, offsets in FACTORS.items():
        kind = Type[name]
        size, width = GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (WEIGHTS // size, width), dtype=np.uint8)
        for offset in offsets:
            factors = random.normal(0, 0.1, len(blocks)).astype(np.float16)
            blocks[:, offset : offset + 2] = factors.view(np.uint8).reshape(-1, 2)
        if name == "MXFP4":
            blocks[:, 0] = random.integers(110, 130, len(blocks))
        if name == "IQ1_M":
            factors = random.normal(0, 0.1, len(blocks)).astype(np.float16).view(np.uint16)
            for word in range(4):
                high = blocks[:, 49 + 2 * word] & 15
                blocks[:, 49 + 2 * word] = high | ((factors >> (4 * word)) & 15).astype(np.uint8) << 4
        values = dequantize(blocks.reshape(-1), kind).astype(np.float32)
        formats[name] = {"id": int(kind), "blocks": encode(blocks), "values": encode(values)}
    for name, (number, size, bits, value) in DEFINED.items():
        blocks = random.integers(0, 256, (WEIGHTS // size, 2 + size * bits // 8), dtype=np.uint8)
        factors = random.normal(0, 0.1, len(blocks)).astype(np.float16)
        blocks[:, :2] = factors.view(np.uint8).reshape(-1, 2)
        stream = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").reshape(len(blocks), size, bits)
        codes = (stream * (1 << np.arange(bits))).sum(axis=2).astype(np.int32)
        values = (value(codes) * factors.astype(np.float32)[:, None]).astype(np.float32)
        formats[name] = {"id": number, "blocks": encode(blocks), "values": encode(values)}
    target = Path(__file__).parents[2] / "src" / "formats" / "gguf" / "blocks.json.golden"
    target.write_text(json.dumps(formats, indent=1) + "\n")


if __name__ == "__main__":
    main()
