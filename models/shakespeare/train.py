"""Trains the Shakespeare demo model of lowbit and writes its whole folder.

    python train.py tinyshakespeare.txt --out DIR

The text is split at a speech boundary (the last tenth is held out), a byte-level
BPE tokenizer and a small Llama model are trained on the first part, and the
folder gets: config.json, generation_config.json, tokenizer.json,
tokenizer_config.json, heldout.txt and model.safetensors (bfloat16, Hugging Face
names). The defaults are the settings of the shipped weights.

    python train.py tinyshakespeare.txt --out DIR --eval-only

only measures the weights that are already in DIR.

Training has two stages: first on random segmentations of the text (BPE dropout),
which a model of this size cannot simply learn by heart, then shortly on the
tokenizer's own. A stage keeps the weights with the lowest held-out loss.
"""

import argparse
import json
import math
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB, DIM, FFN, LAYERS = 2048, 256, 768, 6
HEADS, KV_HEADS, HEAD_DIM = 8, 4, 64
CONTEXT, ROPE_THETA, NORM_EPS = 512, 10000.0, 1e-5
END = "<|endoftext|>"  # id 0, both bos and eos
HERE = Path(__file__).resolve().parent

# A conversation becomes a scene: the user speaks as a citizen, the model answers as
# Menenius, and a blank line ends every speech.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}First Citizen:\n{{ message['content'] | trim }}\n\n"
    "{% elif message['role'] == 'assistant' %}MENENIUS:\n{{ message['content'] | trim }}\n\n"
    "{% else %}{{ message['content'] | trim }}\n\n"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}MENENIUS:\n{% endif %}"
)


# ---------------------------------------------------------------- text and tokens


def split_text(data: bytes, held_out: float) -> tuple[str, str]:
    """Cuts at the first blank line in the last `held_out` share of the bytes."""
    cut = data.index(b"\n\n", int(len(data) * (1 - held_out))) + 2
    return data[:cut].decode("utf-8"), data[cut:].decode("utf-8")


