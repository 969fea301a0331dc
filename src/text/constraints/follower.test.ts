/** What schemas, expressions and grammars allow can be written, and what they forbid cannot: as others say. */
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { InvalidArgumentError, UnsupportedError } from "../../errors.ts";
import type { Constraint } from "../constraint.ts";
import { byteCharacters } from "../tokenizer/byte-alphabet.ts";
import { compileConstraint } from "./compile.ts";
import { FollowedTexts } from "./followed-texts.ts";
import { GrammarFollower } from "./follower.ts";
import { type Grammar, writeGrammar } from "./grammar.ts";

const read = (name: string) => JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));

/** Whether a text can be written from its first byte to its last. */
function isWritten(grammar: Grammar, text: string): boolean {
  return new GrammarFollower(grammar).after([...new TextEncoder().encode(text)])?.canEnd ?? false;
}

const schemaGrammar = (schema: object | boolean) => compileConstraint({ kind: "jsonSchema", schema });

interface Case {
  readonly schema: object;
  readonly valid: readonly string[];
  readonly invalid: readonly string[];
}

it("schemas have the values that jsonschema accepts, and no others", () => {
  for (const { schema, valid, invalid } of read("schemas.json.golden").cases as Case[]) {
    const grammar = valid.length > 0 ? schemaGrammar(schema) : null;
    // Larger multiples than floating point tells apart are left out.
    const isLeftOut = (text: string) => JSON.stringify(schema).includes("multipleOf") && /\d{16}|e\+/.test(text);
    const wrong = grammar
      ? [
          ...valid.filter((text) => !isWritten(grammar, text) && !isLeftOut(text)),
          ...invalid.filter((text) => isWritten(grammar, text)),
        ]
      : [];
    expect(wrong, JSON.stringify(schema)).toEqual([]);
  }
}, 120_000);

describe("references to schemas that accept nothing", () => {
  const never = { never: { allOf: [{ type: "string" }, { type: "null" }] } };
  const toNever = { $ref: "#/$defs/never" };
  // Each needs another of its kind.
  const endless = { list: { type: "object", properties: { next: { $ref: "#/$defs/list" } }, required: ["next"] } };
  const both = {
    a: { type: "object", properties: { b: { $ref: "#/$defs/b" }, c: false }, required: ["b", "c"] },
    b: { anyOf: [{ $ref: "#/$defs/a" }, { type: "array", items: { $ref: "#/$defs/b" }, maxItems: 2 }] },
  };
  it.each<[schema: object, valid: string[], invalid: string[]]>([
    [{ type: "array", prefixItems: [toNever], $defs: never }, ["[]"], ["[null]", '["a"]']],
    [{ type: "array", prefixItems: [{ const: 1 }, toNever], $defs: never }, ["[]", "[1]"], ["[1,1]"]],
    [{ type: "array", items: toNever, $defs: never }, ["[]"], ["[1]"]],
    [{ type: "object", properties: { a: toNever, b: { const: 1 } }, $defs: never }, ["{}", '{"b":1}'], ['{"a":1}']],
    [{ anyOf: [toNever, { const: 1 }], $defs: never }, ["1"], ['"a"', "null"]],
    [{ anyOf: [{ $ref: "#/$defs/list" }, { type: "null" }], $defs: endless }, ["null"], ["{}"]],
    [{ type: "array", items: { $ref: "#/$defs/list" }, $defs: endless }, ["[]"], ["[{}]"]],
    [
      { type: "array", items: { $ref: "#/$defs/b" }, $defs: both },
      ["[]", "[[]]", "[[[],[[]]]]"],
      ["[{}]", '[{"b":[]}]'],
    ],
  ])("%j", (schema, valid, invalid) => {
    const grammar = schemaGrammar(schema);
    expect(valid.filter((text) => !isWritten(grammar, text))).toEqual([]);
    expect(invalid.filter((text) => isWritten(grammar, text))).toEqual([]);
  });

  it.each([
    [{ ...toNever, $defs: never }],
    [{ $ref: "#/$defs/list", $defs: endless }],
    [{ type: "array", items: toNever, minItems: 1, $defs: never }],
    [{ type: "object", properties: { a: { $ref: "#/$defs/list" } }, required: ["a"], $defs: endless }],
  ])("alone: %j", (schema) => {
    expect(() => schemaGrammar(schema)).toThrow("schema: expected one that accepts a value");
  });
});

const BIGNUM = Number("12345678910111213141516171819202122232425262728293031");

