"""Writes affine.json.golden: weights quantized by TorchAO itself, for affine.test.ts.

    pip install torch torchao && python golden.py

Binary16 scales are given to TorchAO's quantize_affine as float32 numbers, so that their reciprocal is not rounded to
binary16, and are kept within the finite non-zero numbers of binary16. A last short group is filled up with zeros.
"""

import json
import os

import torch
import torchao
from torchao.quantization import quantize_
from torchao.quantization.granularity import PerAxis, PerGroup
from torchao.quantization.quant_api import (
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
)
from torchao.quantization.quant_primitives import MappingType, quantize_affine
from torchao.quantization.quantize_.workflows.intx.intx_choose_qparams_algorithm import (
    IntxChooseQParamsAlgorithm,
)

N, K = 8, 64
MAPPINGS = ["symmetric", "symmetric_no_clipping_err", "asymmetric"]


def make_weights() -> torch.Tensor:
    torch.manual_seed(20)
    w = torch.randn(N, K) * 0.02
    w[1, 5] = 1.5  # outliers of both signs
    w[1, 57] = -0.9
    w[2] = 0.0375  # constant
    w[3] = 0.0
    w[4] = w[4].abs() + 0.01  # one-sided
    w[5] = -w[5].abs() - 0.3
    w[6] = torch.linspace(-1, 1, K)  # many ties
    w[7] = w[7] * 1e-6  # tiny
    return w


def quantize(weights: torch.Tensor, bits: int, group, mapping: str, algorithm: str):
    k = weights.shape[1]
    size = k if group == "axis" else min(group, k)
    padded = torch.nn.functional.pad(weights, (0, -k % size))
    linear = torch.nn.Linear(padded.shape[1], N, bias=False)
    linear.weight = torch.nn.Parameter(padded.clone(), requires_grad=False)
    dtype = getattr(torch, f"int{bits}")
    granularity = PerAxis(0) if group == "axis" else PerGroup(size)
    mapping_type = MappingType[mapping.upper()]
    chooser = IntxChooseQParamsAlgorithm[algorithm.upper()]
    if group == "axis":
        config = IntxWeightOnlyConfig(
            weight_dtype=dtype, granularity=granularity, mapping_type=mapping_type, intx_choose_qparams_algorithm=chooser
        )
    else:
        config = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=dtype,
            weight_granularity=granularity,
            weight_mapping_type=mapping_type,
            intx_choose_qparams_algorithm=chooser,
        )
    quantize_(linear, config)
    result = linear.weight
    half = result.scale.to(torch.float16).float().clamp(2.0**-24, 65504.0)
    bounds = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    requantized = quantize_affine(
        padded, (1, size), half, result.zero_point, torch.int8, quant_min=bounds[0], quant_max=bounds[1]
    )
    return {
        "bits": bits,
        "groupSize": group,
        "mappingType": mapping,
        "algorithm": algorithm,
        "scales": hexadecimal(result.scale),
        "zeros": hexadecimal(result.zero_point) if mapping == "asymmetric" else None,
        "qvals": hexadecimal(result.qdata[:, :k]),
        "qvalsF16": hexadecimal(requantized[:, :k]),
    }


def hexadecimal(tensor: torch.Tensor) -> str:
    """The little-endian bytes of the elements."""
    return tensor.contiguous().numpy().tobytes().hex()


def main() -> None:
    weights = make_weights()
    cases = []
    for bits in range(1, 9):
        for group in ["axis", 32, 7]:
            for mapping in MAPPINGS:
                if bits == 1 and mapping != "asymmetric":
                    continue  # all zeros or a division by zero: the one place where lowbit differs
                cases.append(quantize(weights, bits, group, mapping, "affine"))
            if bits > 1:
                cases.append(quantize(weights, bits, group, "symmetric", "hqq_scale_only"))
    golden = {
        "torch": torch.__version__,
        "torchao": torchao.__version__,
        "n": N,
        "k": K,
        "weights": hexadecimal(weights),
        "cases": cases,
    }
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "affine.json.golden")
    with open(path, "w") as file:
        lines = ",\n".join(json.dumps(case) for case in cases)
        head = json.dumps({key: value for key, value in golden.items() if key != "cases"})
        file.write(f'{head[:-1]}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