def train_tokenizer(text: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    assert tokenizer.get_vocab_size() == VOCAB and tokenizer.token_to_id(END) == 0
    return tokenizer


class BpeDropout:
    """Random segmentations of a text: every possible merge is skipped with
    probability `p` (Provilkov et al. 2020). `variants` segmentations of every
    distinct word are drawn once; `sample` then picks one per occurrence."""

    def __init__(self, tokenizer: Tokenizer, text: str, p: float, variants: int, seed: int):
        bpe = json.loads(tokenizer.to_str())["model"]
        vocab, rng = bpe["vocab"], random.Random(seed)
        rank = {tuple(m if isinstance(m, list) else m.split(" ")): i for i, m in enumerate(bpe["merges"])}
        words = [w for w, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
        index = {w: i for i, w in enumerate(dict.fromkeys(words))}
        self.words = np.array([index[w] for w in words])
        self.variants = variants
        pieces = []
        for word in index:
            for _ in range(variants):
                parts = list(word)
                while len(parts) > 1:
                    found = [
                        (rank[pair], i)
                        for i, pair in enumerate(zip(parts, parts[1:]))
                        if pair in rank and rng.random() >= p
                    ]
                    if not found:
                        break
                    i = min(found)[1]
                    parts[i : i + 2] = [parts[i] + parts[i + 1]]
                pieces.append([vocab[x] for x in parts])
        self.length = np.array([len(x) for x in pieces])
        self.start = np.cumsum(self.length) - self.length
        self.ids = np.array([x for piece in pieces for x in piece])

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        chosen = self.words * self.variants + rng.integers(self.variants, size=len(self.words))
        length = self.length[chosen]
        within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        return self.ids[np.repeat(self.start[chosen], length) + within]


class Blocks:
    """Endless training batches. Every pass over the text is segmented anew and cut
    at a new offset; a tenth of the blocks start at a speech, after the bos token."""

    def __init__(self, source, newline: int, seed: int):
        self.source, self.newline = source, newline
        self.rng = np.random.default_rng(seed)
        self.queue: list[np.ndarray] = []

    def refill(self) -> None:
        ids = self.source(self.rng)
        blank = (ids[:-1] == self.newline) & (ids[1:] == self.newline)
        speeches = np.flatnonzero(blank) + 2
        speeches = speeches[speeches + CONTEXT < len(ids)]
        first = int(self.rng.integers(CONTEXT))
        for at in range(first, len(ids) - CONTEXT - 1, CONTEXT):
            if self.rng.random() < 0.1:
                at = int(self.rng.choice(speeches))
                self.queue.append(np.concatenate([[0], ids[at : at + CONTEXT]]))
            else:
                self.queue.append(ids[at : at + CONTEXT + 1])
        self.rng.shuffle(self.queue)

    def batch(self, size: int) -> torch.Tensor:
        while len(self.queue) < size:
            self.refill()
        return torch.from_numpy(np.stack([self.queue.pop() for _ in range(size)]))


# ---------------------------------------------------------------- model


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        x = x.float()
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + NORM_EPS))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(DIM, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape

        def heads(y):
            return y.view(b, t, -1, HEAD_DIM).transpose(1, 2)

        def rotate(y):
            left, right = y.chunk(2, -1)
            return (y * cos + torch.cat((-right, left), -1) * sin).to(y.dtype)

        q, k, v = heads(self.q_proj(x)), heads(self.k_proj(x)), heads(self.v_proj(x))
        q, k = rotate(q), rotate(k)
        k, v = (y.repeat_interleave(HEADS // KV_HEADS, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(DIM, FFN, bias=False)
        self.up_proj = nn.Linear(DIM, FFN, bias=False)
        self.down_proj = nn.Linear(FFN, DIM, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = Norm()
        self.self_attn = Attention()
        self.post_attention_layernorm = Norm()
        self.mlp = Mlp()

    def forward(self, x, cos, sin, drop, at):
        x = x + drop(self.self_attn(self.input_layernorm(x), cos, sin), at)
        return x + drop(self.mlp(self.post_attention_layernorm(x)), at + 1)


class Llama(nn.Module):
    """Parameter names are Hugging Face's, less the leading `model.`. In training,
    `keep` is the dropout mask of the embedding and of every residual branch,
    (1 + 2 LAYERS, batch, time, DIM), and `scale` is 1 / (1 - dropout)."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()
        frequency = ROPE_THETA ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
        angle = torch.outer(torch.arange(CONTEXT).float(), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                out = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if out else 0.02)

    def forward(self, ids, keep=None, scale=1.0):
        def drop(x, at):
            return x if keep is None else x * keep[at] * scale

        x = drop(self.embed_tokens(ids), 0)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for i, layer in enumerate(self.layers):
            x = layer(x, cos, sin, drop, 1 + 2 * i)
        return F.linear(self.norm(x), self.embed_tokens.weight)


class DropoutMask:
    """Masks from random bytes: much faster on a CPU than torch's own dropout."""

    def __init__(self, p: float, seed: int):
        self.limit = round(p * 256)
        self.scale = 256 / (256 - self.limit)
        self.rng = np.random.Generator(np.random.SFC64(seed))

    def sample(self, batch: int) -> torch.Tensor:
        shape = (1 + 2 * LAYERS, batch, CONTEXT, DIM)
        noise = np.frombuffer(self.rng.bytes(math.prod(shape)), np.uint8).reshape(shape)
        return torch.from_numpy(noise >= self.limit)


# ---------------------------------------------------------------- files


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_settings(out: Path) -> None:
    write_json(out / "config.json", {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 0,
        "dtype": "bfloat16",
        "eos_token_id": 0,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": DIM,
        "initializer_range": 0.02,
        "intermediate_size": FFN,
        "max_position_embeddings": CONTEXT,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "pad_token_id": None,
        "pretraining_tp": 1,
        "rms_norm_eps": NORM_EPS,
        "rope_parameters": {"rope_theta": ROPE_THETA, "rope_type": "default"},
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": VOCAB,
    })
    write_json(out / "generation_config.json", {
        "bos_token_id": 0,
        "eos_token_id": 0,
        "do_sample": True,
        "temperature": 0.8,
        "top_k": 40,
        "stop_strings": ["\n\n"],
    })
    write_json(out / "tokenizer_config.json", {
        "add_bos_token": False,
        "add_eos_token": False,
        "add_prefix_space": False,
        "bos_token": END,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "model_max_length": CONTEXT,
        "tokenizer_class": "PreTrainedTokenizerFast",
    })


def save_weights(model: Llama, out: Path) -> None:
    tensors = {"model." + k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    partial = out / "model.safetensors.part"
    save_file(tensors, partial, metadata={"format": "pt"})
    os.chmod(partial, 0o644)
    os.replace(partial, out / "model.safetensors")


def load_weights(out: Path) -> Llama:
    """The saved bfloat16 weights in a float32 model."""
    model = Llama()
    tensors = load_file(out / "model.safetensors")
    model.load_state_dict({k.removeprefix("model."): v.float() for k, v in tensors.items()})
    return model.eval()


# ---------------------------------------------------------------- training


@torch.no_grad()
def evaluate(model: Llama, ids: torch.Tensor, stride: int) -> tuple[float, int]:
    """Mean nats per token, and how many tokens were scored: windows of CONTEXT tokens
    every `stride`; each token but the first is scored once, in the first window that
    has it (so with at least CONTEXT - stride tokens before it, past the start)."""
    model.eval()
    total, scored = 0.0, 0
    for at in range(0, len(ids), stride):
        window = ids[at : at + CONTEXT]
        skip = 0 if at == 0 else CONTEXT - stride - 1
        if len(window) - 1 <= skip:
            break
        logits = model(window[None])[0].float()
        total += F.cross_entropy(logits[skip:-1], window[skip + 1 :], reduction="sum").item()
        scored += len(window) - 1 - skip
    model.train()
    return total / scored, scored


def report(out: Path, held: str) -> None:
    """Held-out figures of the weights on disk."""
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    ids = tokenizer.encode(held).ids
    loss, scored = evaluate(load_weights(out), torch.tensor(ids), CONTEXT // 2)
    size = len(held.encode()) - len(tokenizer.decode(ids[:1]).encode())
    print(
        f"held-out, saved weights in float32: {loss:.4f} nats/token, perplexity {math.exp(loss):.2f}, "
        f"{loss * scored / math.log(2) / size:.4f} bits/byte ({scored} tokens, {size} bytes)"
    )


def optimize(model: Llama, blocks: Blocks, held_ids: torch.Tensor, steps: int, horizon: int, lr: float,
             seed: int, best: float, args, out: Path) -> None:
    """Trains with a warm-up and the cosine schedule of a run of `horizon` steps, and saves the weights in `out`
    whenever the held-out loss is the lowest so far and below `best`."""
    masks = DropoutMask(args.dropout, seed)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": args.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=lr, betas=(0.9, 0.98), fused=True,
    )
    warmup = min(args.warmup, horizon // 4)

    def rate(step: int) -> float:
        if step < warmup:
            return lr * (step + 1) / warmup
        progress = (step - warmup) / max(1, horizon - warmup)
        return lr * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))

    best_step, running, began = 0, None, time.time()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        batch = blocks.batch(args.batch)
        with torch.autocast("cpu", torch.bfloat16, enabled=not args.float32):
            logits = model(batch[:, :-1], masks.sample(args.batch), masks.scale)
            loss = F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running = loss.item() if running is None else 0.98 * running + 0.02 * loss.item()

        done = step + 1
        if done % args.eval_every == 0 or done == steps:
            with torch.autocast("cpu", torch.bfloat16, enabled=not args.float32):
                held_loss, _ = evaluate(model, held_ids, CONTEXT // 2)
            better = held_loss < best
            if better:
                best, best_step = held_loss, done
                save_weights(model, out)
            print(
                f"step {done}: training {running:.4f}, held out {held_loss:.4f}{' *' if better else ''}, "
                f"{time.time() - began:.0f} s", flush=True,
            )
            if done - best_step >= args.patience:
                break


def train(args, out: Path, train_text: str, held: str) -> None:
    torch.manual_seed(args.seed)
    tokenizer = train_tokenizer(train_text)
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "heldout.txt").write_bytes(held.encode())
    write_settings(out)

    plain = np.array(tokenizer.encode(train_text).ids)
    held_ids = torch.tensor(tokenizer.encode(held).ids)
    newline = tokenizer.token_to_id("Ċ")
    print(f"tokens: {len(plain)} training, {len(held_ids)} held out")

    if not args.finish_only:
        model = Llama()
        print(f"parameters: {sum(p.numel() for p in model.parameters())}")
        segmentations = BpeDropout(tokenizer, train_text, args.bpe_dropout, 16, args.seed)
        blocks = Blocks(segmentations.sample, newline, args.seed)
        optimize(model, blocks, held_ids, args.steps, args.horizon, args.lr, args.seed, math.inf, args, out)
    if args.finish_steps:
        print("finish, with the tokenizer's own segmentation")
        model = load_weights(out)
        best, _ = evaluate(model, held_ids, CONTEXT // 2)
        print(f"best weights so far, rounded: held out {best:.4f}", flush=True)
        model.train()
        blocks = Blocks(lambda rng: plain, newline, args.seed + 1)
        steps = args.finish_steps
        optimize(model, blocks, held_ids, steps, steps, args.finish_lr, args.seed + 1, best, args, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="tinyshakespeare.txt")
    parser.add_argument("--out", type=Path, default=HERE, help="the folder to write (default: this script's)")
    parser.add_argument("--eval-only", action="store_true", help="measure the weights in the folder, train nothing")
    parser.add_argument("--held-out", type=float, default=0.1, help="share of the text to hold out, at its end")
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--horizon", type=int, default=1600, help="length of the learning-rate schedule they are the start of")
    parser.add_argument("--finish-steps", type=int, default=450, help="more steps, from the best weights, without BPE dropout")
    parser.add_argument("--finish-lr", type=float, default=1e-3)
    parser.add_argument("--finish-only", action="store_true", help="do only these, from the weights in the folder")
    parser.add_argument("--batch", type=int, default=8, help="blocks of 512 tokens per step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=100, help="steps")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.2, help="on the embedding and both residual branches")
    parser.add_argument("--bpe-dropout", type=float, default=0.1, help="chance to skip a merge when segmenting")
    parser.add_argument("--eval-every", type=int, default=100, help="steps")
    parser.add_argument("--patience", type=int, default=600, help="stop after so many steps without a better held-out loss")
    parser.add_argument("--float32", action="store_true", help="train in float32 instead of bfloat16 autocast")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    train_text, held = split_text(args.text.read_bytes(), args.held_out)
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.eval_only:
        train(args, args.out, train_text, held)
    report(args.out, held)


if __name__ == "__main__":
    main()