/** Values of JSON-Schema-Test-Suite that answers leave out on purpose, as docs/structured-output.md says. */
const LEFT_OUT: Readonly<Record<string, readonly unknown[]>> = {
  // Members that a schema does not name.
  "additionalProperties are allowed by default": [{ foo: 1, bar: 2, quux: true }],
  "object properties validation": [{ quux: [] }],
  // Members in another order.
  allOf: [{ foo: "baz", bar: 2 }],
  "allOf with base schema": [{ foo: "quux", bar: 2, baz: null }],
  "anyOf complex types": [{ foo: "baz", bar: 2 }],
  "const with object": [{ baz: "bax", foo: "bar" }],
  // Integers with an exponent, as JavaScript writes the largest.
  integer: [BIGNUM, -BIGNUM],
  "all integers are multiples of 0.5, if overflow is handled": [1e308],
};
/** Punycode is not read: what follows `xn--` may be any label. */
const PUNYCODE = "validation of A-label (punycode) host names";

it("schemas have the values that JSON-Schema-Test-Suite accepts, and no others", () => {
  let values = 0;
  let refused = 0;
  for (const { file, about, schema, valid, invalid } of read("json-schema-test-suite.json.golden").cases) {
    let grammar: Grammar;
    try {
      grammar = schemaGrammar(schema);
    } catch (error) {
      if (error instanceof InvalidArgumentError) expect(valid, `${file}: ${about}`).toEqual([]);
      else expect(error).toBeInstanceOf(UnsupportedError);
      refused++;
      continue;
    }
    const missing = valid.filter((value: unknown) => !isWritten(grammar, JSON.stringify(value)));
    const others = invalid.filter((value: unknown) => isWritten(grammar, JSON.stringify(value)));
    expect(missing, `${file}: ${about}`).toEqual(LEFT_OUT[about] ?? []);
    if (about !== PUNYCODE) expect(others, `${file}: ${about}`).toEqual([]);
    values += valid.length + invalid.length;
  }
  expect(values).toBeGreaterThan(1100);
  expect(refused).toBeLessThan(260);
}, 120_000);

/** Parts of expressions that may be joined in any way. */
const atoms = fc.constantFrom(
  ...[
    "a",
    "b",
    "\\d",
    "\\w",
    "\\W",
    ".",
    "\\s",
    "[^a]",
    "[a-cé]",
    "[^\\n]",
    "\\S",
    "é",
    "日",
    "[日-本]",
    "\\p{L}",
    "\\P{Lu}",
  ],
  ...["😀", "[😀-😅]", "[\\s\\S]", "\\u{e9}", "\\x41", "-", "[\\w.-]", "[\\d\\S]"],
);
const anchors = fc.constantFrom("^", "$", "\\b", "\\B");
const counted = (part: string) => (count: string) => `${part}${count}`;
const counts = fc.constantFrom("", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?");
const expressions = fc.letrec<{ whole: string }>((tie) => ({
  whole: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.tuple(atoms, counts).map(([atom, count]) => counted(atom)(count)),
    anchors,
    fc.tuple(tie("whole"), tie("whole")).map(([a, b]) => a + b),
    fc.tuple(tie("whole"), tie("whole"), counts).map(([a, b, count]) => counted(`(${a}|${b})`)(count)),
  ),
})).whole;
const looks = fc
  .tuple(fc.constantFrom("(?=", "(?!"), expressions, expressions)
  .map(([look, a, b]) => `^${look}${a})${b}`);
const letters = fc.constantFrom(...'aabbcé日本😀😅A1_- \n."\\');
const someText = fc.array(letters, { maxLength: 6 }).map((all) => all.join(""));

