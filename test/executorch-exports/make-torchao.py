#!/usr/bin/env python3
"""Makes src/formats/torchao.safetensors.golden: matrices that TorchAO quantized and saved, and torchao.json.golden with the
values that TorchAO gives for them.

Needs: pip install torch torchao safetensors (made with 2.13.0 and 0.18.0)
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
    MappingType,
    PerAxis,
    PerGroup,
    quantize_,
)

FOLDER = Path(__file__).parents[2] / "src" / "formats"
CONFIGS = {
    "four": Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)),
    "three": IntxWeightOnlyConfig(
        weight_dtype=torch.int3, granularity=PerGroup(16), mapping_type=MappingType.ASYMMETRIC
    ),
    "eight": IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)),
    "one": IntxWeightOnlyConfig(weight_dtype=torch.int1, granularity=PerGroup(32)),
}


def main() -> None:
    torch.manual_seed(11)
    layers = torch.nn.ModuleDict({name: torch.nn.Linear(64, 6, bias=name == "four") for name in CONFIGS})
    for name, config in CONFIGS.items():
        quantize_(layers[name], config)
    state = layers.state_dict()
    tensors, metadata = flatten_tensor_state_dict(state)
    save_file(tensors, FOLDER / "torchao.safetensors.golden", metadata=metadata)
    values = {name: state[f"{name}.weight"].dequantize().tolist() for name in CONFIGS}
    (FOLDER / "torchao.json.golden").write_text(json.dumps(values) + "\n")


if __name__ == "__main__":
    main()
