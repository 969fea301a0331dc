"""Random grammars in EBNF with texts that are theirs or not, by lark's Earley parser: src/text/constraints/grammars.json.golden.

pip install lark==1.3.1
python scripts/grammar-goldens.py [--count 60] [--seed 1] [--out src/text/constraints/grammars.json.golden]
"""

import argparse
import json
import random
from pathlib import Path

from lark import Lark
from lark.exceptions import UnexpectedInput

LETTERS = ["a", "b", "-", '"', "\\", "é", "日", "😀", "\n"]


class Maker:
    """One grammar, as EBNF and as lark reads it; rules name only those behind them, and `root` itself within brackets."""

    def __init__(self, number):
        self.random = random.Random(number)
        self.names = ["root", "x", "y"]

    def whole(self):
        rules = [self.choice(index, 2) for index in range(len(self.names))]
        ebnf = "\n".join(f"{name} ::= {rule[0]}" for name, rule in zip(self.names, rules))
        lark = "\n".join(f"{name}: {rule[1]}" for name, rule in zip(self.names, rules))
        return ebnf, lark

    def choice(self, index, depth):
        parts = [self.sequence(index, depth) for _ in range(self.random.randint(1, 3))]
        return " | ".join(part[0] for part in parts), " | ".join(part[1] for part in parts)

    def sequence(self, index, depth):
        parts = [self.counted(index, depth) for _ in range(self.random.randint(1, 3))]
        return " ".join(part[0] for part in parts), " ".join(part[1] for part in parts)

    def counted(self, index, depth):
        r = self.random
        ebnf, lark = self.atom(index, depth)
        sign = r.choice(["", "", "", "*", "+", "?", "{2}", "{1,3}"])
        counts = {"{2}": "~2", "{1,3}": "~1..3"}
        return ebnf + sign, lark + counts.get(sign, sign)

    def atom(self, index, depth):
        r = self.random
        kind = r.random()
        if depth > 0 and kind < 0.25:
            ebnf, lark = self.choice(index, depth - 1)
            return f"({ebnf})", f"({lark})"
        if kind < 0.45 and index + 1 < len(self.names):
            name = r.choice(self.names[index + 1 :])
            return name, name
        if kind < 0.5:
            return '"(" root ")"', '"(" root ")"'
        if kind < 0.75:
            text = "".join(r.choice(LETTERS) for _ in range(r.randint(1, 2)))
            return quoted(text), quoted(text)
        return self.characters()

    def characters(self):
        r = self.random
        if r.random() < 0.2:
            return ".", "/[\\s\\S]/"
        members = r.sample(["a-c", "b", "é-ü", "日-本", "😀-😅", "0-9", "\\n", "\\\\"], r.randint(1, 3))
        negative = "^" if r.random() < 0.4 else ""
        text = f"[{negative}{''.join(members)}]"
        return text, f"/{text}/"


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def text_near(r):
    return "".join(r.choice([*LETTERS, "c", "(", ")", "ü", "本", "😅", "7", "a"]) for _ in range(r.randint(0, 6)))


def is_text(parser, text):
    try:
        parser.parse(text)
        return True
    except UnexpectedInput:
        return False


def derived(lark_rules, r):
    """A text of a grammar, by walking through lark's own form of its rules."""
    by_name = {}
    for rule in lark_rules.rules:
        by_name.setdefault(rule.origin.name, []).append(rule.expansion)
    terminals = {terminal.name: terminal.pattern for terminal in lark_rules.terminals}
    out = []
    waiting = ["root"]
    for _ in range(400):
        if not waiting:
            return "".join(out)
        name = waiting.pop()
        if name in terminals:
            out.append(character(terminals[name], r))
            continue
        options = by_name[name]
        shortest = min(options, key=len)
        chosen = shortest if len(waiting) > 12 else r.choice(options)
        waiting.extend(symbol.name for symbol in reversed(chosen))
    return None


def character(pattern, r):
    if pattern.type == "str":
        return pattern.value
    import re

    expression = re.compile(pattern.value, re.DOTALL)
    return r.choice([one for one in "abcéüç日本月😀😅0479\n\\xyzñ-\"" if expression.fullmatch(one)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=str(Path(__file__).parent.parent / "src/text/constraints/grammars.json.golden"))
    options = parser.parse_args()
    cases = []
    number = options.seed
    while len(cases) < options.count:
        number += 1
        r = random.Random(number)
        ebnf, rules = Maker(number).whole()
        earley = Lark(rules, start="root", parser="earley", lexer="dynamic_complete", keep_all_tokens=True)
        texts = {text_near(r) for _ in range(10)}
        texts.update(text for text in (derived(earley, r) for _ in range(12)) if text is not None and len(text) < 60)
        is_of = {text: is_text(earley, text) for text in sorted(texts)}
        cases.append(
            {
                "ebnf": ebnf,
                "valid": [text for text, own in is_of.items() if own],
                "invalid": [text for text, own in is_of.items() if not own],
            }
        )
    lines = ",\n".join(json.dumps(case) for case in cases)
    origin = f"scripts/grammar-goldens.py --count {options.count} --seed {options.seed}: lark 1.3.1"
    Path(options.out).write_text(f'{{"from": "{origin}",\n"cases": [\n{lines}\n]}}\n')


main()
