#!/usr/bin/env python3
"""Makes small programs by the named exporters (all of `EXPORTS`; each needs its package), with calls and results of
ExecuTorch's runtime for each: NAME.pte.golden and NAME.json.golden, in this folder or a given one.

Usage: make-others.py FOLDER NAME...
Needs: pip install executorch torch (made with 1.5.1 and 2.13.0), and for optimum-* optimum-executorch 1.1.0, for
transformers-* transformers 5.24.0
"""

import json
import sys
import tempfile
from pathlib import Path

import executorch.kernels.quantized  # noqa: F401  registers operators
import torch
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers operators
from executorch.runtime import Runtime, Verification

CHUNKS = [[3, 7, 60, 41, 5], [9], [58], [17, 2]]
CONTEXT = 32
NOT_CHECKED = EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True)


def stored(tensor: torch.Tensor) -> dict:
    dtype = {torch.int64: "i64", torch.float32: "f32"}[tensor.dtype]
    return {"dtype": dtype, "shape": list(tensor.shape), "data": tensor.flatten().tolist()}


def calls_of(run, steps: list) -> list:
    """Calls one after the other, (method, inputs) each, and the first output of each."""
    return [
        {"method": method, "inputs": [stored(x) for x in inputs], "output": stored(run(method, inputs))}
        for method, inputs in steps
    ]


def runtime_calls(file: Path, steps: list) -> list:
    program = Runtime.get().load_program(file, verification=Verification.InternalConsistency)
    methods = {method: program.load_method(method) for method, _ in steps}
    return calls_of(lambda method, inputs: methods[method].execute(inputs)[0], steps)


def chunk_steps(position) -> list:
    """A step for each chunk, with its tokens and `position(start, length)`."""
    starts = [sum(map(len, CHUNKS[:i])) for i in range(len(CHUNKS))]
    return [
        ("forward", [torch.tensor([chunk]), position(start, len(chunk))])
        for chunk, start in zip(CHUNKS, starts, strict=True)
    ]


class OffGraphAttention(torch.nn.Module):
    """Two layers of attention whose keys and values are no tensors of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(64, 32)
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(32, 64, bias=False) for _ in range(2))
        self.head = torch.nn.Linear(32, 64, bias=False)

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer, qkv in enumerate(self.qkv):
            heads = qkv(x).view(1, tokens.shape[1], 8, 8).transpose(1, 2)
            q, k, v = heads[:, :4], heads[:, 4:6], heads[:, 6:]
            attended = torch.ops.kvcache.update_and_attend(q, k, v, position, layer, 8**-0.5, torch.float32)
            x = x + attended.transpose(1, 2).reshape(1, tokens.shape[1], 32)
        return self.head(x)


def off_graph_cache(target: Path) -> list:
    """The results are those of ExecuTorch's reference cache: its runtime has the operator in the MLX delegate alone."""
    from executorch.extension.llm.cache.reference_cache import CacheConfig, ContiguousReferenceCache
    from executorch.extension.llm.cache.update_and_attend import REGISTRY, update_and_attend

    def out(*values, out):
        return out.copy_(update_and_attend(*values))

    # The exporter asks for an out variant, which the release defines for no operator of caches.
    types = "Tensor q, Tensor k, Tensor v, Tensor position, SymInt layer_id, float scale, ScalarType out_dtype"
    torch.library.define("kvcache::update_and_attend.out", f"({types}, *, Tensor(a!) out) -> Tensor(a!)")
    torch.library.impl("kvcache::update_and_attend.out", "CompositeExplicitAutograd")(out)
    model = OffGraphAttention().eval()
    tokens = torch.export.Dim("tokens", min=1, max=CONTEXT - 1)
    example = (torch.tensor([[1, 2, 3]]), torch.arange(3).unsqueeze(-1))
    exported = torch.export.export(model, example, dynamic_shapes={"tokens": {1: tokens}, "position": {0: tokens}})
    program = to_edge_transform_and_lower(
        exported, compile_config=NOT_CHECKED, constant_methods={"get_max_seq_len": CONTEXT}
    )
    target.write_bytes(program.to_executorch().buffer)
    REGISTRY.install("cache", ContiguousReferenceCache(CacheConfig(2, 2, 8, CONTEXT)))
    steps = chunk_steps(lambda start, length: torch.arange(start, start + length).unsqueeze(-1))
    with REGISTRY.active("cache"), torch.no_grad():
        return calls_of(lambda _, inputs: model(*inputs), steps)


