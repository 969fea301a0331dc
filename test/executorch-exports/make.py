#!/usr/bin/env python3
"""Makes small Llamas by ExecuTorch's own export_llm, and its runtime's logits for them: the files of this folder, or,
given another folder, of that; given names as well, only those.

Needs: pip install executorch torch (made with executorch 1.5.1, torch 2.13.0)
"""

import json
import sys
import tempfile
from pathlib import Path

import executorch.kernels.quantized  # noqa: F401  registers operators
import torch
from executorch.examples.models.llama.export_llama_lib import export_llama
from executorch.exir import to_edge
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers operators
from executorch.extension.llm.export.config.llm_config import LlmConfig, ModelType
from executorch.runtime import Runtime, Verification

PARAMS = {
    "dim": 32,
    "hidden_dim": 48,
    "n_heads": 4,
    "n_kv_heads": 2,
    "n_layers": 1,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": 64,
}
CHUNKS = [[3, 7, 60, 41, 5], [9], [58], [17, 2]]


def checkpoint() -> dict:
    torch.manual_seed(3)
    dim, hidden, vocab = PARAMS["dim"], PARAMS["hidden_dim"], PARAMS["vocab_size"]
    kv = dim // PARAMS["n_heads"] * PARAMS["n_kv_heads"]
    shapes = {
        "attention.wq": (dim, dim),
        "attention.wk": (kv, dim),
        "attention.wv": (kv, dim),
        "attention.wo": (dim, dim),
        "feed_forward.w1": (hidden, dim),
        "feed_forward.w2": (dim, hidden),
        "feed_forward.w3": (hidden, dim),
    }
    state = {f"layers.0.{name}.weight": torch.randn(n, k) / k**0.5 for name, (n, k) in shapes.items()}
    norms = ["layers.0.attention_norm", "layers.0.ffn_norm", "norm"]
    state |= {f"{name}.weight": 1 + 0.1 * torch.randn(dim) for name in norms}
    return state | {
        "tok_embeddings.weight": torch.randn(vocab, dim),
        "output.weight": torch.randn(vocab, dim) / dim**0.5,
    }


def export(target: Path, **options) -> None:
    config = LlmConfig()
    with tempfile.TemporaryDirectory() as folder:
        params, weights = Path(folder, "params.json"), Path(folder, "weights.pth")
        params.write_text(json.dumps(PARAMS))
        torch.save(checkpoint(), weights)
        config.base.model_class = ModelType.llama2
        config.base.params, config.base.checkpoint = str(params), str(weights)
        config.base.metadata = '{"get_bos_id": 1, "get_eos_ids": [2]}'
        config.model.use_kv_cache = True
        config.model.use_sdpa_with_kv_cache = options.get("custom_sdpa", True)
        config.model.quantize_kv_cache = options.get("quantized_cache", False)
        config.model.enable_dynamic_shape = True
        config.export.max_seq_length = config.export.max_context_length = 32
        config.export.output_name = str(target)
        config.quantization.embedding_quantize = options.get("embedding")
        config.backend.xnnpack.enabled = options.get("xnnpack", False)
        export_llama(config)


def logits(file: Path) -> list:
    method = Runtime.get().load_program(file, verification=Verification.InternalConsistency).load_method("forward")
    results, position = [], 0
    for chunk in CHUNKS:
        output = method.execute([torch.tensor([chunk]), torch.tensor([position])])[0]
        results.append(output.flatten().tolist())
        position += len(chunk)
    return results


class Parts(torch.nn.Module):
    """Calls with several results, and with a list of them."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, rest = x.split([1, 2], dim=1)
        return (first, rest, *x.unbind(0), *x.max(-1))


def export_parts(target: Path) -> None:
    program = to_edge(torch.export.export(Parts(), (torch.zeros(2, 3, 4),))).to_executorch()
    target.write_bytes(program.buffer)


EXPORTS = {
    "custom-sdpa": {"embedding": "4,32"},
    "portable-attention": {"custom_sdpa": False},
    "quantized-cache": {"quantized_cache": True, "embedding": "8,0"},
    # Its linear layers are a delegate's: a program that lowbit must refuse.
    "xnnpack": {"xnnpack": True},
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    names = sys.argv[2:] or [*EXPORTS, "parts"]
    found = {}
    for name in names:
        if name == "parts":
            export_parts(folder / "parts.pte.golden")
            continue
        export(folder / f"{name}.pte", **EXPORTS[name])
        if name != "xnnpack":
            found[name] = logits(folder / f"{name}.pte")
        (folder / f"{name}.pte").rename(folder / f"{name}.pte.golden")
    (folder / "logits.json.golden").write_text(json.dumps({"chunks": CHUNKS, "logits": found}) + "\n")


if __name__ == "__main__":
    main()
