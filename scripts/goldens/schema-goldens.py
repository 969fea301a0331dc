"""Random JSON schemas with texts that are valid and invalid: src/text/constraints/schemas.json.golden.

pip install hypothesis-jsonschema==0.23.1 hypothesis==6.98.0 'jsonschema[format]==4.26.0' regress==2026.9.1
python scripts/goldens/schema-goldens.py [--count 60] [--seed 1] [--instances 20] [--out src/text/constraints/schemas.json.golden]

hypothesis-jsonschema draws valid values of each schema; jsonschema says of these, and of values that were changed or drawn
for others, whether they are valid, with expressions as ECMA-262 has them, which regress reads. Objects are written with their
keys in the order of NAMES, as the schemas name them, and numbers of VALUES as JavaScript writes them.
"""

import argparse
import json
import math
import random
import sys
import warnings
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis_jsonschema import from_schema
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend
from regress import Regex

warnings.simplefilter("ignore")

NAMES = ["a", "b", "name", "a b", "kind", "ünï", 'quo"te', "items", "n", "next", "x", "zz"]
PATTERNS = [
    "^[a-z]{1,8}$",
    "^[0-9]{3}-[0-9]{2}$",
    "^(red|green|blue)( dark)?$",
    "[A-Z][a-z]{2,6} [0-9]+",
    "^é[^x]$",
    "^.{2,5}$",
    "^[^\\n\"]*$",
    "^(ab|cd)*$",
    "[\\s\\S]",
    "^[\\w.-]+@[\\w-]+\\.[a-z]{2,}$",
    "^\\S+( \\S+)*$",
    "^(?=.*[0-9])(?=.*[a-z])[a-z0-9]+$",
    "^[€-￿]+$",
    "\\\\|/",
    "^[😀-😅]{1,3}$",
    "^$|^x",
]
FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "hostname", "uri", "uri-reference", "duration", "json-pointer"]
VALUES = ["yes", "no", "", 0, 1, -3, 2.5, 1e-7, None, True, False, "ß\n", "\\\"/", "😀", [1, "a", []], {"a": None, "b": [{"n": 1}]}, {}, "1"]