describe("an expression", () => {
  it("has the texts that JavaScript's matches", () => {
    fc.assert(
      fc.property(fc.oneof(expressions, looks), fc.array(someText, { minLength: 8, maxLength: 8 }), (pattern, all) => {
        const [whole, anywhere] = [new RegExp(`^(?:${pattern})$`, "u"), new RegExp(pattern, "u")];
        for (const [constraint, isMatch, textOf] of [
          [{ kind: "regex", pattern }, (text: string) => whole.test(text), (text: string) => text],
          [
            { kind: "jsonSchema", schema: { type: "string", pattern } },
            (text: string) => anywhere.test(text),
            JSON.stringify,
          ],
        ] as const) {
          const grammar = grammarOrNull(constraint);
          if (grammar !== "refused")
            for (const text of all)
              expect(grammar !== null && isWritten(grammar, textOf(text)), text).toBe(isMatch(text));
        }
      }),
      { numRuns: 50, seed: 7 },
    );
  });

  it("beside a length has the texts of both", () => {
    const bounds = fc.tuple(fc.nat(4), fc.nat(4)).map(([min, more]) => ({ minLength: min, maxLength: min + more }));
    fc.assert(
      fc.property(expressions, bounds, fc.array(someText, { minLength: 8, maxLength: 8 }), (pattern, lengths, all) => {
        const grammar = grammarOrNull({ kind: "jsonSchema", schema: { type: "string", pattern, ...lengths } });
        const expression = new RegExp(pattern, "u");
        if (grammar !== "refused")
          for (const text of all) {
            const { length } = [...text];
            const isOf = expression.test(text) && length >= lengths.minLength && length <= lengths.maxLength;
            expect(grammar !== null && isWritten(grammar, JSON.stringify(text)), text).toBe(isOf);
          }
      }),
      { numRuns: 30, seed: 7 },
    );
  });
});

/** Parts of grammars, and the expressions of their texts. */
type Pair = readonly [ebnf: string, expression: string];
const ruleOf: Pair = ["part", '(?:b|日[0-9]?|\\n"{1,2})'];
const rule = 'part ::= "b" | "日" [0-9]? | "\\n" "\\""{1,2}';
const units = fc.constantFrom<Pair>(
  ...([
    ruleOf,
    ['"a"', "a"],
    ['"é日"', "é日"],
    [".", "[\\s\\S]"],
    ...["[a-c]", "[^a]", "[^\\n日]", "[é-ü😀]", "[\\\\.-]", "[A-Z0-9_]"].map((own): Pair => [own, own]),
  ] as const),
);
const grammars = fc.letrec<{ whole: Pair }>((tie) => ({
  whole: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.tuple(units, counts).map(([[a, b], count]): Pair => [a + plain(count), `(?:${b})${plain(count)}`]),
    fc.tuple(tie("whole"), tie("whole")).map(([a, b]): Pair => [`${a[0]} ${b[0]}`, a[1] + b[1]]),
    fc
      .tuple(tie("whole"), tie("whole"), counts)
      .map(([a, b, count]): Pair => [`(${a[0]} | ${b[0]})${plain(count)}`, `(?:${a[1]}|${b[1]})${plain(count)}`]),
  ),
})).whole;
const plain = (count: string) => count.replace("*?", "*");

it("a grammar has the texts that an expression of the same parts matches", () => {
  fc.assert(
    fc.property(grammars, fc.array(someText, { minLength: 12, maxLength: 12 }), ([ebnf, expression], all) => {
      const grammar = compileConstraint({ kind: "grammar", ebnf: `root ::= ${ebnf}\n${rule}` });
      const nested = compileConstraint({ kind: "grammar", ebnf: `root ::= "(" root ")" | ${ebnf}\n${rule}` });
      const whole = new RegExp(`^(?:${expression})$`, "u");
      for (const text of all) {
        expect(isWritten(grammar, text), text).toBe(whole.test(text));
        expect(isWritten(nested, `((${text}))`), text).toBe(
          [text, `(${text})`, `((${text}))`].some((one) => whole.test(one)),
        );
      }
    }),
    { numRuns: 60, seed: 7 },
  );
});

it("grammars have the texts that Lark's parser accepts, and no others", () => {
  for (const { ebnf, valid, invalid } of read("grammars.json.golden").cases) {
    const grammar = compileConstraint({ kind: "grammar", ebnf });
    const missing = valid.filter((text: string) => !isWritten(grammar, text));
    const others = invalid.filter((text: string) => isWritten(grammar, text));
    expect({ missing, others }, ebnf).toEqual({ missing: [], others: [] });
  }
});

it("a text that a grammar reads in very many ways is followed", () => {
  const ebnf = 'root ::= item+ "."\nitem ::= end | "a" item | "a" item item\nend ::= "a"? more?\nmore ::= "b"?';
  const grammar = compileConstraint({ kind: "grammar", ebnf });
  for (const text of ["a".repeat(60), "aab".repeat(30)]) {
    expect(isWritten(grammar, `${text}.`)).toBe(true);
    expect(isWritten(grammar, text)).toBe(false);
    expect(isWritten(grammar, `${text}c.`)).toBe(false);
  }
});

