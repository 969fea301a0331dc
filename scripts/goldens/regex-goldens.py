"""
Writes src/text/tokenizer/regex.json.golden: what patterns find in texts when Oniguruma runs them, as Rust's tokenizers
calls it. Made with tokenizers 0.23.3:

    pip install tokenizers==0.23.3
    python scripts/goldens/regex-goldens.py

With a seed and a number as arguments, as many random patterns and texts instead, to compare with.
"""

import json
import os
import random
import sys

from golden_texts import POOL, REGEX
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

# fmt: off
TEXTS = [
    "👩\u200d🚀日本 x² b", "aab ab cd abd", "ß ẞ ſt SS ﬆ STraße", "K kK ÀÉé", "a\nb\r\na", "b\nb a\n", "aa bb ab",
    "  x   y \x85", "ABCabC", "$+!a.b", "aaab",
]
PATTERNS = [
    r"\B.", r"\b\w+", r"a*+a|b", r"(?>a+)b|.", r"(?<=ab|c)d", r"(?<!a)b", r"(?i:ss|st)", r"(?i)\p{Lu}",
    r"(?i)[a-z&&[^k]]+", r"[[:punct:]]+", r"\p{Punct}", r"a$|^b", r"a\Z", r"(?m:a.b)", r"(a|b)\1",
    r"\s+(?!\S)|\s+", r"a(?i)b|c", r"a{,2}b", r"a{2}?", r"\R|\h+",
]
# fmt: on


def random_pattern(r, depth=3):
    """A pattern put together from atoms, groups, quantifiers and alternatives."""
    kind = r.random()
    if depth == 0 or kind < 0.35:
        return r.choice(
            ["a", "b", "A", "é", "ß", "K", ".", r"\s", r"\S", r"\w", r"\W", r"\d", r"\h", r"\p{L}", r"\p{N}", r"\P{L}"]
            + [r"\p{Lu}", "[ab]", "[^a]", "[a-z&&[^b]]", r"[\s\d]", "[[:punct:]]", " ", r"\n", r"\b", "^", "$", "中", r"\R"]
        )
    if kind < 0.5:
        return "(?:" + random_pattern(r, depth - 1) + ")" + r.choice(["*", "+", "?", "{2}", "{1,3}", "*?", "+?", "?+", "*+"])
    if kind < 0.65:
        return "(?:" + "|".join(random_pattern(r, depth - 1) for _ in range(r.choice([2, 3]))) + ")"
    if kind < 0.72:
        return r.choice(["(?=", "(?!", "(?>", "(?i:", "(?m:"]) + random_pattern(r, depth - 1) + ")"
    if kind < 0.75:
        return r.choice(["(?<=", "(?<!"]) + r.choice(["a", "b", r"\s", "ab", "é|b", r"\w"]) + ")"
    if kind < 0.78:
        return "(" + random_pattern(r, depth - 1) + r")\1" if depth == 3 else "a"
    return "".join(random_pattern(r, depth - 1) for _ in range(r.choice([2, 3])))


def found(pattern, texts):
    """Matches in each text, or None where the library refuses the pattern."""
    try:
        split = Split(Regex(pattern), "removed", invert=True)
        return [[piece for piece, _ in split.pre_tokenize_str(text)] for text in texts]
    except BaseException:
        return None


texts, patterns = TEXTS, PATTERNS
if len(sys.argv) > 2:
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    r = random.Random(seed)
    texts = ["".join(r.choice(POOL) for _ in range(r.choice([1, 4, 9, 16]))) for _ in range(20)]
    patterns = REGEX + [random_pattern(r) for _ in range(count)]
made = [(pattern, found(pattern, texts)) for pattern in dict.fromkeys(patterns)]
path = os.path.join(os.path.dirname(__file__), "../../src/text/tokenizer/regex.json.golden")
with open(path, "w") as file:
    note = "tokenizers 0.23.3: Split(Regex(pattern), 'removed', invert=True).pre_tokenize_str(text)"
    kept = [one for one in made if one[1] is not None]
    json.dump({"madeWith": note, "texts": texts, "patterns": kept}, file, separators=(",", ":"))
    file.write("\n")
