"""Makes a tiny random Qwen3.5 with a layer of multi-token prediction, and what transformers' own layers make of it.

    pip install torch transformers==5.24.0 safetensors
    python make.py

transformers leaves `mtp.*` out of its models; the layer is one of its decoder layers with full attention, between the norms
and the linear layer that vLLM and llama.cpp have in front of it. Float32, eager attention, CPU.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm

FOLDER = pathlib.Path(__file__).parent
torch.manual_seed(54)
config = Qwen3_5TextConfig(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    layer_types=["linear_attention", "full_attention"],
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
    max_position_embeddings=256,
    rope_parameters={
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
    },
    tie_word_embeddings=True,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
    attn_implementation="eager",
)
model = Qwen3_5ForCausalLM(config).float().eval()
layer = Qwen3_5DecoderLayer(config, layer_idx=1).float().eval()
norms = {name: Qwen3_5RMSNorm(32, eps=config.rms_norm_eps) for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")}
fc = torch.nn.Linear(64, 32, bias=False)


def random(module):
    for parameter in module.parameters():
        scale = 0.3 if parameter.dim() == 1 else parameter[0].numel() ** -0.5
        values = torch.randn_like(parameter) * scale
        parameter.data = values.to(torch.bfloat16).float() if parameter.dim() > 1 else values


for module in (model.model, layer, fc, *norms.values()):
    random(module)

tensors = {name: value for name, value in model.state_dict().items() if name != "lm_head.weight"}
tensors |= {f"mtp.layers.0.{name}": value for name, value in layer.state_dict().items()}
tensors |= {f"mtp.{name}.weight": norm.weight for name, norm in norms.items()}
tensors["mtp.fc.weight"] = fc.weight
stored = {
    name: (value.to(torch.bfloat16) if value.dim() > 1 else value.float()).detach().contiguous().clone()
    for name, value in tensors.items()
}
save_file(stored, FOLDER / "model.safetensors", metadata={"format": "pt"})
fields = {**config.to_dict(), "architectures": ["Qwen3_5ForCausalLM"], "mtp_num_hidden_layers": 1}
fields = {key: value for key, value in fields.items() if not key.startswith("_") and value is not None}
(FOLDER / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


@torch.no_grad()
def heads(tokens, hidden):
    """Hidden states of the layer for tokens and the hidden states before them, each seeing those before it."""
    embedded = model.model.embed_tokens(tokens)
    x = fc(torch.cat([norms["pre_fc_norm_embedding"](embedded), norms["pre_fc_norm_hidden"](hidden)], -1))
    positions = torch.arange(tokens.shape[1])[None]
    angles = model.model.rotary_emb(x, positions[None].expand(3, 1, -1))
    mask = torch.full((1, 1, x.shape[1], x.shape[1]), float("-inf")).triu(1)
    made = layer(x, position_embeddings=angles, attention_mask=mask, position_ids=positions)
    return norms["norm"](made[0] if isinstance(made, tuple) else made)


with torch.no_grad():
    ids = torch.randint(3, 96, (1, 40))
    drafts = torch.randint(3, 96, (1, 3))
    output = model.model(ids)
    hidden = output.last_hidden_state
    head = model.lm_head
    before = torch.cat([torch.zeros(1, 1, 32), hidden], 1)
    tokens = torch.cat([ids, drafts[:, :1]], 1)
    made = []
    for i in range(3):
        after = heads(tokens, before)[:, -1:]
        made.append(head(after)[0, 0])
        before = torch.cat([before, after], 1)
        tokens = torch.cat([tokens, drafts[:, i + 1 : i + 2]], 1)

golden = {
    "origin": "make.py, transformers 5.24.0, torch 2.13.0",
    "ids": ids[0].tolist(),
    "last_logits": head(hidden)[0, -1].tolist(),
    "drafts": drafts[0].tolist(),
    "draft_logits": [row.tolist() for row in made],
}
(FOLDER / "golden.json").write_text(json.dumps(golden) + "\n")