class Maker:
    def __init__(self, number):
        self.random = random.Random(number)

    def schema(self, depth=2):
        r = self.random
        makers = [self.string] * 4 + [self.number] * 2 + [self.integer] * 2 + [self.values, self.simple, self.untyped]
        if depth > 0:
            makers += [self.object] * 4 + [self.array] * 3 + [self.union] * 2 + [self.both, self.reference]
        return r.choice(makers)(depth)

    def lengths(self):
        r = self.random
        found = {}
        if r.random() < 0.6:
            found["minLength"] = r.choice([0, 1, 2, 3, 5, 10])
        if r.random() < 0.6:
            found["maxLength"] = found.get("minLength", 0) + r.choice([0, 1, 2, 5, 20, 40])
        return found

    def string(self, depth):
        r = self.random
        kind = r.random()
        made = {"type": "string"}
        if kind < 0.35:
            made["pattern"] = r.choice(PATTERNS)
        elif kind < 0.7:
            made["format"] = r.choice(FORMATS)
        if kind > 0.7 or r.random() < 0.4:
            made.update(self.lengths())
        return made

    def bounds(self, scale):
        r = self.random
        made = {}
        low = r.randint(-(10**scale), 10**scale)
        high = low + r.randint(0, 10**scale)
        if r.random() < 0.6:
            made[r.choice(["minimum", "exclusiveMinimum"])] = low
        if r.random() < 0.6:
            made[r.choice(["maximum", "exclusiveMaximum"])] = high
        return made

    def integer(self, depth):
        r = self.random
        made = {"type": "integer", **self.bounds(r.choice([1, 2, 3, 6, 15, 20, 30]))}
        # Larger whole numbers are others to JavaScript's reader.
        made = {key: value if key == "type" or abs(value) < 2**53 else int(float(value)) for key, value in made.items()}
        if r.random() < 0.3:
            made["multipleOf"] = r.choice([2, 3, 7, 10, 25, 64, 1000, 12345])
        return made

    def number(self, depth):
        r = self.random
        made = {"type": "number"}
        for key, value in self.bounds(r.choice([1, 2, 4])).items():
            made[key] = value / r.choice([1, 4, 10, 100, 1000])
        if r.random() < 0.25:
            made["multipleOf"] = r.choice([0.5, 0.25, 2, 3, 0.125, 10])
        return made

    def values(self, depth):
        r = self.random
        return {"const": r.choice(VALUES)} if r.random() < 0.3 else {"enum": r.sample(VALUES, r.randint(1, 5))}

    def simple(self, depth):
        return {"type": self.random.choice(["boolean", "null", ["integer", "null"], ["string", "boolean"]])}

    def untyped(self, depth):
        r = self.random
        return r.choice([{"minLength": 2}, {"maximum": 3}, {"pattern": "^[a-z]*$"}, {"maxItems": 1}, {"type": ["string", "integer"], "minimum": 3, "maxLength": 2}])

    def object(self, depth, names=NAMES):
        r = self.random
        chosen = [name for name in names if r.random() < 3 / len(names)]
        made = {
            "type": "object",
            "properties": {name: self.schema(depth - 1) for name in chosen},
            "required": [name for name in chosen if r.random() < 0.6],
            "additionalProperties": False,
        }
        if r.random() < 0.25:
            made["additionalProperties"] = self.schema(0)
        if not chosen and r.random() < 0.5:
            made["propertyNames"] = {"pattern": "^[k-p][0-9]?$"}
            made["additionalProperties"] = self.schema(0)
        return made

    def array(self, depth):
        r = self.random
        if r.random() < 0.25:
            made = {"type": "array", "prefixItems": [self.schema(depth - 1), self.schema(depth - 1)]}
            made["items"] = r.choice([False, self.schema(0)])
        else:
            made = {"type": "array", "items": self.schema(depth - 1)}
        if r.random() < 0.5:
            made["minItems"] = r.randint(0, 2)
        if r.random() < 0.5:
            made["maxItems"] = made.get("minItems", 0) + r.randint(0, 3)
        return made

    def union(self, depth):
        r = self.random
        if r.random() < 0.6:
            return {"anyOf": [self.schema(depth - 1) for _ in range(r.randint(1, 3))]}
        branch = lambda kind: {
            "type": "object",
            "properties": {"kind": {"const": kind}, "n": self.schema(depth - 1)},
            "required": ["kind", "n"],
            "additionalProperties": False,
        }
        return {"oneOf": [branch("a"), branch("b")]}

    def both(self, depth):
        r = self.random
        return r.choice(
            [
                {"allOf": [{"type": "string", "pattern": r.choice(PATTERNS)}, self.lengths()]},
                {"allOf": [{"type": "string", "pattern": "^[a-z]*$"}, {"pattern": "b"}, {"maxLength": 9}]},
                {"allOf": [{"type": "integer", "multipleOf": 6}, {"multipleOf": 4, "minimum": -50}]},
                {"allOf": [{"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"maximum": 5, "minLength": 1}]},
                {"enum": VALUES, "type": r.choice(["string", "number"]), "maximum": 1, "minLength": 1},
            ]
        )

    def reference(self, depth):
        node = {
            "type": "object",
            "properties": {"n": self.schema(0), "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["n", "next"],
            "additionalProperties": False,
        }
        return {"$ref": "#/$defs/node", "$defs": {"node": node}}

    def whole(self):
        schema = self.schema()
        # References are from the whole.
        if "$ref" not in schema and "#/$defs" in json.dumps(schema):
            schema = {"$defs": {"node": find_node(schema)}, **schema}
        return schema


def find_node(schema):
    if isinstance(schema, dict):
        if "$defs" in schema:
            return schema["$defs"]["node"]
        schema = list(schema.values())
    if isinstance(schema, list):
        return next((found for found in map(find_node, schema) if found), None)
    return None


def unrolled(schema, node, depth=3):
    """A schema without references: what refers to itself does so a few times."""
    if isinstance(schema, list):
        return [unrolled(own, node, depth) for own in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return unrolled(node, node, depth - 1) if depth > 0 else False
    return {key: unrolled(own, node, depth) for key, own in schema.items() if key != "$defs"}


def values_of(schema, count, number):
    """Values that hypothesis-jsonschema draws; fewer where there are fewer."""
    found = {}

    @seed(number)
    @settings(max_examples=3 * count // 2, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(from_schema(schema))
    def draw(value):
        if len(found) < count:
            found.setdefault(json.dumps(value, sort_keys=True), value)

    draw()
    return list(found.values())


def ordered(value):
    if isinstance(value, list):
        return [ordered(item) for item in value]
    if not isinstance(value, dict):
        return value
    keys = [name for name in NAMES if name in value] + [name for name in value if name not in NAMES]
    return {key: ordered(value[key]) for key in keys}


def changed(value, r):
    """A value near another."""
    if isinstance(value, dict) and value:
        key = r.choice(list(value))
        if r.random() < 0.4:
            return {name: own for name, own in value.items() if name != key}
        return {name: changed(own, r) if name == key else own for name, own in value.items()}
    if isinstance(value, list) and value:
        index = r.randrange(len(value))
        if r.random() < 0.4:
            return value + [value[index]]
        return [changed(own, r) if at == index else own for at, own in enumerate(value)]
    if isinstance(value, str) and value:
        index = r.randrange(len(value))
        return value[:index] + r.choice(["", "x", "0", "é", "-", value[index] * 2]) + value[index + 1 :]
    if isinstance(value, bool) or value is None:
        return r.choice([0, "null", [], {}])
    if isinstance(value, (int, float)):
        return r.choice([value + 1, value * 2, -value, value / 4, value - 1, str(value), value * 1000])
    return r.choice([1, "a", None])


def is_plain(value):
    """Whether a value is one that JSON of JavaScript has."""
    if isinstance(value, str):
        return not any(0xD800 <= ord(character) < 0xE000 for character in value)
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(own) for key, own in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return not isinstance(value, float) or math.isfinite(value)


def check_pattern(validator, pattern, value, schema):
    """Python's own expressions have other classes, ends and dots than ECMA-262's."""
    if isinstance(value, str) and Regex(pattern, "u").find(value) is None:
        yield ValidationError(f"{value!r} does not match {pattern!r}")


Validator = extend(Draft202012Validator, {"pattern": check_pattern})


def is_valid(schema, value):
    return Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).is_valid(value)


def text_of(value, r):
    is_short = r.random() < 0.5
    text = json.dumps(value, ensure_ascii=not is_short, separators=(",", ":") if is_short else None)
    return text.replace("1e-07", "1e-7")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--out", default=str(Path(__file__).parents[2] / "src/text/constraints/schemas.json.golden"))
    options = parser.parse_args()
    cases = []
    number = options.seed
    before = []
    while len(cases) < options.count:
        number += 1
        schema = Maker(number).whole()
        r = random.Random(number)
        try:
            drawn = values_of(unrolled(schema, find_node(schema)), options.instances, number)
        except Exception as error:
            print(number, json.dumps(schema), type(error).__name__, error, file=sys.stderr)
            continue
        values = [ordered(value) for value in drawn if is_plain(value)]
        valid = [value for value in values if is_valid(schema, value)]
        others = [changed(value, r) for value in values] + before
        before = r.sample(values, min(4, len(values)))
        others = [ordered(value) for value in others if is_plain(value)]
        invalid = [value for value in others if not is_valid(schema, value)]
        texts = lambda list: sorted({text_of(value, r) for value in list})
        cases.append({"schema": schema, "valid": texts(valid), "invalid": texts(invalid)})
        if len(cases) % 50 == 0:
            print(len(cases), file=sys.stderr)
    versions = "hypothesis-jsonschema 0.23.1, hypothesis 6.98.0, jsonschema 4.26.0, regress 2026.9.1"
    lines = ",\n".join(json.dumps(case) for case in cases)
    Path(options.out).write_text('{"from": "scripts/goldens/schema-goldens.py --count %d --seed %d --instances %d: %s",\n"cases": [\n%s\n]}\n' % (options.count, options.seed, options.instances, versions, lines))


main()
