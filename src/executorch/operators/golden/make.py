#!/usr/bin/env python3
"""Writes cases.json.golden: calls of aten and quantized_decomposed operators with PyTorch's results.

Needs: pip install torch executorch (made with torch 2.13.0 and executorch 1.5.1)
"""

import json
from pathlib import Path

import executorch.exir.passes._quant_patterns_and_replacements  # noqa: F401  registers embedding_2bit, embedding_4bit
import executorch.kernels.quantized  # noqa: F401  registers quantized_decomposed
import torch

torch.manual_seed(1)
DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
}


def show(value):
    if isinstance(value, torch.Tensor):
        flat = value.flatten().tolist()
        numbers = [str(v) if isinstance(v, float) and (v != v or v in (float("inf"), -float("inf"))) else v for v in flat]
        numbers = [int(v) if isinstance(v, bool) else v for v in numbers]
        numbers = [str(v) if isinstance(v, int) and abs(v) > 2**53 else v for v in numbers]
        return {"dtype": DTYPES[value.dtype], "shape": list(value.shape), "data": numbers}
    if isinstance(value, (list, tuple)):
        return [show(item) for item in value]
    return value


def randn(*shape):
    return torch.round(torch.randn(*shape) * 64) / 64


A, B, ROW, COLUMN = randn(2, 3, 4), randn(2, 3, 4), randn(4), randn(2, 1, 1)
INTS, OTHER_INTS = torch.randint(-5, 6, (2, 3)), torch.randint(-5, 6, (2, 3))
BOOLS = torch.rand(2, 3, 4) > 0.5
POSITIVE = A.abs() + 0.25
aten = torch.ops.aten

# Operator, overload for programs, function, arguments of the program's operator.
cases = []


def case(name, function, *arguments, **options):
    cases.append({"operator": name, "arguments": show(arguments), "result": show(function(**options))})


for name, f in [("sub", torch.sub), ("add", torch.add)]:
    for x, y in [(A, B), (A, ROW), (COLUMN, A), (INTS, OTHER_INTS), (A, torch.tensor(2))]:
        case(f"aten::{name}.out", lambda: f(x, y, alpha=2), x, y, 2)
    case(f"aten::{name}.Scalar_out", lambda: f(A, 1.5, alpha=2), A, 1.5, 2)
for name, f in [("mul", torch.mul), ("div", torch.div), ("minimum", torch.minimum), ("maximum", torch.maximum)]:
    for x, y in [(A, POSITIVE), (A, ROW), (COLUMN, A)]:
        case(f"aten::{name}.out", lambda: f(x, y), x, y)
case("aten::mul.out", lambda: INTS[:, :1] * ROW, INTS[:, :1], ROW)
case("aten::div.out", lambda: INTS / 4 * 4 / (OTHER_INTS.abs() + 1), INTS, OTHER_INTS.abs() + 1)
case("aten::mul.Scalar_out", lambda: A * 1.5, A, 1.5)
case("aten::mul.Scalar_out", lambda: INTS * 3, INTS, 3)
for name in ["eq", "ne", "lt", "le", "gt", "ge"]:
    case(f"aten::{name}.Tensor_out", lambda: getattr(torch, name)(INTS, OTHER_INTS), INTS, OTHER_INTS)
    case(f"aten::{name}.Scalar_out", lambda: getattr(torch, name)(A, 0.25), A, 0.25)
for name in ["logical_and", "logical_or"]:
    case(f"aten::{name}.out", lambda: getattr(torch, name)(BOOLS, A > 0), BOOLS, A > 0)
case("aten::logical_not.out", lambda: torch.logical_not(BOOLS), BOOLS)
case("aten::bitwise_and.Tensor_out", lambda: INTS & OTHER_INTS, INTS, OTHER_INTS)
for name in ["neg", "abs", "exp", "tanh", "sigmoid", "cos", "sin", "floor", "ceil", "relu"]:
    case(f"aten::{name}.out", lambda: getattr(torch, name)(A), A)
for name in ["log", "sqrt", "rsqrt", "reciprocal"]:
    case(f"aten::{name}.out", lambda: getattr(torch, name)(POSITIVE), POSITIVE)
HALVES = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, 2.0])
case("aten::round.out", lambda: torch.round(HALVES), HALVES)
case("aten::pow.Tensor_Scalar_out", lambda: A**2, A, 2)
for approximate in ["none", "tanh"]:
    wide = torch.linspace(-7, 7, 29)
    case("aten::gelu.out", lambda: torch.nn.functional.gelu(wide, approximate=approximate), wide, approximate)
