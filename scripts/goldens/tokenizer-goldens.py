"""
Writes src/text/tokenizer/components.json.golden: random tokenizers of every component and option, and what Rust's library
makes of random texts and ids. Made with tokenizers 0.23.3 and sentencepiece 0.2.3:

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf
    python scripts/goldens/tokenizer-goldens.py

With a seed and a number as arguments, other and more tokenizers.
"""

import base64
import io
import json
import os
import random
import sys
import tempfile

import sentencepiece
from golden_texts import POOL, REGEX
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import Tokenizer

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 37
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 25
R = random.Random(SEED)


def small_map():
    """A Precompiled map made by SentencePiece from a few rules."""
    rules = {
        "A": "a",
        "B": "bb",
        "\u0301": "",
        "\uff21": "A",
        "\u00bd": "1/2",
        "\u200d": " ",
        "fi": "\ufb01",
        "\u4e2d": "\u4e00\u4e00",
    }
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", delete=False) as file:
        for source, target in rules.items():
            code = lambda text: " ".join("%X" % ord(c) for c in text)
            file.write(f"{code(source)}\t{code(target)}\n")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e a b c ab abc"] * 20),
        model_writer=model,
        vocab_size=12,
        normalization_rule_tsv=file.name,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    parsed = proto.ModelProto.FromString(model.getvalue())
    return base64.b64encode(parsed.normalizer_spec.precompiled_charsmap).decode()


charsmaps = [small_map()]

def text(n=None):
    n = n if n is not None else R.choice([0, 1, 2, 3, 5, 8, 13, 20])
    out = []
    for _ in range(n):
        x = R.random()
        if x < 0.9:
            out.append(R.choice(POOL))
        elif x < 0.97:
            out.append(chr(R.choice([R.randrange(0x20, 0x7F), R.randrange(0xA0, 0x3000)])))
        else:
            c = R.randrange(0x110000)
            if 0xD800 <= c < 0xE000:
                c = 0x41
            out.append(chr(c))
    return "".join(out)


def pattern():
    if R.random() < 0.35:
        return {"String": R.choice([" ", "a", "ab", "▁", ".", "-", "", "  ", "<", "é", "|", "\n", "b"])}
    return {"Regex": R.choice(REGEX)}


BEH = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def normalizer(d=0):
    k = R.choice(
        [
            "Bert", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Replace", "Prepend", "Nmt",
            "Precompiled", "ByteLevel",
        ]
        + (["Sequence"] * 4 if d < 2 else [])
    )
    if k == "Bert":
        return {
            "type": "BertNormalizer",
            "clean_text": flip(),
            "handle_chinese_chars": flip(),
            "strip_accents": R.choice([None, True, False]),
            "lowercase": flip(),
        }
    if k == "Strip":
        return {"type": "Strip", "strip_left": flip(), "strip_right": flip()}
    if k == "Replace":
        return {"type": "Replace", "pattern": pattern(), "content": R.choice(["", "x", " ", "▁", "ab", "é"])}
    if k == "Prepend":
        return {"type": "Prepend", "prepend": R.choice(["▁", " ", "x", "ab"])}
    if k == "Precompiled":
        return {"type": k, "precompiled_charsmap": R.choice(charsmaps)}
    if k == "Sequence":
        return {"type": k, "normalizers": [normalizer(d + 1) for _ in range(R.randrange(4))]}
    return {"type": k}


def flip():
    return R.random() < 0.5


def byte_level():
    return {"type": "ByteLevel", "add_prefix_space": flip(), "trim_offsets": flip(), "use_regex": flip()}


def metaspace():
    return {
        "type": "Metaspace",
        "replacement": R.choice(["▁", "_", "a"]),
        "prepend_scheme": R.choice(["first", "always", "never"]),
        "split": flip(),
    }


