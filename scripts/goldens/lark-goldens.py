"""Grammars in Lark's form with texts that they have and have not: src/server/lark.json.golden.

pip install lark==1.3.1
python scripts/goldens/lark-goldens.py [--out src/server/lark.json.golden]

Lark's Earley parser says which texts a grammar has.
"""

import argparse
import json
from pathlib import Path

from lark import Lark
from lark.exceptions import LarkError

PATCH = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
PATCHES = [
    "*** Begin Patch\n*** Add File: a.py\n+x = 1\n+\n*** End Patch\n",
    "*** Begin Patch\n*** Add File: a.py\n+x = 1\n*** End Patch",
    "*** Begin Patch\n*** Delete File: é 日.txt\n*** End Patch\n",
    '*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@ def f("x"):\n-a\\b\n+c\n d\n*** End of File\n*** End Patch\n',
    "*** Begin Patch\n*** Update File: a\n*** Delete File: b\n*** End Patch\n",
    "*** Begin Patch\n*** End Patch\n",
    "*** Begin Patch\n*** Add File: \n+x\n*** End Patch\n",
    "*** Begin Patch\n*** Add File: a\nx\n*** End Patch\n",
    "*** Begin Patch\n*** Add File: a\n+x\n",
]
CASES = [
    ("patches of files", PATCH, PATCHES),
    (
        "sums and products",
        "start: expr\nexpr: term (SP ADD SP term)* -> add\n| term\nterm: factor (SP MUL SP factor)* -> mul\n| factor\n"
        'factor: INT\nSP: " "\nADD: "+"\nMUL: "*"\n%import common.INT\n',
        ["1", "4 + 4", "1 + 2 * 33", "1+2", "1 +", "", " 1", "12 * 3 * 4 + 5"],
    ),
    (
        "left recursion, with white space that is ignored",
        '?start: sum\n?sum: product\n    | sum "+" product   -> add\n    | sum "-" product   -> sub\n'
        '?product: atom\n    | product "*" atom  -> mul\n    | product "/" atom  -> div\n'
        '?atom: NUMBER           -> number\n     | "-" atom         -> neg\n     | NAME             -> var\n     | "(" sum ")"\n'
        "%import common.CNAME -> NAME\n%import common.NUMBER\n%import common.WS_INLINE\n%ignore WS_INLINE\n",
        ["1", " 1 + 2", "(a - 3.5e3) * -b_1", "1  +\t2 ", "1 2", "()", "1 +\n2", "", " "],
    ),
    (
        "a query",
        '// Punctuation\nSP: " "\nCOMMA: ","\nSEMI: ";"\n# Start\n'
        'start: "SELECT" SP columns SP "FROM" SP IDENTIFIER (SP "WHERE" SP filter)? SEMI\n'
        'columns: IDENTIFIER (COMMA SP IDENTIFIER)*\nfilter: IDENTIFIER SP (">" | "=") SP (NUMBER | DATE)\n'
        "IDENTIFIER: /[A-Za-z_][A-Za-z0-9_]*/\nNUMBER: /[0-9]+/\nDATE: /'[0-9]{4}-[0-9]{2}-[0-9]{2}'/\n",
        [
            "SELECT a, b FROM t;",
            "SELECT a FROM t WHERE d = '2026-01-02';",
            "SELECT a FROM t WHERE d > 12;",
            "SELECT a FROM t",
            "select a FROM t;",
            "SELECT 1 FROM t;",
            "SELECT a FROM t WHERE d = '26-01-02';",
        ],
    ),
    (
        "flags, ranges, counts and escapes",
        'start: "yes"i sep ("a".."f")~2 sep HEX~1..2 sep /k.m/i sep /x.y/s sep ESC [tail]\nsep: "|"\n'
        'HEX: "0".."9" | /[a-f]/i\nESC: "\\"\\\\\\n\\t\\u00e9"\ntail.2: "é"+\n',
        [
            'YeS|ab|9|KxM|x\ny|"\\\n\té',
            'yes|fa|Aa|k\nm|xzy|"\\\n\té',
            'yes|fa|Aa|kim|xzy|"\\\n\tééé',
            'no|ab|9|kxm|x y|"\\\n\té',
            'yes|ag|9|kxm|x y|"\\\n\té',
            'yes|ab|999|kxm|x y|"\\\n\té',
            'yes|a|9|kxm|x y|"\\\n\té',
        ],
    ),
    (
        "JSON",
        '?start: value\n?value: object\n| array\n| string\n| SIGNED_NUMBER -> number\n| "true" | "false" | "null"\n'
        'array: "[" [value ("," value)*] "]"\nobject: "{" [pair ("," pair)*] "}"\npair: string ":" value\n'
        "string: ESCAPED_STRING\n%import common (ESCAPED_STRING, SIGNED_NUMBER)\n%import common.WS\n%ignore WS\n",
        ['{"a": [1, -2.5, true]}', "[]", ' { } ', '"a\\"b"', "[1,]", "{a: 1}", '{"a" 1}', "-1e3", '"\n"'],
    ),
    (
        "names that have a meaning elsewhere, comments, empty alternatives",
        'start: root ignored // first\n// between\nroot: "a" | \nignored: ("b" | "c")* C_COMMENT?\n%import common.C_COMMENT\n',
        ["", "a", "abcb", "b/* x **/", "ab/**/", "ba", "/* */*/"],
    ),
]


def has(parser, text):
    try:
        parser.parse(text)
        return True
    except LarkError:
        return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("src/server/lark.json.golden"))
    out = parser.parse_args().out
    cases = []
    for name, grammar, texts in CASES:
        # Its terminals must not be empty, and its alternatives must differ.
        same = grammar.replace("/(.*)/", "[/(.+)/]").replace(")* -> add", ")+ -> add").replace(")* -> mul", ")+ -> mul")
        lark = Lark(same, parser="earley", lexer="dynamic_complete")
        cases.append({"name": name, "grammar": grammar, "texts": {text: has(lark, text) for text in texts}})
    out.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


main()
