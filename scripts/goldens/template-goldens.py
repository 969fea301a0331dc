"""Makes rendered.json.golden and refused.json.golden of src/text/template: small random templates with what jinja2 3.1.6 renders
in transformers' settings, and those that it refuses. What src/text/template/left-out.ts names is not among them.

    python3 -m venv .venv && .venv/bin/pip install jinja2==3.1.6
    .venv/bin/python scripts/goldens/template-goldens.py

With arguments (a seed and a count) it prints other templates, one JSON line each, to try what the golden files do not hold.
"""
import datetime as dt
import json
import random
import sys

import jinja2
import jinja2.ext
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
class Generation(Extension):
    tags = {"generation"}
    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(lineno)
    @jinja2.pass_eval_context
    def _support(self, context, caller):
        return caller()
def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)
def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
class TemplateDict:
    def __call__(self, *args, **kwargs): return dict(*args, **kwargs)
class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs: TemplateNamespace._check_name(name)
        jinja2.utils.Namespace.__init__(self, attrs)
    def __setitem__(self, name, value):
        TemplateNamespace._check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)
    @staticmethod
    def _check_name(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError("underscore")
class LeftOut(Exception):
    pass
class Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset("%")
    def call_binop(self, context, operator, left, right):
        if isinstance(left, str):
            raise LeftOut()
        return left % right
env = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals.update(raise_exception=raise_exception, strftime_now=lambda f: dt.datetime(2026, 11, 5, 9, 7, 3).strftime(f), dict=TemplateDict(), namespace=TemplateNamespace)

def answer(template):
    """The template with its text, or with the class of what it raises."""
    try:
        return [template, env.from_string(template).render(**json.loads(json.dumps(V))), None]
    except Exception as e:
        return [template, None, type(e).__name__]


# The random templates: values, expressions over them, and statements.
V = {"s": "Hello World", "e": "", "n": None, "i": 7, "z": 0, "m": -3, "f": 2.5, "t": True, "b": False, "l": [3, 1, 2], "el": [], "w": ["b", "A", "c", "a"],
 "d": {"k": 1, "B": "x", "a": None, "items": 5}, "ed": {}, "u": "é😀\u0001\u001c x\ufeff", "q": "it's \"q\"\n\t\\", "html": "<a href='x'>T & co</a> <b>q</b>",
 "lm": [{"r": "user", "c": "Hi", "n": 2, "o": {"p": 1}}, {"r": "bot", "c": None, "n": 1, "o": {"p": 2}}, {"r": "user", "c": "b", "n": 3}], "nest": [[1, [2, "x"]], {"a": {"b": [None, True, 1.5]}}],
 "num": "42", "fl": "3.7", "hex": "0x1F", "ws": "  a b\t c \n", "lines": "l1\nl2\r\n\nl4", "long": "the quick-brown fox jumps over the lazy dog, again and again: supercalifragilistic", "mix": [1, "1", 1.5, True, None]}
names = list(V) + ["undef"]
def lit():
    return R.choice(["1","0","-1","2","3","10","2.0","0.5","1e3","''","'a'","'A b'","' x '","'l'","'o'","none","true","false","[]","{}","[1,2]","['a','b']","{'a':1}","(1,2)","(1,)","()","'%s-%s'","'{}'","'1'","1_000","'\\n'","-2","100"])
def atom(d):
    r = R.random()
    if r < .55: return R.choice(names)
    if r < .9 or d<=0: return lit()
    return "(" + ex(d-1) + ")"
filters = ["abs","capitalize","count","d('D')","default('D', true)","dictsort","dictsort(true)","dictsort(by='value')","dictsort(reverse=true)","e","escape|upper","first","float","float(1.5)","indent","indent(2, true)","indent('>>', blank=true)","indent(3,false,true)","int","int(5)","int(0,16)","items|list","join","join(', ')","join('-', attribute='r')","last","length","list","lower","map('upper')|list","map(attribute='r')|join(',')","map(attribute='o.p', default='?')|list","map('length')|list","map('string')|list","max","min","max(attribute='n')","min(case_sensitive=true)","reject|list","rejectattr('c')|list","reject('none')|list","replace('l','L')","replace('o','0',1)","replace('','-')","reverse|list","reverse","safe","select|list","select('string')|list","select('gt', 1)|list","selectattr('c')|list","selectattr('n','gt',1)|map(attribute='n')|list","selectattr('r','equalto','user')|list|length","selectattr('o.p','defined')|list|length","sort","sort(reverse=true)","sort(case_sensitive=true)","sort(attribute='n')","sort(attribute='r,n')","string","sum","sum(attribute='n')","sum(start=5)","title","tojson","tojson(indent=2)","tojson(ensure_ascii=true)","tojson(separators=(',',':'))","tojson(sort_keys=true)","tojson(indent=0)","trim","trim('H ')","unique|list","unique(true)|list","upper","attr('r')","list|length"]
methods = ["upper()","lower()","strip()","strip('H')","lstrip(' l')","rstrip()","split()","split('l')","split(' ',1)","split(none,1)","rsplit('o',1)","rsplit(maxsplit=1)","splitlines()","splitlines(true)","replace('l','')","replace('l','w',1)","startswith('H')","startswith(('x','He'))","endswith('d')","endswith('ld',2)","find('o')","find('o',5)","rfind('o')","index('z')","count('l')","count('l',3,9)","title()","capitalize()","isdigit()","isalpha()","isalnum()","isspace()","isupper()","islower()","partition(' ')","rpartition('o')","removeprefix('He')","removesuffix('ld')","join(w)","join(['a','b'])","get('k')","get('zz')","get('zz', 3)","items()","keys()","values()","items()|list","keys()|list","copy()","count(1)","index(2)","k","B","a","items","zz","r","append(1)","pop()","update({})","keys","__class__","__class__.x","_x","upper"]
tests = ["defined","undefined","none","string","mapping","sequence","iterable","number","integer","float","boolean","true","false","odd","even","divisibleby(3)","divisibleby 2","eq 1","eq('a')","ne 2","gt 1","lt 3","ge 2","le 2","in [1,2,3]","in('Hello')","sameas none","sameas true","lower","upper","callable","escaped","filter","test","== 1"]
def ex(d):
    r = R.random()
    if d <= 0 or r < .12: return atom(d)
    if r < .32: return atom(d-1) + "|" + R.choice(filters)
    if r < .36: return "(" + ex(d-1) + ")|" + R.choice(filters)
    if r < .52:
        a = R.choice(names) if R.random() < .8 else "(" + ex(d-1) + ")"
        return a + "." + R.choice(methods)
    if r < .62: return ex(d-1) + " is " + R.choice(["","not "]) + R.choice(tests)
    if r < .76: return ex(d-1) + " " + R.choice(["+","-","*","/","//","%","**","~","==","!=","<","<=",">",">=","in","not in","and","or","+","~"]) + " " + ex(d-1)
    if r < .80: return R.choice(["not ","-","+"]) + ex(d-1)
    if r < .84: return ex(d-1) + " if " + ex(d-1) + R.choice([" else " + ex(d-1), ""])
    if r < .93:
        a = R.choice(names)
        k = R.choice(["0","1","-1","'k'","'r'","i","1:","::-1",":2","-2:","::2","1:-1",":-1","5","-9","none","1.0","true","0:3:2","'items'","-1::-2","n:2","[]"])
        return f"{a}[{k}]"
    if r < .96: return "[" + ", ".join(ex(d-1) for _ in range(R.randint(0,3))) + "]"
    if r < .98: return "{" + ", ".join(f"{lit()}: {ex(d-1)}" for _ in range(R.randint(0,2))) + "}"
    return R.choice(["range(5)|list","range(1,10,3)|list","range(3)","range(5,0,-2)|list","dict(a=1,b=i)","dict([('a',1)])","namespace(a=1)","loop","strftime_now('%Y %b %d')","range(3)|sum","range(4)|map('string')|join('+')","range(5)[1:3]","range(5)[-1]","2 < i < 9","1 < i > 3 != 2"])
vn = ["x","y","i","s"]
def st(d):
    r = R.random()
    ws = lambda: R.choice(["","","","-","+"]) ; wv=lambda: R.choice(["","","-"])
    T = lambda b: "{%" + ws() + " " + b + " " + ws() + "%}"
    txt = lambda: R.choice(["","\n","  ","a","\n  ","b \n","\r\n"," c","\t"])
    if d <= 0 or r < .38: return txt() + "{{" + wv() + " " + ex(2 if R.random()<.6 else 1) + " " + wv() + "}}" + txt()
    if r < .52: return txt() + T("if " + ex(1)) + body(d-1) + (T("elif " + ex(1)) + body(d-1) if R.random()<.3 else "") + (T("else") + body(d-1) if R.random()<.5 else "") + T("endif") + txt()
    if r < .74:
        it = R.choice(["l","w","lm","d","d.items()","range(3)","s","undef","el","nest","d|dictsort","lm|map(attribute='r')","l|reverse","'ab'"])
        tg = R.choice(["x","x","x","x, y","i","k, v"])
        fl = R.choice([""," if x"," if x != 1"," if loop is defined"]) if tg=="x" else ""
        inner = body(d-1) + (txt() + "{{ loop." + R.choice(["index","index0","first","last","length","revindex","revindex0","depth","previtem","nextitem","cycle('a','b')","changed(x)"]) + " }}" if R.random()<.6 else "") + (T("if " + R.choice(["loop.index == 2","x","loop.first","loop.last","true"])) + "q" + T(R.choice(["break","continue"])) + T("endif") if R.random()<.3 else "") + body(d-2)
        return txt() + T(f"for {tg} in {it}{fl}") + inner + (T("else") + body(d-1) if R.random()<.25 else "") + T("endfor") + txt()
    if r < .84: return txt() + T("set " + R.choice(vn) + " = " + ex(2)) + txt() + "{{ x }}{{ y }}"
    if r < .87: return T("set ns = namespace(c=0)") + T("for x in l") + T("set ns.c = ns.c + x") + T("endfor") + "{{ ns.c }}{{ ns }}"
    if r < .90: return T("set x" + R.choice(["","|upper","|trim|length"])) + body(d-1) + T("endset") + "[{{ x }}]"
    if r < .95:
        return T("macro mm(" + R.choice(["","x","x, y=2","x='d', y=i","x, y=x"]) + ")") + body(d-1) + R.choice(["{{ x }}{{ y }}","{{ varargs }}","{{ kwargs }}","{{ caller() if caller }}","{{ undef }}"]) + T("endmacro") + "{{ mm(" + R.choice(["","1","1, 2","x=3","1, y=s","1,2,3","z=1","*l","**{'x': 1}"]) + ") }}" + (T("call" + R.choice(["","(q)"]) + " mm(1)") + "C{{ x }}{{ q }}" + T("endcall") if R.random()<.3 else "")
    if r < .96: return T("filter " + R.choice(["upper","indent(2)","trim","replace('a','b')"])) + body(d-1) + T("endfilter")
    if r < .97: return T("with x = " + ex(1)) + body(d-1) + T("endwith")
    if r < .98: return "{#" + ws() + " c " + ws() + "#}" + txt()
    if r < .985: return T("raw") + "{{ x }}{% y %}" + T("endraw")
    if r < .99: return T("generation") + body(d-1) + T("endgeneration")
    return T("for x in nest recursive") + "{{ loop.depth }}{{ loop(x) if x is iterable and x is not string and x is not mapping else x }}" + T("endfor")
def body(d): return "".join(st(d) for _ in range(R.randint(0,2)))

SEED, COUNT = (int(a) for a in sys.argv[1:3]) if len(sys.argv) > 2 else (1, 700)
R = random.Random(SEED)


def snippets():
    """Templates without addresses of objects in their texts, a quarter of them with errors at most."""
    failures = 0
    k = 0
    while True:
        template = "{{ " + ex(2) + " }}" if k % 3 else "".join(st(2) for _ in range(R.randint(1, 3)))
        k += 1
        found = answer(template)
        if found[2] == "LeftOut" or len(template) > 240 or "0x7" in str(found[1]).lower():
            continue
        if found[1] is None:
            failures += 1
            if failures % 4:
                continue
        yield found


made = [found for found, _ in zip(snippets(), range(COUNT))]
if len(sys.argv) > 2:
    print("\n".join(json.dumps(found) for found in made))
else:
    for name, fields, found in [
        ("rendered", {"variables": V}, [one for one in made if one[1] is not None]),
        ("refused", {}, [one for one in made if one[1] is None]),
    ]:
        with open(f"src/text/template/{name}.json.golden", "w") as file:
            print("{", file=file)
            for key, value in fields.items():
                print(f"{json.dumps(key)}: {json.dumps(value)},", file=file)
            print('"snippets": [', file=file)
            print(",\n".join(json.dumps(one) for one in found), file=file)
            print("]}", file=file)