def pre(d=0):
    k = R.choice(
        [
            "BertPreTokenizer", "ByteLevel", "Digits", "Metaspace", "Metaspace", "Punctuation", "Split", "Split",
            "Split", "Whitespace", "WhitespaceSplit", "CharDelimiterSplit", "UnicodeScripts", "FixedLength",
        ]
        + (["Sequence"] * 4 if d < 2 else [])
    )
    if k == "ByteLevel":
        return byte_level()
    if k == "Digits":
        return {"type": k, "individual_digits": flip()}
    if k == "Metaspace":
        return metaspace()
    if k == "Punctuation":
        return {"type": k, "behavior": R.choice(BEH)}
    if k == "Split":
        return {"type": k, "pattern": pattern(), "behavior": R.choice(BEH), "invert": flip()}
    if k == "CharDelimiterSplit":
        return {"type": k, "delimiter": R.choice([" ", "a", "é", "😀", "-"])}
    if k == "FixedLength":
        return {"type": k, "length": R.choice([1, 2, 3, 5])}
    if k == "Sequence":
        return {"type": k, "pretokenizers": [pre(d + 1) for _ in range(R.randrange(4))]}
    return {"type": k}


def decoder(d=0):
    k = R.choice(
        ["ByteLevel", "ByteFallback", "WordPiece", "Metaspace", "BPEDecoder", "CTC", "Replace", "Strip", "Fuse"]
        + (["Sequence"] * 5 if d < 2 else [])
    )
    if k == "ByteLevel":
        return byte_level()
    if k == "WordPiece":
        return {"type": k, "prefix": R.choice(["##", "a", ""]), "cleanup": flip()}
    if k == "Metaspace":
        return metaspace()
    if k == "BPEDecoder":
        return {"type": k, "suffix": R.choice(["</w>", "a", "", "▁"])}
    if k == "CTC":
        return {
            "type": k,
            "pad_token": R.choice(["<pad>", "a"]),
            "word_delimiter_token": R.choice(["|", " ", "b"]),
            "cleanup": flip(),
        }
    if k == "Replace":
        return {"type": k, "pattern": pattern(), "content": R.choice(["", "x", " ", "▁", "ab", "é"])}
    if k == "Strip":
        return {
            "type": k,
            "content": R.choice([" ", "a", "▁"]),
            "start": R.choice([0, 1, 2]),
            "stop": 0 if R.random() < 0.7 else R.choice([0, 1]),
        }
    if k == "Sequence":
        return {"type": k, "decoders": [decoder(d + 1) for _ in range(R.randrange(5))]}
    return {"type": k}


BYTES = ["<0x%02X>" % i for i in range(256)]
ALPH = []


def bytes_chars():
    bs = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    cs = bs[:]
    n = 0
    for b in range(256):
        if b not in bs:
            bs.append(b)
            cs.append(256 + n)
            n += 1
    return [chr(c) for c in cs]


ALPH = bytes_chars()


def randtok():
    return "".join(
        R.choice(["a", "b", "c", "d", " ", "▁", "1", "é", "中", "Ġ", "e", "x", "</w>", "##", "."])
        for _ in range(R.choice([1, 2, 2, 3, 4]))
    )


def model():
    k = R.choice(["BPE", "BPE", "BPE", "Unigram", "Unigram", "WordPiece", "WordLevel"])
    if k == "BPE":
        toks = []
        pfx = R.choice(["", "", "##"])
        sfx = R.choice(["", "", "</w>"])
        base = (
            ["a", "b", "c", "d", "e", "x", " ", "▁", "1", "2", "é", "中", ".", "-"]
            + (ALPH if flip() else [])
            + (BYTES if flip() else [])
        )
        if R.random() < 0.3:
            base = [t for t in base if R.random() < 0.8]
        if pfx:
            base += [pfx + t for t in base]
        if sfx:
            base += [t + sfx for t in base]
        toks = list(dict.fromkeys(["<unk>"] + base))
        merges = []
        have = set(toks)
        for _ in range(R.choice([0, 5, 20, 60])):
            l, r = R.choice(toks), R.choice(toks)
            if l == "<unk>" or r == "<unk>":
                continue
            n = len(pfx.encode())
            if n and not r.startswith(pfx):
                continue
            m = l + r[len(pfx) :]
            if m not in have:
                have.add(m)
                toks.append(m)
            merges.append([l, r])
        if R.random() < 0.3:
            for _ in range(5):
                t = randtok()
                if t not in have:
                    have.add(t)
                    toks.append(t)
        if R.random() < 0.5:
            R.shuffle(toks)
        v = {t: i for i, t in enumerate(toks)}
        return {
            "type": "BPE",
            "dropout": R.choice([None, None, 0.0]),
            "unk_token": R.choice([None, "<unk>"]),
            "continuing_subword_prefix": pfx or None,
            "end_of_word_suffix": sfx or None,
            "fuse_unk": flip(),
            "byte_fallback": flip(),
            "ignore_merges": flip(),
            "vocab": v,
            "merges": merges,
        }
    if k == "Unigram":
        toks = ["<unk>"] + (BYTES if flip() else []) + ["a", "b", "c", " ", "▁", "e", "1"]
        for _ in range(R.choice([5, 30])):
            toks.append(randtok())
        if R.random() < 0.8:
            toks = list(dict.fromkeys(toks))
        return {
            "type": k,
            "unk_id": R.choice([0, 0, 0, None, 3]),
            "vocab": [[t, R.choice([-1.0, -2.5, -3, 0, -R.random() * 10])] for t in toks],
            "byte_fallback": flip(),
        }
    toks = list(
        dict.fromkeys(
            [
                "[UNK]", "a", "b", "c", "##a", "##b", "##c", "ab", "##bc", "é", "中", "1", "##1", ".", "hello",
                "##ing", "the", " ", "▁a",
            ]
            + [randtok() for _ in range(20)]
        )
    )
    if k == "WordPiece":
        return {
            "type": k,
            "unk_token": "[UNK]",
            "continuing_subword_prefix": R.choice(["##", "", "▁"]),
            "max_input_chars_per_word": R.choice([2, 5, 100]),
            "vocab": {t: i for i, t in enumerate(toks)},
        }
    return {"type": k, "unk_token": R.choice(["[UNK]", "[UNK]", "nope"]), "vocab": {t: i for i, t in enumerate(toks)}}