/** Null for what nothing is of. */
function grammarOrNull(constraint: Constraint): Grammar | null | "refused" {
  try {
    return compileConstraint(constraint);
  } catch (error) {
    if (error instanceof UnsupportedError) return "refused";
    if (error instanceof InvalidArgumentError && /that a text matches|accepts a value/.test(error.message)) return null;
    throw error;
  }
}

/** A tokenizer whose tokens are all bytes, and pieces of some texts. */
function pieces(texts: readonly string[]): { bytes: number[][]; size: number } {
  const found = new Set(texts.flatMap((text) => [2, 3, 5].flatMap((length) => cut(text, length))));
  const all = [
    ...Array.from({ length: 256 }, (_, byte) => [byte]),
    ...[...found].map((key) => key.split(",").map(Number)),
  ];
  return { bytes: all, size: all.length + 1 };
}

function cut(text: string, length: number): string[] {
  const bytes = [...new TextEncoder().encode(text)];
  return Array.from({ length: Math.ceil(bytes.length / length) }, (_, i) =>
    bytes.slice(i * length, (i + 1) * length).join(),
  ).filter((key) => key.includes(","));
}

const masked: readonly (readonly [Constraint, string])[] = [
  [{ kind: "regex", pattern: "[\\s\\S]" }, "日"],
  [{ kind: "regex", pattern: "[^é]{3}" }, "ê日x"],
  [{ kind: "regex", pattern: "a[^“]?[\\w\\W]{2}" }, "a日é😀"],
  [{ kind: "regex", pattern: "^(?=.*\\d)\\p{L}+\\b.*$" }, "épée 1"],
  [{ kind: "regex", pattern: "[😀-😅]\\-[\\uD83D\\uDE00]" }, "😁-😀"],
  [{ kind: "grammar", ebnf: 'root ::= "a" . [^é] [à-ü]* "\\n"' }, "a日êùü\n"],
  [{ kind: "json" }, '{"a": [1.5e-7, "é\\ud83d\\ude00", {}], "b": null}'],
  ...[
    [{ type: "string", pattern: '^[^"]\\\\.*"$', minLength: 4 }, '"日\\\\\\u00e9x\\""'],
    [{ type: "string", format: "date-time", maxLength: 24 }, '"2024-02-29T23:59:60.25Z"'],
    [{ type: "string", format: "uri" }, '"https://u@[::1]:8080/a%20b?c#d"'],
    [{ type: "string", format: "iri" }, '"https://例え.テスト/é"'],
    [{ type: "string", format: "email" }, '"\\"a b\\"@ex-ample.org"'],
    [{ type: "number", minimum: 0, maximum: 10, multipleOf: 0.01 }, "9.25"],
    [{ type: "integer", minimum: 1e20 }, "123456789012345678901"],
    [{ type: "integer", minimum: -12, maximum: 117, multipleOf: 3 }, "105"],
    [
      { type: "object", properties: { é: {} }, additionalProperties: { type: "null" } },
      '{"\\u00e9": 1, "\\u00ea": null}',
    ],
    [{ const: { a: ["é", 1e21] } }, '{"a":["\\u00e9", 1e+21]}'],
  ].map(([schema, text]): [Constraint, string] => [{ kind: "jsonSchema", schema: schema as object }, text as string]),
];

it("masks have all tokens that may come", async () => {
  const { bytes, size } = pieces(masked.map(([, text]) => text));
  const vocabulary = { bytes: bytes.map((own) => own.map((byte) => byteCharacters[byte]!).join("")), size };
  const texts = new FollowedTexts({
    ...vocabulary,
    bytes: [...vocabulary.bytes, ""],
    endIds: [size - 1],
    keptGrammars: 4,
  });
  for (const [constraint, text] of masked) {
    const grammar = compileConstraint(constraint);
    const follower = new GrammarFollower(grammar);
    const followed = await texts.begin(writeGrammar(grammar));
    for (const byte of [...new TextEncoder().encode(text), null]) {
      const { mask } = await texts.mask(followed, 60_000);
      const has = (id: number) => ((mask[id >>> 5]! >>> (id & 31)) & 1) === 1;
      const missing = bytes.filter((own, id) => follower.after(own) !== null && !has(id));
      expect(missing, `${JSON.stringify(constraint)} ${text} ${byte}`).toEqual([]);
      if (byte === null) expect(follower.place.canEnd && has(size - 1), text).toBe(true);
      else {
        follower.place = follower.after([byte])!;
        expect(follower.place, `${JSON.stringify(constraint)} ${text}`).not.toBeNull();
        followed.taken.push(byte);
      }
    }
    texts.end(followed);
  }
}, 120_000);