case("aten::where.self_out", lambda: torch.where(BOOLS, A, ROW), BOOLS, A, ROW)
case("aten::clamp.out", lambda: torch.clamp(A, -0.5, None), A, -0.5, None)
case("aten::masked_fill.Scalar_out", lambda: A.masked_fill(BOOLS, -7.0), A, BOOLS, -7.0)

case("aten::view_copy.out", lambda: A.reshape(4, -1), A, [4, -1])
case("aten::permute_copy.out", lambda: A.permute(2, 0, 1).contiguous(), A, [2, 0, -2])
case("aten::transpose_copy.int_out", lambda: A.transpose(0, 2).contiguous(), A, 0, -1)
case("aten::t_copy.out", lambda: INTS.t().contiguous(), INTS)
case("aten::slice_copy.Tensor_out", lambda: A[:, :, 1:3], A, 2, 1, 3, 1)
case("aten::slice_copy.Tensor_out", lambda: A[:, -2:], A, 1, -2, 2**62, 1)
case("aten::slice_copy.Tensor_out", lambda: A[:, :, 1::2], A, -1, 1, None, 2)
case("aten::unsqueeze_copy.out", lambda: A.unsqueeze(-1), A, -1)
case("aten::squeeze_copy.dims_out", lambda: COLUMN.squeeze((1, 2)), COLUMN, [1, -1])
case("aten::expand_copy.out", lambda: COLUMN.expand(5, 2, 3, -1), COLUMN, [5, 2, 3, -1], False)
case("aten::cat.out", lambda: torch.cat([A, B[:, :1]], 1), [A, B[:, :1]], 1)
case("aten::stack.out", lambda: torch.stack([A, B], -1), [A, B], -1)
case("aten::clone.out", lambda: A.clone(), A, None)
case("aten::_to_copy.out", lambda: INTS.float(), INTS, False, None)
case("aten::_to_copy.out", lambda: (A * 4).long(), A * 4, False, None)

PICKED, OTHER_PICKED = torch.tensor([2, 0, -1]), torch.tensor([[1], [0]])
case("aten::index.Tensor_out", lambda: A[:, PICKED], A, [None, PICKED])
case("aten::index.Tensor_out", lambda: A[OTHER_PICKED, PICKED], A, [OTHER_PICKED, PICKED])
VALUES = randn(2, 3, 4)
case("aten::index_put.out", lambda: A.index_put((torch.arange(2)[:, None], PICKED), VALUES), A, [torch.arange(2)[:, None], PICKED], VALUES, False)
case("aten::index_put.out", lambda: B.clone().index_put_((slice(None),) and (torch.tensor([1, 1]),), VALUES, accumulate=True), B, [torch.tensor([1, 1])], VALUES, True)

case("aten::full.out", lambda: torch.full((2, 3), 1.5), [2, 3], 1.5)
case("aten::full_like.out", lambda: torch.full_like(INTS, 7), INTS, 7, None)
case("aten::arange.start_out", lambda: torch.arange(3, 10, 2), 3, 10, 2)
case("aten::scalar_tensor.out", lambda: torch.scalar_tensor(2.5), 2.5)
case("aten::mean.out", lambda: A.mean([-1], True), A, [-1], True, None)
case("aten::mean.out", lambda: A.mean([0, 2]), A, [0, 2], False, None)
case("aten::sum.IntList_out", lambda: INTS.sum([1]), INTS, [1], False, None)
case("aten::sum.IntList_out", lambda: A.sum(), A, None, False, None)
case("aten::amax.out", lambda: A.amax([1], True), A, [1], True)
case("aten::amin.out", lambda: A.amin([0, 1]), A, [0, 1], False)
case("aten::any.out", lambda: BOOLS.any(1), BOOLS, 1, False)
case("aten::cumsum.out", lambda: INTS.cumsum(1), INTS, 1, None)
case("aten::cumsum.out", lambda: A.cumsum(0), A, 0, None)
case("aten::_softmax.out", lambda: A.softmax(-1), A, -1, False)
case("aten::_softmax.out", lambda: A.softmax(1), A, 1, False)
case("aten::mm.out", lambda: A[0] @ B[1].t(), A[0], B[1].t().contiguous())
case("aten::bmm.out", lambda: A @ B.transpose(1, 2), A, B.transpose(1, 2).contiguous())
case("aten::addmm.out", lambda: torch.addmm(ROW[:3], A[0], B[1].t(), beta=2, alpha=3), ROW[:3], A[0], B[1].t().contiguous(), 2, 3)