def added(m):
    out = []
    v = m["vocab"]
    n = len(v)
    seen = set()
    for _ in range(R.choice([0, 0, 1, 2, 4])):
        c = R.choice(
            [
                "foo", "<s>", "</s>", "<x>", "[DAY]", "Day", "the", "a", "ab", "é", "É", "ing", "hello", " b", "中",
                "<s", "1",
            ]
        )
        if c in seen:
            continue
        seen.add(c)
        keys = list(v.keys()) if isinstance(v, dict) else [t for t, _ in v]
        idn = keys.index(c) if c in keys else n
        if c not in keys:
            n += 1
        out.append(
            {
                "id": idn,
                "content": c,
                "single_word": R.random() < 0.3,
                "lstrip": R.random() < 0.3,
                "rstrip": R.random() < 0.3,
                "normalized": flip(),
                "special": flip(),
            }
        )
    return out


def post(d=0):
    k = R.choice(["Template", "Template", "Bert", "Roberta", "ByteLevel"] + (["Sequence"] * 2 if d < 1 else []))
    if k == "Bert":
        return {"type": "BertProcessing", "sep": ["[SEP]", 1], "cls": ["[CLS]", 2]}
    if k == "Roberta":
        return {
            "type": "RobertaProcessing",
            "sep": ["</s>", 1],
            "cls": ["<s>", 2],
            "trim_offsets": flip(),
            "add_prefix_space": flip(),
        }
    if k == "ByteLevel":
        return byte_level()
    if k == "Sequence":
        return {"type": k, "processors": [post(d + 1) for _ in range(R.randrange(3))]}
    st = {
        "[CLS]": {"id": "[CLS]", "ids": [1, 2, 3][: R.choice([1, 2, 3])], "tokens": []},
        "[SEP]": {"id": "[SEP]", "ids": [5], "tokens": ["[SEP]"]},
    }
    st["[CLS]"]["tokens"] = ["t"] * len(st["[CLS]"]["ids"])
    S = lambda i: {"Sequence": {"id": i, "type_id": R.choice([0, 1])}}
    T = lambda i: {"SpecialToken": {"id": i, "type_id": R.choice([0, 1])}}
    single = [
        x
        for x in [
            T("[CLS]") if flip() else None,
            S("A"),
            T("[SEP]") if flip() else None,
            S("A") if R.random() < 0.2 else None,
        ]
        if x
    ]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [T("[CLS]"), S("A"), S("B"), T("[SEP]")],
        "special_tokens": st,
    }


def truncation():
    return {
        "max_length": R.choice([0, 1, 2, 3, 5, 8, 12]),
        "strategy": R.choice(["LongestFirst", "LongestFirst", "OnlyFirst", "OnlySecond"]),
        "stride": R.choice([0, 0, 0, 1, 3]),
        **R.choice([{}, {"direction": "Left"}, {"direction": "Right"}]),
    }


