#!/usr/bin/env python3
"""The tokenizers of GGUF files by others: strings as the gguf package reads them, rules of Rust's tokenizers.

Writes JSON of each file to standard output, a line for each: its tokens, what each token alone decodes to, and the ids of
texts: what every token decodes to, and 80,000 code points, each alone and within a text. With --golden, a part of each
file's vocabulary and some texts, which src/formats/gguf/tokenizer.test.ts compares with.

    pip install gguf tokenizers (made with 0.19.0 and 0.23.3)
    python scripts/goldens/gguf-vocabularies.py model.gguf ... [--golden]

scripts/goldens/gguf-vocabularies.js runs it and compares.
"""

import json
import sys
import unicodedata

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

CODE_POINTS = 80_000
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Words as the models' own tokenizer.json cut them, by tokenizer.ggml.pre.
WORDS = {
    "smollm": lambda: [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ],
    "qwen2": lambda: [
        pre_tokenizers.Split(
            Regex(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                r"|\s+(?!\S)|\s+"
            ),
            "isolated",
        ),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ],
}


# Pieces that end a text for llama.cpp, which makes control tokens of them, such as "</s>" in vocabularies of code.
ENDS = ["</s>", "<|im_end|>", "<|endoftext|>", "<|end|>", "<|eot_id|>", "<eos>", "<end_of_turn>", "<EOT>", "[EOT]", "[EOS]"]


def read(path):
    fields = GGUFReader(path).fields
    value = lambda name: fields[f"tokenizer.ggml.{name}"].contents() if f"tokenizer.ggml.{name}" in fields else None
    names = ["model", "pre", "tokens", "token_type", "scores", "merges", "add_space_prefix"]
    return {name: value(name) for name in names}


def merges_of_scores(tokens, kinds, scores):
    """As transformers converts SentencePiece's models of BPE."""
    ids = {token: i for i, token in enumerate(tokens)}
    merges = []
    for i, token in enumerate(tokens):
        if kinds[i] not in (NORMAL, USER_DEFINED):
            continue
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        pairs = sorted((pair for pair in pairs if pair[0] in ids and pair[1] in ids), key=lambda p: (ids[p[0]], ids[p[1]]))
        merges += [(scores[i], pair) for pair in pairs]
    return [pair for _, pair in sorted(merges, key=lambda merge: -merge[0])]


def tokenizer_of(facts):
    tokens, kinds = facts["tokens"], facts["token_type"]
    ids = {token: i for i, token in enumerate(tokens)}
    if facts["model"] == "llama":
        merges = merges_of_scores(tokens, kinds, facts["scores"])
        unknown = tokens[kinds.index(UNKNOWN)] if UNKNOWN in kinds else tokens[3]
        made = Tokenizer(models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
        made.normalizer = normalizers.Replace(" ", "▁")
        made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    else:
        made = Tokenizer(models.BPE(ids, [tuple(merge.split(" ")) for merge in facts["merges"]]))
        made.pre_tokenizer = pre_tokenizers.Sequence(WORDS[facts["pre"]]())
        made.decoder = decoders.ByteLevel()
    of_kinds = lambda *wanted: [token for token, kind in zip(tokens, kinds) if kind in wanted]
    made.add_tokens([AddedToken(token, normalized=False) for token in of_kinds(USER_DEFINED)])
    special = of_kinds(CONTROL, UNKNOWN) + [token for token in ENDS if token in ids]
    made.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return made


def encoded(tokenizer, texts):
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


def decoded(tokenizer, count):
    return [tokenizer.decode([i], skip_special_tokens=False) for i in range(count)]


def whole(path):
    facts = read(path)
    tokenizer = tokenizer_of(facts)
    texts = decoded(tokenizer, len(facts["tokens"]))
    characters = [chr(code) for code in range(CODE_POINTS + 0x800) if not 0xD800 <= code < 0xE000]
    alone = encoded(tokenizer, characters)
    return {
        "file": path,
        "tokens": facts["tokens"],
        "decoded": texts,
        "ids": encoded(tokenizer, texts),
        "characters": alone,
        "texts": [tokenizer.decode(found, skip_special_tokens=False) for found in alone],
        "within": encoded(tokenizer, [f"a{c} {c}{c}b" for c in characters]),
    }


# Texts with characters that readers lose, join or take for others.
TEXTS = [
    "#include <a.h>\n#define b",
    "\ufeff# \ufeff#\ufeff",
    "\ufeff<?php // \ufeff\ufeff\ufeff\ufeff.\ufeff",
    "  two\u00a0spaces\u3000 and\ttabs\r\n\n\n",
    "e\u0301 \u00e9 \u212b \ufb01 \u200b\u200d\u2060\u00ad",
    "\u0000\u0001\u001f\u007f\u0085\u2028\u2029\ufffd\uffff",
    "👩‍👩‍👧 🇩🇪 𝔘 漢字 한국어 \U000e0041",
]


def golden(path):
    """The tokens that make the texts, those with unusual characters, and all that these are merged of."""
    facts = read(path)
    tokens, kinds = facts["tokens"], facts["token_type"]
    tokenizer = tokenizer_of(facts)
    ids = {token: i for i, token in enumerate(tokens)}
    kept = {i for found in encoded(tokenizer, TEXTS) for i in found}
    odd = [i for i, token in enumerate(tokens) if any(unicodedata.category(c) in ("Cf", "Zl", "Zp", "Cc") for c in token)]
    kept |= set(odd[:: max(1, len(odd) // 60)]) | {i for i, token in enumerate(tokens) if "\ufeff" in token}
    kept |= {i for i, kind in enumerate(kinds) if kind in (UNKNOWN, BYTE)} | {i for i, t in enumerate(tokens) if len(t) == 1 and (facts["model"] != "llama" or t.isascii() or t == "▁")}
    kept |= {i for i, kind in enumerate(kinds) if kind in (CONTROL, USER_DEFINED)} & set(range(8))
    for i in list(kept):
        token = tokens[i]
        parts = {token[a:b] for a in range(len(token)) for b in range(a + 1, len(token) + 1)} if len(token) < 8 else set(token)
        kept |= {ids[part] for part in parts if part in ids}
    order = sorted(kept)
    names = {tokens[i] for i in order}
    part = {
        "model": facts["model"],
        "pre": facts["pre"],
        "tokens": [tokens[i] for i in order],
        "token_type": [kinds[i] for i in order],
        "add_space_prefix": facts["add_space_prefix"],
    }
    if facts["scores"]:
        part["scores"] = [facts["scores"][i] for i in order]
    if facts["merges"]:
        pairs = [merge.split(" ") for merge in facts["merges"]]
        part["merges"] = [" ".join(p) for p in pairs if p[0] in names and p[1] in names and p[0] + p[1] in names]
    small = tokenizer_of(part)
    ids = encoded(small, TEXTS)
    return {
        "file": path.rsplit("/", 1)[-1],
        "metadata": part,
        "decoded": decoded(small, len(order)),
        "texts": [{"text": text, "ids": found} for text, found in zip(TEXTS, ids)],
    }


if __name__ == "__main__":
    paths = [argument for argument in sys.argv[1:] if argument != "--golden"]
    for path in paths:
        print(json.dumps(golden(path) if "--golden" in sys.argv else whole(path)))
