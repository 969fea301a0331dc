#!/usr/bin/env python3
"""Writes test/architectures.json.golden: logits and greedy tokens of tiny random models, computed by transformers.

Weights are not stored: both sides make them from their names with the generator of test/support/random.ts. Everything
runs in float32 with eager attention. Configs are written as given, so that defaults of transformers are tested too.

Needs: pip install torch transformers (made with torch 2.15.0 and transformers 5.24.0)
"""

import copy
import json
import sys
from pathlib import Path

import torch
import transformers

VOCABULARY = 40
PROMPT, GREEDY, LONG = 24, 16, 80
ROWS = (0, 9, 23)

BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 39,
    "pad_token_id": 0,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {"short_factor": [1.0, 1.1, 1.3], "long_factor": [1.5, 2.5, 6.0]}

# Name: architecture, and what differs from BASE.
CONFIGS = {
    "llama-bias-tied": ("Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama-head-dim": ("Llama", {"head_dim": 10, "num_attention_heads": 6, "num_key_value_heads": 1}),
    "llama-linear": ("Llama", {"rope_theta": 5e4, "rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama-llama3": (
        "Llama",
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "original_max_position_embeddings": 32, **LLAMA3}},
    ),
    "llama-llama3-no-original": ("Llama", {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e3, **LLAMA3}}),
    "llama-dynamic": ("Llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
    "llama-yarn": (
        "Llama",
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
    ),
    "llama-yarn-mscale": (
        "Llama",
        {
            "head_dim": 16,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 500.0,
                "factor": 8.0,
                "original_max_position_embeddings": 16,
                "beta_fast": 4.0,
                "beta_slow": 0.5,
                "mscale": 0.7,
                "mscale_all_dim": 1.2,
                "truncate": False,
            },
        },
    ),
    "llama-yarn-zero-betas": (
        "Llama",
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "beta_fast": 0,
                "beta_slow": None,
            }
        },
    ),
    "llama-longrope": (
        "Llama",
        {"rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 48, **LONGROPE}},
    ),
    "llama-empty-scaling": (
        "Llama",
        {"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 5.0}},
    ),
    "llama-proportional": (
        "Llama",
        {"head_dim": 12, "rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 2.0}},
    ),
    "mistral-odd-heads": ("Mistral", {"num_attention_heads": 5, "num_key_value_heads": 1, "sliding_window": 7}),
    "mistral-full": ("Mistral", {"sliding_window": None, "head_dim": 8, "hidden_act": "gelu_new"}),
    "mistral-layer-types": (
        "Mistral",
        {
            "head_dim": 6,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "ministral": (
        "Ministral",
        {"head_dim": 6, "sliding_window": 5, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
    ),
    "qwen2-sliding": ("Qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "qwen2-unused-window": ("Qwen2", {"sliding_window": 9, "max_window_layers": 1, "tie_word_embeddings": True}),
    "qwen2-null-kv-heads": ("Qwen2", {"num_key_value_heads": None}),
    "qwen3-bias": (
        "Qwen3",
        {
            "attention_bias": True,
            "head_dim": 8,
            "use_sliding_window": True,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "gemma": ("Gemma", {"head_dim": 14, "hidden_act": "gelu", "num_key_value_heads": 1}),
    "gemma-bias-untied": ("Gemma", {"head_dim": 6, "attention_bias": True, "tie_word_embeddings": False}),
    "gemma2": ("Gemma2", {"head_dim": 10, "query_pre_attn_scalar": 23, "sliding_window": 6}),
    "gemma2-no-caps": (
        "Gemma2",
        {
            "head_dim": 8,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": 3.0,
            "sliding_window": 11,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        },
    ),
    "gemma3-old-config": (
        "Gemma3",
        {
            "head_dim": 8,
            "sliding_window": 8,
            "sliding_window_pattern": 3,
            "rope_theta": 1e5,
            "rope_local_base_freq": 500.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "query_pre_attn_scalar": 12,
        },
    ),
    "gemma3-new-config": (
        "Gemma3",
        {
            "head_dim": 12,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
            "final_logit_softcapping": 5.0,
            "attention_bias": True,
        },
    ),
    "phi3-sliding": ("Phi3", {"sliding_window": 10}),
    "phi3-su-crossing": (
        "Phi3",
        {
            "num_key_value_heads": 4,
            "original_max_position_embeddings": 32,
            "rope_scaling": {"type": "su", "original_max_position_embeddings": 32, **LONGROPE},
        },
    ),
    "phi4-partial": (
        "Phi3",
        {
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 64,
            "rope_scaling": {"type": "longrope", **LONGROPE, "attention_factor": 1.3},
            "tie_word_embeddings": True,
        },
    ),
    "phi4-odd-part": ("Phi3", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
    "smollm3": ("SmolLM3", {}),
    "smollm3-sliding": (
        "SmolLM3",
        {
            "no_rope_layers": [0, 1, 0],
            "use_sliding_window": True,
            "sliding_window": 6,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": False,
        },
    ),
    "olmo2": ("Olmo2", {}),
    "olmo2-bias": ("Olmo2", {"attention_bias": True, "num_attention_heads": 6, "num_key_value_heads": 3}),
    "granite": (
        "Granite",
        {
            "embedding_multiplier": 12.0,
            "logits_scaling": 8.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.0078125,
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
    "granite-tied": ("Granite", {"tie_word_embeddings": True, "residual_multiplier": 2}),
    "llama-gelu": ("Llama", {"hidden_act": "gelu"}),
    "qwen2-gelu-fast": ("Qwen2", {"hidden_act": "gelu_fast"}),
    "qwen3-quick-gelu": ("Qwen3", {"hidden_act": "quick_gelu"}),
    "phi3-relu": ("Phi3", {"hidden_act": "relu"}),
    "gemma2-relu2": ("Gemma2", {"hidden_activation": "relu2", "head_dim": 8}),
    "granite-h": (
        "GraniteMoeHybrid",
        {
            "num_local_experts": 0,
            "shared_intermediate_size": 20,
            "mamba_n_heads": 6,
            "mamba_d_state": 10,
            "layers_block_type": ["mamba", "attention", "mamba"],
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.2,
        },
    ),
    "granite-h-groups": (
        "GraniteMoeHybrid",
        {
            "num_local_experts": 0,
            "shared_intermediate_size": 20,
            "mamba_n_heads": 8,
            "mamba_n_groups": 2,
            "mamba_d_head": 9,
            "mamba_expand": 3,
            "mamba_d_state": 6,
            "mamba_d_conv": 2,
            "mamba_conv_bias": False,
            "mamba_proj_bias": True,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "position_embedding_type": "rope",
        },
    ),
    "lfm2": (
        "Lfm2",
        {
            "norm_eps": 1e-4,
            "conv_bias": True,
            "conv_L_cache": 4,
            "block_multiple_of": 16,
            "block_ffn_dim_multiplier": 1.3,
            "full_attn_idxs": [1],
            "tie_embedding": False,
        },
    ),
    "lfm2-block-ff-dim": (
        "Lfm2",
        {
            "block_ff_dim": 28,
            "block_auto_adjust_ff_dim": False,
            "layer_types": ["full_attention", "conv", "conv"],
            "rope_theta": 1e4,
        },
    ),
    "lfm3": ("Lfm3", {"head_dim": 8, "num_hidden_layers": 5, "sliding_window": 6}),
    "lfm3-plain": (
        "Lfm3",
        {
            "head_dim": 12,
            "conv_L_cache": 2,
            "conv_bias": True,
            "attention_bias": True,
            "use_attention_gate": False,
            "use_sandwich_norm": False,
            "layer_types": ["sliding_attention", "conv", "full_attention"],
            "sliding_window": 9,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
    ),
    "qwen3_5": (
        "Qwen3_5",
        {
            "num_hidden_layers": 4,
            "head_dim": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 6,
            "linear_key_head_dim": 6,
            "linear_value_head_dim": 10,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e3, "mrope_section": [1, 1, 0]},
        },
    ),
    "qwen3_5-interval": (
        "Qwen3_5",
        {
            "full_attention_interval": 2,
            "head_dim": 10,
            "attention_bias": True,
            "partial_rotary_factor": 0.6,
            "rope_theta": 1e4,
            "linear_conv_kernel_dim": 2,
            "linear_num_key_heads": 3,
            "linear_num_value_heads": 3,
            "linear_key_head_dim": 5,
            "linear_value_head_dim": 4,
            "tie_word_embeddings": True,
        },
    ),
}


def mulberry32(seed: int):
    """The generator of test/support/random.ts: numbers in [0, 1)."""
    mask = 0xFFFFFFFF
    state = seed & mask
    while True:
        state = (state + 0x6D2B79F5) & mask
        t = ((state ^ (state >> 15)) * (state | 1)) & mask
        t = ((t + (((t ^ (t >> 7)) * (t | 61)) & mask)) & mask) ^ t
        yield (t ^ (t >> 14)) / 2**32


def seed_of(name: str) -> int:
    """FNV-1a of the name's characters."""
    value = 0x811C9DC5
    for character in name.encode():
        value = ((value ^ character) * 0x01000193) & 0xFFFFFFFF
    return value


def values_of(name: str, shape: torch.Size) -> torch.Tensor:
    """Matrices spread over -0.4 .. 0.4, vectors over 0.5 .. 1.5."""
    numbers = mulberry32(seed_of(name))
    vector = len(shape) == 1
    values = [0.5 + next(numbers) if vector else 0.4 * (2 * next(numbers) - 1) for _ in range(shape.numel())]
    return torch.tensor(values, dtype=torch.float64).to(torch.float32).reshape(shape)


def ids_of(name: str, count: int) -> list[int]:
    numbers = mulberry32(seed_of(name))
    return [int(next(numbers) * VOCABULARY) for _ in range(count)]


def rounded(values: torch.Tensor) -> list[float]:
    return [round(value, 6) for value in values.tolist()]


@torch.no_grad()
def golden(name: str, architecture: str, changes: dict) -> dict:
    given = {**BASE, **changes}
    # What AutoConfig makes of a config of Mistral with layer_types.
    model_class = "Ministral" if architecture == "Mistral" and "layer_types" in given else architecture
    prefix = f"{model_class}Text" if architecture in ("Gemma3", "Qwen3_5") else model_class
    config = getattr(transformers, f"{prefix}Config").from_dict(copy.deepcopy(given))
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{model_class}ForCausalLM")(config).to(torch.float32).eval()
    for key, parameter in model.named_parameters():
        # Files of LFM3 say gate_proj.
        parameter.copy_(values_of(key.replace(".g_proj.", ".gate_proj."), parameter.shape))
    ids = ids_of(name, LONG)
    prompt = torch.tensor([ids[:PROMPT]])
    logits = model(prompt).logits[0]
    # Without the mask, generate would hide tokens that are equal to the padding.
    mask = torch.ones_like(prompt)
    greedy = model.generate(prompt, attention_mask=mask, max_new_tokens=GREEDY, do_sample=False, eos_token_id=None)
    return {
        "config": {"architectures": [f"{architecture}ForCausalLM"], **given},
        "ids": ids,
        "logits": [rounded(logits[row]) for row in ROWS],
        "greedy": greedy[0, PROMPT:].tolist(),
        "long_last_logits": rounded(model(torch.tensor([ids])).logits[0, -1]),
    }


def main() -> None:
    result = {
        "transformers": transformers.__version__,
        "torch": torch.__version__.split("+")[0],
        "prompt": PROMPT,
        "rows": ROWS,
        "models": {name: golden(name, *entry) for name, entry in CONFIGS.items()},
    }
    target = Path(__file__).parents[2] / "test" / "architectures.json.golden"
    lines = json.dumps(result["models"], separators=(",", ":")).replace('},"', '},\n"')
    head = json.dumps({key: value for key, value in result.items() if key != "models"})
    target.write_text(f'{head[:-1]}, "models": {lines}}}\n')
    print(f"{target}: {len(CONFIGS)} models, {target.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