decomposed = torch.ops.quantized_decomposed
TABLE, INDICES = torch.randint(0, 256, (5, 8), dtype=torch.uint8), torch.tensor([[4, 0, 3]])
for name, low, columns in [("embedding_2bit", -2, 32), ("embedding_4bit", -8, 16)]:
    scales, zeros = randn(5, 2).abs(), torch.randint(low, -low, (5, 2)).float()
    f = getattr(decomposed, name)
    case(f"quantized_decomposed::{name}.out", lambda: f(TABLE, scales, zeros, low, -low - 1, INDICES), TABLE, scales, zeros, low, -low - 1, INDICES)
BYTES, SCALES = torch.randint(-128, 128, (5, 8), dtype=torch.int8), randn(5).abs()
case("quantized_decomposed::embedding_byte.out", lambda: decomposed.embedding_byte(BYTES, SCALES, None, -128, 127, INDICES), BYTES, SCALES, None, -128, 127, INDICES)

# Python and the C++ kernels differ on rows of zeros and of tiny values: those are left out.
ROWS = torch.cat([A[0] * 3, B[0].abs(), A[1]])
scale, zero = decomposed.choose_qparams_per_token_asymmetric(ROWS, torch.int8)
case("quantized_decomposed::choose_qparams_per_token_asymmetric.out", lambda: (scale.double(), zero.long()), ROWS, 1)
quantized = decomposed.quantize_per_token(ROWS, scale, zero, -128, 127, torch.int8)
case("quantized_decomposed::quantize_per_token.out", lambda: quantized, ROWS, scale.double(), zero.long(), -128, 127, 1)
dequantized = decomposed.dequantize_per_token(quantized, scale, zero, -128, 127, torch.int8, torch.float32)
case("quantized_decomposed::dequantize_per_token.out", lambda: dequantized, quantized, scale.double(), zero.long(), -128, 127, 1, 6)

case("aten::constant_pad_nd.out", lambda: torch.constant_pad_nd(A, [0, 2], 0), A, [0, 2], 0)
case("aten::constant_pad_nd.out", lambda: torch.constant_pad_nd(INTS, [1, 0, 2, 1], 7), INTS, [1, 0, 2, 1], 7)

case("aten::full.out", lambda: torch.full((2,), True), [2], True)
case("aten::pow.Scalar_out", lambda: torch.pow(2.5, A), 2.5, A)
case("aten::bitwise_not.out", lambda: ~BOOLS, BOOLS)
case("aten::bitwise_not.out", lambda: ~INTS, INTS)
for shape, weight, bias in [([4], ROW, B[0, 0]), ([3, 4], B[0], None), ([4], None, None)]:
    norm = lambda: torch.native_layer_norm(A, shape, weight, bias, 1e-3)
    case("aten::native_layer_norm.out", norm, A, shape, weight, bias, 1e-3)
case("aten::isnan.out", lambda: torch.isnan(torch.log(A)), torch.log(A))
case("aten::log1p.out", lambda: torch.log1p(POSITIVE), POSITIVE)
case("aten::logical_xor.out", lambda: torch.logical_xor(BOOLS, A > 0), BOOLS, A > 0)
case("aten::bitwise_xor.Tensor_out", lambda: BOOLS ^ (A > 0), BOOLS, A > 0)
case("aten::bitwise_xor.Tensor_out", lambda: INTS ^ OTHER_INTS, INTS, OTHER_INTS)
for dim in [1, -1]:
    case("aten::index_select.out", lambda: A.index_select(dim, OTHER_PICKED[:, 0]), A, dim, OTHER_PICKED[:, 0])

case("aten::repeat.out", lambda: A.repeat(2, 1, 2, 3), A, [2, 1, 2, 3])
case("aten::repeat.out", lambda: BOOLS[0].repeat(1, 3), BOOLS[0], [1, 3])
case("aten::repeat.out", lambda: ROW.repeat(0), ROW, [0])
for dim in [1, -1]:
    case("aten::split_with_sizes_copy.out", lambda: A.split_with_sizes([1, 0, A.shape[dim] - 1], dim), A, [1, 0, A.shape[dim] - 1], dim)
    case("aten::split_copy.Tensor_out", lambda: A.split(2, dim), A, 2, dim)
    case("aten::unbind_copy.int_out", lambda: A.unbind(dim), A, dim)
