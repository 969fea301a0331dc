"""Writes a BERT checkpoint as ONNX, in float32 and with ONNX Runtime's dynamic quantization to 8 bits (QUInt8 weights, as
the files that transformers.js takes for "q8"): python3 embedding-onnx.py <checkpoint folder> <folder to write to>.
Needs onnx, onnxruntime and safetensors. The graph takes input_ids, attention_mask and token_type_ids [batch, tokens] and gives
last_hidden_state, as exports of transformers do."""

import json
import math
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load_file

source, target = sys.argv[1:3]
weights = load_file(os.path.join(source, "model.safetensors"))
config = json.load(open(os.path.join(source, "config.json")))
heads = config["num_attention_heads"]
hidden = config["hidden_size"]
size = hidden // heads
nodes, constants = [], {}


def constant(name, value):
    if name not in constants:
        constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
    return name


def op(kind, *inputs, **attributes):
    out = f"{kind}_{len(nodes)}"
    nodes.append(helper.make_node(kind, list(inputs), [out], name=out, **attributes))
    return out


def weight(name, value=None):
    return constant(name, (weights[name] if value is None else value).astype(np.float32))


def ints(name, values):
    return constant(name, np.array(values, np.int64))


def scalar(name, value):
    return constant(name, np.array(value, np.float32))


def linear(x, module):
    product = op("MatMul", x, weight(f"{module}.weight.T", weights[f"{module}.weight"].T))
    return op("Add", weight(f"{module}.bias"), product)


def norm(x, module):
    names = [weight(f"{module}.{part}") for part in ("weight", "bias")]
    return op("LayerNormalization", x, *names, axis=-1, epsilon=config["layer_norm_eps"])


def gelu(x):
    erf = op("Erf", op("Div", x, scalar("root2", math.sqrt(2))))
    return op("Mul", op("Mul", x, op("Add", erf, scalar("one", 1))), scalar("half", 0.5))


def split(x, order):
    return op("Transpose", op("Reshape", x, ints("by_head", [0, 0, heads, size])), perm=order)


mask = op("Cast", op("Unsqueeze", "attention_mask", ints("axes", [1, 2])), to=TensorProto.FLOAT)
mask = op("Mul", op("Sub", scalar("one", 1), mask), scalar("least", -3.0e38))
words = op("Gather", weight("embeddings.word_embeddings.weight"), "input_ids")
kinds = op("Gather", weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
length = op("Shape", "input_ids", start=1, end=2)
places = op("Slice", weight("embeddings.position_embeddings.weight"), ints("zero", [0]), length, ints("rows", [0]))
x = norm(op("Add", op("Add", words, kinds), op("Unsqueeze", places, ints("zero", [0]))), "embeddings.LayerNorm")
for i in range(config["num_hidden_layers"]):
    layer = f"encoder.layer.{i}"
    parts = [linear(x, f"{layer}.attention.self.{part}") for part in ("query", "key", "value")]
    q, k, v = (split(part, order) for part, order in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])))
    scores = op("Div", op("MatMul", q, k), scalar("scale", math.sqrt(size)))
    mixed = op("MatMul", op("Softmax", op("Add", scores, mask), axis=-1), v)
    mixed = op("Reshape", op("Transpose", mixed, perm=[0, 2, 1, 3]), ints("joined", [0, 0, hidden]))
    x = norm(op("Add", linear(mixed, f"{layer}.attention.output.dense"), x), f"{layer}.attention.output.LayerNorm")
    wide = gelu(linear(x, f"{layer}.intermediate.dense"))
    x = norm(op("Add", linear(wide, f"{layer}.output.dense"), x), f"{layer}.output.LayerNorm")
nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"]))

names = ["input_ids", "attention_mask", "token_type_ids"]
inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in names]
outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", hidden])]
graph = helper.make_graph(nodes, "bert", inputs, outputs, list(constants.values()))
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnx.checker.check_model(model)
os.makedirs(target, exist_ok=True)
float_path = os.path.join(target, "model.onnx")
onnx.save(model, float_path)
quantize_dynamic(float_path, os.path.join(target, "model_quantized.onnx"), weight_type=QuantType.QUInt8)
