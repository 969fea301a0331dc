#!/usr/bin/env python3
"""Writes src/formats/mlx.json.golden: matrices [2, 128] as mlx quantizes them in each mode, and their values by mlx.

Needs: pip install mlx mlx-cpu (made with 0.32.4)
"""

import base64
import json
from pathlib import Path

import mlx.core as mx
import numpy as np

MODES = [
    *({"mode": "affine", "bits": bits, "group_size": size} for bits in (1, 2, 3, 4, 5, 6, 8) for size in (32, 128)),
    {"mode": "mxfp4", "bits": 4, "group_size": 32},
    {"mode": "nvfp4", "bits": 4, "group_size": 16},
    {"mode": "mxfp8", "bits": 8, "group_size": 32},
]
TYPES = {mx.uint32: "U32", mx.uint8: "U8", mx.float32: "F32"}


def text(values: mx.array) -> str:
    return base64.b64encode(np.array(values).tobytes()).decode()


def golden(settings: dict) -> dict:
    weights = mx.random.normal((2, 128), key=mx.random.key(settings["bits"])) * 0.1
    parts = mx.quantize(weights, **settings)
    values = mx.dequantize(*parts, **settings, dtype=mx.float32)
    names = ("weight", "scales", "biases")
    tensors = {
        name: {"dtype": TYPES[part.dtype], "shape": part.shape, "data": text(part)} for name, part in zip(names, parts)
    }
    return {"settings": settings, "tensors": tensors, "values": text(values)}


target = Path(__file__).parents[2] / "src" / "formats" / "mlx.json.golden"
target.write_text(json.dumps([golden(settings) for settings in MODES], indent=1) + "\n")
