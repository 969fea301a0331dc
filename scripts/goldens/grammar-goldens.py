"""Random grammars in EBNF with texts that they have and have not: src/text/constraints/grammars.json.golden.

pip install lark==1.3.1
python scripts/goldens/grammar-goldens.py [--count 120] [--seed 1] [--texts 8] [--out src/text/constraints/grammars.json.golden]

Each grammar is written twice: in the EBNF of llama.cpp and xgrammar, and in Lark's. Lark's Earley parser says which texts,
drawn from the grammar, near to such, or of its letters in any order, the grammar has.
"""

import argparse
import json
import random
from pathlib import Path

from lark import Lark
from lark.exceptions import LarkError

LETTERS = 'aabbcxyzZé日😀01_-+. \n"\\('
TEXTS = ["a", "ab", "xyz", "é日", '"', "\\", "\n", "😀", "(", "-", "a b", "01"]
# What is written, whether it is what is left out, and its ranges.
CLASSES = [
    ("[a-c]", False, ["ac"]),
    ("[^a]", True, ["aa"]),
    ("[0-9_]", False, ["09", "__"]),
    ("[é-ü😀]", False, ["éü", "😀😀"]),
    ("[^\\n日\"]", True, ["\n\n", "日日", '""']),
    ("[x-zA-Z-]", False, ["xz", "AZ", "--"]),
    ("[\\\\.]", False, ["\\\\", ".."]),
    ("[\\x61\\u65e5]", False, ["aa", "日日"]),
    (".", True, []),
]
COUNTS = [(0, None, "*"), (1, None, "+"), (0, 1, "?"), (2, 2, "{2}"), (1, 3, "{1,3}"), (0, 2, "{0,2}"), (2, None, "{2,}"), (3, 4, "{3, 4}")]


class Maker:
    """A grammar as trees by rule. Rules that come back to themselves read a letter before they do, and have a way out."""

    def __init__(self, number):
        self.random = random.Random(number)
        self.names = ["root"] + ["part", "other-rule", "x_1", "last"][: self.random.randint(1, 4)]

    def grammar(self):
        return {name: self.rule(index) for index, name in enumerate(self.names)}

    def rule(self, index):
        r = self.random
        options = [self.tree(2, index) for _ in range(r.randint(1, 3))]
        if r.random() < 0.5:
            name = r.choice(self.names)
            options.append(("sequence", [self.leaf(), ("rule", name)] + ([self.leaf()] if r.random() < 0.6 else [])))
        r.shuffle(options)
        return ("choice", options)

    def leaf(self):
        r = self.random
        return ("text", r.choice(TEXTS)) if r.random() < 0.6 else ("class", r.choice(CLASSES))

    def tree(self, depth, index):
        r = self.random
        kind = r.random()
        later = self.names[index + 1 :]
        if depth == 0 or kind < 0.2:
            return ("rule", r.choice(later)) if later and r.random() < 0.6 else self.leaf()
        if kind < 0.55:
            return ("sequence", [self.tree(depth - 1, index) for _ in range(r.randint(1, 3))])
        if kind < 0.75:
            options = [self.tree(depth - 1, index) for _ in range(r.randint(1, 3))]
            return ("choice", options + ([("sequence", [])] if r.random() < 0.2 else []))
        return ("repeat", self.tree(depth - 1, index), r.choice(COUNTS))


def quoted(text, r):
    quote = r.choice("\"'")
    escapes = {"\n": "\\n", "\\": "\\\\", quote: "\\" + quote}
    made = ""
    for letter in text:
        if letter in escapes:
            made += escapes[letter]
        elif r.random() < 0.1:
            point = ord(letter)
            made += r.choice([f"\\U{point:08x}", f"\\u{{{point:x}}}"] + ([f"\\u{point:04x}"] if point < 0x10000 else []))
        else:
            made += letter
    return quote + made + quote


def ebnf(tree, r, inner=False):
    kind = tree[0]
    if kind == "text":
        return quoted(tree[1], r)
    if kind == "class":
        return tree[1][0]
    if kind == "rule":
        return tree[1]
    if kind == "repeat":
        return ebnf(tree[1], r, True) + tree[2][2]
    joined = (" " if kind == "sequence" else r.choice([" | ", "|", "\n  | "] if not inner else [" | "])).join(ebnf(part, r, kind == "sequence" or len(tree[1]) > 1) for part in tree[1])
    if kind == "sequence" and not tree[1]:
        return '""'
    return f"({joined})" if inner else joined


