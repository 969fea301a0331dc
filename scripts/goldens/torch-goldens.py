#!/usr/bin/env python3
"""Writes src/formats/torch/torch-files.json.golden: small files of torch.save, as base64, and what they hold.

Needs: pip install torch torchao (made with 2.13.0 and 0.18.0)
"""

import base64
import collections
import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import torch
from torchao.quantization import IntxWeightOnlyConfig, PerGroup, quantize_


class Code:
    """A pickle that would run a command."""

    def __reduce__(self):
        return os.system, ("true",)


def saved(value: object, **options: object) -> str:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return base64.b64encode(buffer.getvalue()).decode()


def compressed() -> str:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}, 2))
    return base64.b64encode(buffer.getvalue()).decode()


def quantized() -> dict:
    layers = torch.nn.Sequential(torch.nn.Linear(64, 6, bias=False))
    quantize_(layers, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)))
    return layers.state_dict()


def main() -> None:
    base = torch.arange(12, dtype=torch.float32).reshape(4, 3) / 8
    state = collections.OrderedDict(
        [
            ("matrix", base),
            ("rows", base[1:3]),
            ("half", base.to(torch.float16)),
            ("brain", base.to(torch.bfloat16)),
            ("parameter", torch.nn.Parameter(base[0])),
        ]
    )
    files = {
        "state": saved(state),
        "nested": saved({"model": state, "step": 3, "options": [1.5, True, None, -7, 2**40]}),
        "protocol4": saved(state, pickle_protocol=4),
        "transposed": saved({"matrix": base.t()}),
        "code": saved({"matrix": Code()}),
        "compressed": compressed(),
        "empty": saved({}),
        "negated": saved({"matrix": torch._neg_view(base)}),
        "torchao": saved(quantized()),
    }
    target = Path(__file__).parents[2] / "src" / "formats" / "torch" / "torch-files.json.golden"
    target.write_text(json.dumps(files, indent=1) + "\n")


if __name__ == "__main__":
    main()
