"""
Writes src/text/tokenizer/unicode-versions.ts: where the tables of characters in Rust's library are older than those of
this JavaScript, found by asking the library for each code point. Made with tokenizers 0.23.3 and a Node of Unicode 17:

    pip install tokenizers==0.23.3
    python scripts/goldens/unicode-versions.py && npm run format
"""

import json
import os
import subprocess
import textwrap

from tokenizers import Regex, normalizers, pre_tokenizers

# Code points without surrogates, and without NUL, which the library's normalizers treat apart.
CODES = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]


def javascript(source):
    """Code points that a class of a JavaScript pattern matches."""
    script = """
        if (process.versions.unicode !== "17.0") throw new Error("expected Unicode 17, found " + process.versions.unicode);
        const found = [], class_ = new RegExp("^[" + process.argv[1] + "]$", "u");
        for (let c = 1; c < 0x110000; c++) if ((c < 0xd800 || c > 0xdfff) && class_.test(String.fromCodePoint(c))) found.push(c);
        console.log(JSON.stringify(found));"""
    return set(json.loads(subprocess.run(["node", "-e", script, source], check=True, capture_output=True).stdout))


def pieces(pre_tokenizer, text):
    return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]


def ranges(codes):
    """Such as "61d 2e43-2e4f"."""
    found = []
    for code in sorted(codes):
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return " ".join("%x" % a if a == b else "%x-%x" % (a, b) for a, b in found)


unassigned = pre_tokenizers.Split(Regex(r"\p{Cn}"), "isolated")
beyond = {c for c in CODES if len(pieces(unassigned, "a" + chr(c))) == 2} - javascript(r"\p{Cn}")

punctuation = pre_tokenizers.Punctuation("isolated")
marked = {c for c in CODES if len(pieces(punctuation, "a" + chr(c))) == 2}
P = javascript(r"\p{P}!-\/:-@\[-`{-~")

bert = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
strip = normalizers.StripAccents()
nonspacing = {c for c in CODES if bert.normalize_str(chr(c)) == ""}
combining = {c for c in CODES if strip.normalize_str(chr(c)) == ""}
Mn = javascript(r"\p{Mn}")
M = javascript(r"\p{M}")

# What has no script stays with what is before it, whatever that is.
by_script = pre_tokenizers.UnicodeScripts()
scriptless = {c for c in CODES if len(pieces(by_script, "a" + chr(c))) == 1 and len(pieces(by_script, "\u4e2d" + chr(c))) == 1}
assigned = set(CODES) - javascript(r"\p{Cn}\p{Co}\p{Script=Unknown}") - {32}

LISTS = [
    ("beyondUnicode16", "Code points that are unassigned for Oniguruma and the regex crate (Unicode 16).", beyond),
    ("notPunctuation", "Punctuation in Unicode 17 that is none in the library.", P - marked),
    ("oncePunctuation", "Punctuation in the library that is none in Unicode 17.", marked - P),
    ("notNonspacing", "Characters of category Mn in Unicode 17 that are no accents for BertNormalizer.", Mn - nonspacing),
    ("onceNonspacing", "Accents for BertNormalizer that are not of category Mn in Unicode 17.", nonspacing - Mn),
    ("notCombining", "Characters of category M in Unicode 17 that are no accents for StripAccents.", M - combining),
    ("onceCombining", "Accents for StripAccents that are not of category M in Unicode 17.", combining - M),
    ("withoutScript", "Characters without a script for UnicodeScripts.", scriptless & assigned),
]

path = os.path.join(os.path.dirname(__file__), "../../src/text/tokenizer/unicode-versions.ts")
with open(path, "w") as file:
    print("/**", file=file)
    print(" * Differences of the Rust library's Unicode tables from Unicode 17, made by scripts/goldens/unicode-versions.py, which queries", file=file)
    print(" * tokenizers 0.23.3 for each code point. The library's newest tables are Unicode 17's, too; others are older and stay so.", file=file)
    print(" */", file=file)
    for name, what, codes in LISTS:
        lines = textwrap.wrap(ranges(codes), 104)
        text = " +\n".join("  " + json.dumps(line + " " * (line != lines[-1])) for line in lines)
        print(f"\n/** {what} */\nexport const {name} =\n{text};", file=file)