for dim in [0, -1]:
    case("aten::_log_softmax.out", lambda: (A * 30).log_softmax(dim), A * 30, dim, False)
WHERE = torch.tensor([[2, 0, 1, 2], [0, 0, 2, 1]])
case("aten::gather.out", lambda: A[0].gather(0, WHERE), A[0], 0, WHERE, False)
case("aten::gather.out", lambda: A[0].gather(-1, WHERE), A[0], -1, WHERE, False)
case("aten::gather.out", lambda: INTS.gather(1, WHERE[:, :1]), INTS, 1, WHERE[:, :1], False)
HOLES = torch.where(BOOLS, A, torch.nan)
for name, f in [("argmax", torch.argmax), ("argmin", torch.argmin)]:
    for x in [A, HOLES, torch.where(A > 1, torch.inf, -torch.inf), torch.randint(-2, 3, (2, 3, 4))]:
        for dim, keep in [(0, False), (1, True), (-1, False), (None, False), (None, True)]:
            case(f"aten::{name}.out", lambda: f(x, dim, keep), x, dim, keep)
HUGE = torch.tensor([2**62 + 1, -(2**63), 2**53 + 1, -3037000499, 2**63 - 1])
OTHER_HUGE = torch.tensor([3, -1, 2**53 - 1, 3037000501, 2**63 - 2])
WORDS, OTHER_WORDS = torch.tensor([2**31 - 1, -(2**31), 123456789]), torch.tensor([2**31 - 1, 3, -987654321])
for x, y in [(HUGE, OTHER_HUGE), (HUGE, WORDS[:1]), (WORDS.int(), OTHER_WORDS.int())]:
    for name, f in [("mul", torch.mul), ("minimum", torch.minimum), ("maximum", torch.maximum)]:
        case(f"aten::{name}.out", lambda: f(x, y), x, y)
    for name, f in [("sub", torch.sub), ("add", torch.add)]:
        case(f"aten::{name}.out", lambda: f(x, y, alpha=3), x, y, 3)
    for name in ["bitwise_and", "bitwise_or", "bitwise_xor", "eq", "lt", "ge"]:
        case(f"aten::{name}.Tensor_out", lambda: getattr(torch, name)(x, y), x, y)
    case("aten::where.self_out", lambda: torch.where(x > y, x, y), x > y, x, y)
    case("aten::clamp.out", lambda: x.clamp(-5, 2**30), x, -5, 2**30)
for name in ["neg", "abs", "bitwise_not"]:
    case(f"aten::{name}.out", lambda: getattr(torch, name)(HUGE), HUGE)
case("aten::mul.Scalar_out", lambda: HUGE * 3, HUGE, 3)
case("aten::masked_fill.Scalar_out", lambda: HUGE.masked_fill(HUGE > 0, -7), HUGE, HUGE > 0, -7)
case("aten::full.out", lambda: torch.full((2,), 2**63 - 1), [2], 2**63 - 1)

for name in ["tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "atanh", "expm1", "erf", "sign", "trunc"]:
    case(f"aten::{name}.out", lambda: getattr(torch, name)(A / 4), A / 4)
for name in ["acosh", "log2", "log10"]:
    case(f"aten::{name}.out", lambda: getattr(torch, name)(POSITIVE + 1), POSITIVE + 1)
case("aten::atan2.out", lambda: torch.atan2(A, B), A, B)
EDGES = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0, 1.5])
for name in ["isinf", "sign", "trunc"]:
    case(f"aten::{name}.out", lambda: getattr(torch, name)(EDGES), EDGES)
DIVISORS = torch.where(OTHER_INTS == 0, 3, OTHER_INTS)
for x, y in [(A, B), (A, ROW), (INTS, DIVISORS), (HUGE[2:], OTHER_HUGE[2:])]:
    for name in ["remainder", "fmod"]:
        case(f"aten::{name}.Tensor_out", lambda: getattr(torch, name)(x, y), x, y)
    for mode in ["floor", "trunc"]:
        case("aten::div.out_mode", lambda: torch.div(x, y, rounding_mode=mode), x, y, mode)
