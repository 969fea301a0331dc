"""Makes a tiny random Gemma 4 and assistants that draft for it, one of which has clusters of tokens, and what transformers makes of
them.

    pip install torch transformers==5.24.0 safetensors
    python make.py

The assistant is called as transformers' `SinglePositionMultiTokenCandidateGenerator` calls it: the embedding of the last token beside
the hidden state before it, one position for all tokens of a draft. Float32, eager attention, CPU. Its windows show one token less
than the model's next token sees, which is all of this short text.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM, Gemma4ForCausalLM, Gemma4TextConfig

FOLDER = pathlib.Path(__file__).parent
torch.manual_seed(54)
TYPES = ["sliding_attention", "full_attention"]
shared = dict(
    vocab_size=96,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    global_head_dim=32,
    sliding_window=64,
    max_position_embeddings=256,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
    tie_word_embeddings=True,
    attn_implementation="eager",
)
config = Gemma4TextConfig(
    **shared,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=4,
    layer_types=TYPES * 2,
    num_kv_shared_layers=2,
    hidden_size_per_layer_input=8,
    vocab_size_per_layer_input=96,
    final_logit_softcapping=30.0,
)
own = Gemma4TextConfig(
    **shared,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    layer_types=TYPES,
    num_kv_shared_layers=2,
    hidden_size_per_layer_input=0,
    vocab_size_per_layer_input=0,
    enable_moe_block=False,
    use_double_wide_mlp=False,
)
model = Gemma4ForCausalLM(config).float().eval()
assistant = Gemma4AssistantForCausalLM(
    Gemma4AssistantConfig(text_config=own, backbone_hidden_size=32, use_ordered_embeddings=False)
).float().eval()


def random(module):
    for name, parameter in module.named_parameters():
        scale = 0.3 if parameter.dim() == 1 else parameter[0].numel() ** -0.5
        values = torch.randn_like(parameter) * scale + (1.0 if parameter.dim() == 1 else 0.0)
        parameter.data = values.to(torch.bfloat16).float() if parameter.dim() > 1 else values
    for name, buffer in module.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.fill_(0.75)


def as_stored(value):
    if not value.is_floating_point():
        return value
    return value.to(torch.bfloat16) if value.dim() > 1 else value.float()


def save(module, fields, folder):
    folder.mkdir(exist_ok=True)
    tensors = {name: value for name, value in module.state_dict().items() if name != "lm_head.weight"}
    stored = {name: as_stored(value).detach().contiguous().clone() for name, value in tensors.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


random(model)
random(assistant)
clean = lambda fields: {key: value for key, value in fields.items() if not key.startswith("_") and value is not None}
save(model, {**clean(config.to_dict()), "architectures": ["Gemma4ForCausalLM"]}, FOLDER / "model")


def save_assistant(module, folder):
    fields = clean(module.config.to_dict())
    fields = {**fields, "text_config": clean(fields["text_config"]), "architectures": ["Gemma4AssistantForCausalLM"]}
    save(module, fields, folder)


save_assistant(assistant, FOLDER / "assistant")

with torch.no_grad():
    ids = torch.randint(3, 96, (1, 40))
    drafts = torch.randint(3, 96, (1, 3))
    output = model(ids, output_hidden_states=True, return_shared_kv_states=True)

    def logits_by(drafter):
        hidden = output.hidden_states[-1][:, -1:]
        made = []
        for i in range(3):
            embedded = model.get_input_embeddings()(drafts[:, i : i + 1])
            after = drafter(
                inputs_embeds=torch.cat([embedded, hidden], -1),
                position_ids=torch.tensor([[ids.shape[1]]]),
                shared_kv_states=output.shared_kv_states,
            )
            hidden = after.last_hidden_state
            made.append(after.logits[0, 0].tolist())
        return made

    draft_logits = logits_by(assistant)
    # The same weights, and clusters of tokens.
    clusters = dict(use_ordered_embeddings=True, num_centroids=12, centroid_intermediate_top_k=3)
    clustered = Gemma4AssistantForCausalLM(Gemma4AssistantConfig(text_config=own, backbone_hidden_size=32, **clusters))
    clustered = clustered.float().eval()
    clustered.load_state_dict(assistant.state_dict(), strict=False)
    masked = clustered.masked_embedding
    masked.centroids.weight.data = (torch.randn(12, 16) / 4).to(torch.bfloat16).float()
    masked.token_ordering = torch.randperm(96)
    save_assistant(clustered, FOLDER / "clustered")
    clustered_logits = logits_by(clustered)

golden = {
    "origin": "make.py, transformers 5.24.0, torch 2.13.0",
    "ids": ids[0].tolist(),
    "last_logits": output.logits[0, -1].tolist(),
    "drafts": drafts[0].tolist(),
    "draft_logits": draft_logits,
    "clustered_logits": clustered_logits,
}
(FOLDER / "golden.json").write_text(json.dumps(golden) + "\n")