def several_methods(target: Path) -> list:
    """Two methods of export_llm over one cache, called in turn."""
    from executorch.examples.models.llama.export_llama_lib import export_llama
    from executorch.extension.llm.export.config.llm_config import LlmConfig, MethodConfig, ModelType
    from make import PARAMS, checkpoint

    config = LlmConfig()
    with tempfile.TemporaryDirectory() as folder:
        params, weights = Path(folder, "params.json"), Path(folder, "weights.pth")
        params.write_text(json.dumps(PARAMS))
        torch.save(checkpoint(), weights)
        config.base.model_class = ModelType.llama2
        config.base.params, config.base.checkpoint = str(params), str(weights)
        config.model.use_kv_cache = config.model.use_sdpa_with_kv_cache = config.model.enable_dynamic_shape = True
        config.export.max_seq_length = config.export.max_context_length = CONTEXT
        config.export.output_name = str(target)
        config.multimethod.methods = [MethodConfig("forward"), MethodConfig("kv_forward")]
        config.multimethod.share_mutable_buffers = True
        export_llama(config)
    steps = chunk_steps(lambda start, _: torch.tensor([start]))
    methods = ["forward", "kv_forward", "kv_forward", "forward"]
    return runtime_calls(target, [(method, inputs) for method, (_, inputs) in zip(methods, steps, strict=True)])


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(
        **sizes, num_hidden_layers=1, vocab_size=64, max_position_embeddings=CONTEXT, bos_token_id=1, eos_token_id=2
    )
    return LlamaForCausalLM(config).eval()


def optimum(target: Path, **options) -> list:
    """By optimum-executorch's task text-generation and recipe portable."""
    import optimum.exporters.executorch.convert  # noqa: F401  registers its attention
    from optimum.exporters.executorch.recipes.portable import export_to_executorch_with_portable
    from optimum.exporters.executorch.tasks.causal_lm import load_causal_lm_model

    with tempfile.TemporaryDirectory() as folder:
        llama().save_pretrained(folder)
        model = load_causal_lm_model(folder, max_seq_len=CONTEXT, **options)
    target.write_bytes(export_to_executorch_with_portable(model)["model"].buffer)
    return runtime_calls(target, chunk_steps(lambda start, length: torch.arange(start, start + length)))


def transformers_exporter(target: Path) -> list:
    """By the exporter of transformers, with its preparation for XNNPACK but no delegate."""
    from transformers.exporters import exporter_executorch as exporter

    exporter._BACKEND_PREPARE["portable"] = lambda *args: (*exporter.prepare_for_xnnpack(*args)[:2], [])
    tokens = {"input_ids": torch.tensor([CHUNKS[0]])}
    exported = exporter.ExecutorchExporter().export(
        llama(), tokens, config=exporter.ExecutorchConfig(backend="portable")
    )
    with tempfile.TemporaryDirectory() as folder:
        exported.save_pretrained(folder)
        Path(folder, "model.pte").rename(target)
    return runtime_calls(target, [("forward", [torch.tensor([chunk])]) for chunk in (CHUNKS[0], [8, 1, 63, 2, 30])])


EXPORTS = {
    "off-graph-cache": off_graph_cache,
    "several-methods": several_methods,
    "optimum": optimum,
    "optimum-custom-sdpa": lambda target: optimum(target, use_custom_sdpa=True, use_custom_kv_cache=True),
    "transformers": transformers_exporter,
}


def main() -> None:
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        torch.manual_seed(3)
        program = folder / f"{name}.pte"
        calls = EXPORTS[name](program)
        program.rename(folder / f"{name}.pte.golden")
        (folder / f"{name}.json.golden").write_text(json.dumps(calls) + "\n")


if __name__ == "__main__":
    main()