for x, y in [(A, -0.75), (INTS, 3), (INTS, -2)]:
    for name in ["remainder", "fmod"]:
        case(f"aten::{name}.Scalar_out", lambda: getattr(torch, name)(x, y), x, y)
F = torch.nn.functional
case("aten::hardtanh.out", lambda: F.hardtanh(A, -0.5, 0.75), A, -0.5, 0.75)
case("aten::elu.out", lambda: aten.elu(A, 1.5, 1.25, 0.5), A, 1.5, 1.25, 0.5)
case("aten::leaky_relu.out", lambda: F.leaky_relu(A, 0.25), A, 0.25)
for low, high in [(B - 1, B + 1), (None, ROW), (ROW, None), (B + 1, B - 1)]:
    case("aten::clamp.Tensor_out", lambda: torch.clamp(A, low, high), A, low, high)
case("aten::pow.Tensor_Tensor_out", lambda: POSITIVE**B, POSITIVE, B)
for name in ["and", "or", "xor"]:
    case(f"aten::bitwise_{name}.Scalar_out", lambda: getattr(torch, f"bitwise_{name}")(HUGE, 2**40 - 3), HUGE, 2**40 - 3)
case("aten::max.unary_out", lambda: A.max(), A)
case("aten::min.unary_out", lambda: HOLES.min(), HOLES)
for name, f in [("max", torch.max), ("min", torch.min)]:
    for x, dim, keep in [(HOLES, 1, False), (A, -1, True), (INTS, 0, False), (HUGE, 0, False)]:
        case(f"aten::{name}.dim_{name}", lambda: tuple(f(x, dim, keep)), x, dim, keep)
case("aten::any.all_out", lambda: (A > 2).any(), A > 2)
case("aten::any.dims_out", lambda: torch.any(BOOLS, [0, 2], True), BOOLS, [0, 2], True)
case("aten::prod.out", lambda: A.prod(), A, None)
case("aten::prod.int_out", lambda: A.prod(1, True), A, 1, True, None)
case("aten::mean.dtype_out", lambda: A.mean(), A, None)
for dims, correction, keep in [([-1], None, False), ([0, 2], 0, True), (None, 2, False)]:
    case("aten::var.correction_out", lambda: torch.var(A, dims, correction=correction, keepdim=keep), A, dims, correction, keep)
case("aten::scatter.value_out", lambda: A.scatter(1, WHERE[:, :3, None] % 3, 7.0), A, 1, WHERE[:, :3, None] % 3, 7.0)
case("aten::scatter.src_out", lambda: INTS.scatter(-1, WHERE[:, 1:3], OTHER_INTS), INTS, -1, WHERE[:, 1:3], OTHER_INTS)
case("aten::scatter_add.out", lambda: INTS.scatter_add(1, WHERE[:, :3], OTHER_INTS), INTS, 1, WHERE[:, :3], OTHER_INTS)
case("aten::flip.out", lambda: A.flip([0, -1]), A, [0, -1])
case("aten::cat.out", lambda: torch.cat([INTS, A[0, :2, :3], BOOLS[0, :1, :3]]), [INTS, A[0, :2, :3], BOOLS[0, :1, :3]], 0)

for x in [A, HOLES, INTS, HUGE.flip(0)]:
    for down in [False, True]:
        case("aten::sort.values", lambda: tuple(torch.sort(x, dim=0, descending=down, stable=True)), x, 0, down)
for x, k, dim, largest in [(A, 2, -1, True), (A, 2, 1, False), (HUGE, 3, 0, True)]:
    case("aten::topk.values", lambda: tuple(x.topk(k, dim, largest)), x, k, dim, largest, True)
case("aten::copy.out", lambda: aten.copy(A, COLUMN), A, COLUMN, False)
case("aten::copy.out", lambda: aten.copy(INTS, A[0, :2, :3]), INTS, A[0, :2, :3], False)
case("aten::slice_scatter.out", lambda: torch.slice_scatter(A, B[:, :, :2], 2, 1, None, 2), A, B[:, :, :2], 2, 1, None, 2)
case("aten::slice_scatter.out", lambda: torch.slice_scatter(A, B[:, :2], 1, -2), A, B[:, :2], 1, -2, 2**62, 1)

lines = ",\n".join(json.dumps(entry) for entry in cases)
Path(__file__).with_name("cases.json.golden").write_text(f"[\n{lines}\n]\n")
