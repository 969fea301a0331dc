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
}


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
        values = dequantize(blocks.reshape(-1), kind).astype(np.float32)
        formats[name] = {"id": int(kind), "blocks": encode(blocks), "values": encode(values)}
    target = Path(__file__).parent.parent / "src" / "formats" / "gguf" / "blocks.json.golden"
    target.write_text(json.dumps(formats, indent=1) + "\n")


if __name__ == "__main__":
    main()