def padding():
    return {
        "strategy": R.choice(["BatchLongest", {"Fixed": R.choice([0, 4, 9, 20])}]),
        "direction": R.choice(["Left", "Right"]),
        "pad_to_multiple_of": R.choice([None, None, 0, 4, 7]),
        "pad_id": R.choice([0, 3]),
        "pad_type_id": 0,
        "pad_token": "<pad>",
    }


def cut_model():
    """Shows where words begin: each character has two tokens."""
    letters = ALPH + list(
        "\u2581\u4e00\u4e2d\u65e5\u672c\U0001f600\u30fc\u3072\u3089\u30ab\u30bf\u00bd\u0663 \n\t\u00df\u017f\ufeff\u200d\u3000\u0301"
    )
    tokens = dict.fromkeys(["<unk>"] + [p + c for c in letters for p in ("", "##")])
    return {
        "type": "BPE",
        "unk_token": "<unk>",
        "continuing_subword_prefix": "##",
        "vocab": {t: i for i, t in enumerate(tokens)},
        "merges": [],
    }


def byte_model():
    """Shows a text's bytes."""
    return {
        "type": "BPE",
        "unk_token": "<unk>",
        "byte_fallback": True,
        "vocab": {t: i for i, t in enumerate(["<unk>"] + BYTES)},
        "merges": [],
    }


models = [cut_model(), byte_model()] + [model() for _ in range(8)]


def parts_of(kind):
    chosen = {"added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    place = {"pre": 0, "norm": 1}.get(kind, R.randrange(2, len(models)))
    if kind in ("added", "all"):
        chosen["added_tokens"] = added(models[place])
    if kind == "norm" or (kind in ("added", "all") and R.random() < 0.6):
        chosen["normalizer"] = normalizer()
    if kind == "pre" or (kind == "all" and R.random() < 0.7):
        chosen["pre_tokenizer"] = pre()
    if kind == "post" or (kind == "all" and R.random() < 0.5):
        chosen["post_processor"] = post()
    if kind == "length":
        chosen["post_processor"] = R.choice([None, post(), post()])
        chosen["truncation"] = R.choice([None, truncation(), truncation()])
        chosen["padding"] = R.choice([None, padding()])
    if kind == "dec" or (kind == "all" and R.random() < 0.8):
        chosen["decoder"] = decoder()
    return place, chosen


def tests_of(tokenizer, has_processor):
    tests = []
    for _ in range(6):
        x = text()
        for special in [True, False] if has_processor else [False]:
            try:
                tests.append(
                    {"text": x, "special": special, "expected": tokenizer.encode(x, add_special_tokens=special).ids}
                )
            except BaseException:
                pass  # what the library cannot encode has no right ids
    for _ in range(4):
        ids = [R.randrange(tokenizer.get_vocab_size()) for _ in range(R.choice([1, 2, 4, 9]))]
        try:
            tests.append({"ids": ids, "expected": tokenizer.decode(ids, skip_special_tokens=False)})
        except BaseException:
            pass
    return tests


def length_tests(tokenizer):
    """Of one text and of two; null where the library refuses them."""
    tests = []
    for _ in range(8):
        x, y = text(), R.choice([None, text()])
        special = R.random() < 0.7
        try:
            expected = tokenizer.encode(x, y, add_special_tokens=special).ids
        except BaseException:
            expected = None
        tests.append({"text": x, **({} if y is None else {"pair": y}), "special": special, "expected": expected})
    return tests


os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
cases = []
for kind in ["pre", "norm", "added", "post", "dec", "all", "length"]:
    for _ in range(COUNT):
        place, parts = parts_of(kind)
        try:
            tokenizer = Tokenizer.from_str(json.dumps({"version": "1.0", "model": models[place], **parts}))
        except BaseException:
            continue
        tests = length_tests(tokenizer) if kind == "length" else tests_of(tokenizer, parts["post_processor"])
        cases.append({"model": place, "parts": parts, "tests": tests})
path = os.path.join(os.path.dirname(__file__), "../../src/text/tokenizer/components.json.golden")
with open(path, "w") as file:
    json.dump({"madeWith": "tokenizers 0.23.3", "models": models, "cases": cases}, file, separators=(",", ":"))
    file.write("\n")