LARK_ESCAPES = {"\n": "\\n", "-": "\\-", "\\": "\\\\"}


def in_lark(tree):
    kind = tree[0]
    if kind == "text":
        return " ".join(json.dumps(letter, ensure_ascii=False) for letter in tree[1])
    if kind == "class":
        _, is_rest, ranges = tree[1]
        both = "".join("-".join(LARK_ESCAPES.get(letter, letter) for letter in pair) for pair in ranges)
        return f"/[{'^' if is_rest else ''}{both}]/" if both else "/[\\s\\S]/"
    if kind == "rule":
        return name_in_lark(tree[1])
    if kind == "repeat":
        least, most, _ = tree[2]
        part = f"({in_lark(tree[1])})"
        if most is None:
            return f"({part}~{least} {part}*)" if least > 0 else f"{part}*"
        return f"{part}~{least}..{most}"
    if kind == "sequence":
        return " ".join(map(in_lark, tree[1]))
    return "(" + " | ".join(map(in_lark, tree[1])) + ")"


def name_in_lark(name):
    return "r_" + name.replace("-", "_")


def drawn(grammar, tree, r, depth=0):
    """A text of a tree, short; None where it would be long."""
    kind = tree[0]
    if depth > 25:
        return None
    if kind == "text":
        return tree[1]
    if kind == "class":
        _, is_rest, ranges = tree[1]
        fitting = [l for l in LETTERS + "mB" if any(low <= l <= high for low, high in ranges) != is_rest]
        return r.choice(fitting)
    if kind == "rule":
        return drawn(grammar, grammar[tree[1]], r, depth + 1)
    if kind == "choice":
        return drawn(grammar, r.choice(tree[1]), r, depth + 1)
    if kind == "repeat":
        least, most, _ = tree[2]
        parts = [tree[1]] * r.randint(least, least + 2 if most is None else most)
    else:
        parts = tree[1]
    texts = [drawn(grammar, part, r, depth + 1) for part in parts]
    return None if None in texts else "".join(texts)


def changed(text, r):
    at = r.randrange(len(text) + 1)
    kind = r.random()
    if kind < 0.4:
        return text[:at] + text[at + 1 :]
    if kind < 0.7:
        return text[:at] + r.choice(LETTERS) + text[at:]
    return text[:at] + r.choice(LETTERS) + text[at + 1 :]


def has(parser, text):
    try:
        parser.parse(text)
        return True
    except LarkError:
        return False


def case_of(number, count):
    r = random.Random(number)
    grammar = Maker(number).grammar()
    rules = "\n".join(f"{name} ::= {ebnf(tree, r)}" + (" # a rule" if r.random() < 0.2 else "") for name, tree in grammar.items())
    own = "\n".join(f"{name_in_lark(name)}: {in_lark(tree)}" for name, tree in grammar.items())
    parser = Lark(own, start="r_root", parser="earley", lexer="dynamic_complete", ambiguity="forest")
    texts = {text for _ in range(3 * count) if (text := drawn(grammar, grammar["root"], r)) is not None and len(text) < 40}
    some = r.sample(sorted(texts), min(count, len(texts)))
    others = [changed(text, r) for text in some for _ in range(2)]
    others += ["".join(r.choice(LETTERS) for _ in range(r.randint(0, 4))) for _ in range(count)]
    found = {text: has(parser, text) for text in some + others}
    for text in some:
        assert found[text], (number, rules, text)
    limited = lambda is_of: sorted(text for text in found if found[text] is is_of)
    valid, invalid = limited(True), limited(False)
    return {"ebnf": rules, "valid": sorted(r.sample(valid, min(count, len(valid)))), "invalid": sorted(r.sample(invalid, min(count, len(invalid))))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--out", default=str(Path(__file__).parents[2] / "src/text/constraints/grammars.json.golden"))
    options = parser.parse_args()
    cases = [case_of(options.seed * 1_000_000 + index, options.texts) for index in range(options.count)]
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    Path(options.out).write_text('{"from": "scripts/goldens/grammar-goldens.py --count %d --seed %d --texts %d: lark 1.3.1",\n"cases": [\n%s\n]}\n' % (options.count, options.seed, options.texts, lines))


if __name__ == "__main__":
    main()
