/** Masks of a real tokenizer: texts that are drawn at random under a constraint are what it says. */
import { readFileSync } from "node:fs";
import { Ajv2020 as Ajv } from "ajv/dist/2020.js";
import { describe, expect, it, vi } from "vitest";
import { InvalidArgumentError, UnsupportedError } from "../../errors.ts";
import type { Constraint } from "../constraint.ts";
import { createRandom } from "../random.ts";
import { Tokenizer } from "../tokenizer.ts";
import { createMatcher } from "./masks.ts";
import { HONOURED } from "./schema-keywords.ts";

const read = (path: string) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
const byteLevel = new Tokenizer(read("../byte-level-tokenizer.json.golden"), { eos_token: "<|end|>" });
const byteFallback = new Tokenizer(read("../byte-fallback-tokenizer.json.golden"), { eos_token: "</s>" });

/** A text drawn from the masks alone; null where it is long. */
async function draw(constraint: Constraint, seed: number, tokenizer = byteLevel): Promise<string | null> {
  const random = createRandom(seed);
  const size = tokenizer.vocabSize + 5;
  const matcher = await createMatcher(constraint, { tokenizer, size, endIds: [tokenizer.eos!.id] });
  const ids: number[] = [];
  try {
    for (let step = 0; step < 400; step++) {
      const mask = await matcher.mask();
      const masked = Array.from({ length: size }, (_, id) => id).filter((id) => (mask[id >>> 5]! >>> (id & 31)) & 1);
      const allowed = masked.filter((id) => matcher.allows(id));
      expect(allowed.length).toBeGreaterThan(0);
      // An end is taken where there is one, so that texts stay short.
      const mayEnd = allowed.includes(tokenizer.eos!.id) && random.uniform() < 0.5;
      const closing = allowed.filter((id) => /^["\]}]+$/.test(tokenizer.decode([id])));
      const from = closing.length > 0 && random.uniform() < 0.3 ? closing : allowed;
      const id = mayEnd ? tokenizer.eos!.id : from[Math.floor(random.uniform() * from.length)]!;
      expect(id).toBeLessThan(tokenizer.vocabSize);
      matcher.accept(id);
      if (id === tokenizer.eos!.id) {
        expect(matcher.isEnded).toBe(true);
        return tokenizer.decode(ids, { stream: true });
      }
      expect(tokenizer.isSpecial(id)).toBe(false);
      ids.push(id);
    }
    return null;
  } finally {
    matcher.dispose();
  }
}

async function texts(constraint: Constraint, count = 12, tokenizer = byteLevel): Promise<string[]> {
  const found: string[] = [];
  for (let seed = 0; seed < count; seed++) {
    const text = await draw(constraint, seed, tokenizer);
    if (text !== null) found.push(text);
  }
  return found;
}

describe("a constraint", () => {
  it("of some texts gives each of them", async () => {
    const options = ["yes", "no", 'a "quoted" \\ one', "yesterday", "é€😀\n"];
    const found = await texts({ kind: "choice", options }, 60);
    expect(new Set(found)).toEqual(new Set(options));
  });

  it.each([
    "^[a-z]{2,4}-\\d+$",
    "(foo|bar)*\\.(?:x|y)?",
    "\\w+@\\w+\\.(com|org)",
    "[^a-z\\s]{3}",
    "\\u00e9\\x41[\\u{1F600}-\\u{1F64F}]?",
    "a{3}b{2,}c{0,2}",
    "\\p{Lu}\\p{Script=Greek}|\\P{L}",
    "^(?=.*\\d)(?!.*00)\\w{2,4}$",
    "\\bno\\b.?",
    "(a|^b|c$)+",
    "[^\u{e9}]{2}[\\s\\S]",
  ])("of the expression %s gives what it matches as a whole", async (pattern) => {
    const found = await texts({ kind: "regex", pattern });
    expect(found.length).toBeGreaterThan(3);
    const whole = new RegExp(`^(?:${pattern})$`, "u");
    for (const text of found) expect(text).toMatch(whole);
  });

  it("of a grammar gives its texts", async () => {
    const ebnf = `# sums
      root ::= term ("+" term)*   # any number
      term ::= [1-9] [0-9]{0,2} | '(' root ')'`;
    const found = await texts({ kind: "grammar", ebnf }, 30);
    expect(found.length).toBeGreaterThan(10);
    for (const text of found) {
      expect(text).toMatch(/^[0-9+()]+$/);
      expect(Number.isFinite(new Function(`return ${text}`)())).toBe(true);
    }
  });

  it.each([
    ["byte-level", byteLevel],
    ["byte-fallback", byteFallback],
  ])("of JSON gives JSON, by a %s tokenizer", async (_, tokenizer) => {
    const found = await texts({ kind: "json" }, 40, tokenizer);
    expect(found.length).toBeGreaterThan(10);
    for (const text of found) expect(() => JSON.parse(text), text).not.toThrow();
  });

  it.each<[Constraint, string]>([
    [{ kind: "regex", pattern: "(" }, "regex: Invalid regular expression"],
    [{ kind: "grammar", ebnf: "root ::= x" }, "grammar: rule x is not defined"],
    [{ kind: "grammar", ebnf: "root ::= root 'a' | 'b'" }, "grammar: rule root begins with itself"],
    [{ kind: "grammar", ebnf: "root ::= (a\n" }, "grammar: line 2: expected ) but found the end"],
    [{ kind: "grammar", ebnf: "" }, "grammar: expected rules"],
    [{ kind: "grammar", ebnf: "root ::= [z-a]" }, "grammar: line 1: expected rising ranges"],
    [{ kind: "choice", options: [] }, "choice: expected a list"],
    [{ kind: "regex", pattern: "((((((a{8}){8}){8}){8}){8}){8}){8}" }, "regex: expected a grammar of less size"],
    [
      { kind: "regex", pattern: `${"(a|b|c|d){8}".repeat(500)}${"x".repeat(10)}` },
      "regex: expected a grammar of less size",
    ],
    [{ kind: "regex", pattern: "a^b" }, "regex: expected an expression that a text matches"],
    [{ kind: "other" } as never, "constraint: expected a kind"],
    [{ kind: "jsonSchema", schema: null as never }, "schema #: expected a schema but found null"],
    [{ kind: "jsonSchema", schema: { type: "text" } }, "schema #/type: expected object, array"],
    [
      { kind: "jsonSchema", schema: { $ref: "#/$defs/a" } },
      "schema #/$ref: expected a schema at #/$defs/a but found none",
    ],
    [{ kind: "jsonSchema", schema: false }, "schema: expected one that accepts a value"],
  ])("that is none is refused: %#", async (constraint, message) => {
    const making = createMatcher(constraint, { tokenizer: byteLevel, size: byteLevel.vocabSize, endIds: [] });
    await expect(making).rejects.toThrow(InvalidArgumentError);
    await expect(making).rejects.toThrow(message);
  });

  it.each(["(?<!a)b", "(a)\\1", "((?=a)b)*", "a(?=\\b)b"])(
    "of the expression %s is refused by name",
    async (pattern) => {
      const making = createMatcher({ kind: "regex", pattern }, { tokenizer: byteLevel, size: 300, endIds: [] });
      await expect(making).rejects.toThrow(UnsupportedError);
    },
  );
});

const accepted: Record<string, object | boolean> = {
  any: {},
  string: { type: "string" },
  lengths: { type: "string", minLength: 2, maxLength: 5 },
  "many lengths": { type: "string", minLength: 20, maxLength: 1000 },
  "least length": { type: "string", minLength: 3 },
  pattern: { type: "string", pattern: '^[A-Z]{2}-\\d{3}"$' },
  "pattern anywhere": { type: "string", pattern: "[aeiou]" },
  date: { type: "string", format: "date" },
  integers: { type: "integer", minimum: -13, exclusiveMaximum: 117 },
  "integers from": { type: "integer", minimum: 8 },
  numbers: { type: "number", minimum: 0.5, maximum: 2 },
  "open numbers": { type: "number", exclusiveMinimum: -0.25, exclusiveMaximum: 1.125 },
  "negative numbers": { type: "number", maximum: -3 },
  "numbers below one": { type: "number", exclusiveMinimum: 0.125, exclusiveMaximum: 0.458 },
  multiples: { type: "integer", multipleOf: 7, maximum: 1e12, minimum: -1e12 },
  "multiples within": { type: "number", multipleOf: 0.25, minimum: 0, maximum: 3 },
  items: { type: "array", items: { type: "boolean" }, minItems: 2, maxItems: 4 },
  tuple: {
    type: "array",
    prefixItems: [{ type: "integer" }, { type: "null" }],
    items: { type: "boolean" },
    minItems: 1,
  },
  "closed tuple": { type: "array", prefixItems: [{ const: 1 }, { const: 2 }], items: false, minItems: 2 },
  object: {
    type: "object",
    properties: { a: { type: "integer" }, b: { type: "null" }, "c d": { enum: ["x", 1, null] } },
    required: ["b"],
    additionalProperties: false,
  },
  "other properties": {
    type: "object",
    properties: { ab: { type: "integer" }, a: { type: "null" } },
    additionalProperties: { type: "boolean" },
  },
  record: { type: "object", propertyNames: { pattern: "^k[0-9]$" }, additionalProperties: { type: "integer" } },
  "listed names": {
    type: "object",
    propertyNames: { enum: ["a", "b"] },
    additionalProperties: { type: "integer" },
    required: ["a"],
  },
  "required only": { type: "object", required: ["x"], additionalProperties: { type: "integer" } },
  types: { type: ["integer", "null"] },
  anyOf: { anyOf: [{ type: "integer" }, { type: "object", properties: { a: { const: 1 } }, required: ["a"] }] },
  "anyOf beside": {
    type: "object",
    properties: { a: { type: "integer" } },
    required: ["a"],
    anyOf: [
      { properties: { b: { type: "null" } }, required: ["b"] },
      { properties: { a: { minimum: 5, maximum: 9 } } },
    ],
  },
  oneOf: {
    oneOf: [
      { type: "object", properties: { kind: { const: "a" }, x: { type: "integer" } }, required: ["kind", "x"] },
      { type: "object", properties: { kind: { const: "b" } }, required: ["kind"] },
      { type: "string" },
    ],
  },
  allOf: {
    allOf: [
      { type: "object", properties: { a: { type: "integer", minimum: 3 } }, required: ["a"] },
      { type: "object", properties: { a: { maximum: 5 }, b: { type: "null" } }, required: ["b"] },
    ],
  },
  "reference beside": { $defs: { n: { type: "integer", minimum: 0 } }, $ref: "#/$defs/n", maximum: 3 },
  recursive: {
    $ref: "#/$defs/node",
    $defs: {
      node: {
        type: "object",
        properties: { value: { type: "integer" }, next: { anyOf: [{ $ref: "#/$defs/node" }, { type: "null" }] } },
        required: ["value", "next"],
        additionalProperties: false,
      },
    },
  },
  const: { const: { a: [1, "é"] } },
  "implied type": { minimum: 3, maximum: 5 },
};

describe("a schema", () => {
  const ajv = new Ajv({ strict: false, formats: { date: true } });

  it.each(Object.entries(accepted))("of %s gives what a validator accepts", async (_, schema) => {
    const validate = ajv.compile(schema);
    const found = await texts({ kind: "jsonSchema", schema }, 16);
    expect(found.length).toBeGreaterThan(2);
    for (const text of found) {
      const value = JSON.parse(text);
      expect(validate(value), `${text}: ${ajv.errorsText(validate.errors)}`).toBe(true);
    }
  });

  it.each<[string, object]>([
    ["#/not", { not: { type: "string" } }],
    ["#/if", { if: {}, else: {} }],
    ["#/uniqueItems", { type: "array", uniqueItems: true }],
    ["#/contains", { type: "array", contains: {} }],
    ["#/patternProperties", { type: "object", patternProperties: {} }],
    ["#/dependentRequired", { dependentRequired: {} }],
    ["#/unevaluatedProperties", { unevaluatedProperties: false }],
    ["#/minProperties", { type: "object", minProperties: 1 }],
    ["#/format", { type: "string", format: "idn-email" }],
    ["#/properties/a/nullable", { type: "object", properties: { a: { type: "string", nullable: true } } }],
    ["#/oneOf", { oneOf: [{ type: "integer" }, { type: "number" }] }],
    ["#/pattern", { type: "string", pattern: "(?<=a)b" }],
    [
      "#: patterns, formats and lengths of so many cases",
      { allOf: [{ pattern: "[ab]{400}c" }, { pattern: "[ab]{400}d" }] },
    ],
    ["#/minItems", { enum: [[1], []], minItems: 1 }],
    [
      "#/propertyNames",
      { properties: { a: {} }, additionalProperties: true, propertyNames: { enum: ["b"], $ref: "#" } },
    ],
    ["#/$ref", { $ref: "https://example.com/schema" }],
    ["#/$anchor", { $anchor: "a" }],
  ])("is refused at %s", async (at, schema) => {
    const making = createMatcher({ kind: "jsonSchema", schema }, { tokenizer: byteLevel, size: 300, endIds: [] });
    await expect(making).rejects.toThrow(UnsupportedError);
    await expect(making).rejects.toThrow(at);
  });

  it("with keywords that say nothing of values is taken", async () => {
    const schema = {
      $schema: "x",
      title: "t",
      description: "d",
      default: 1,
      examples: [],
      deprecated: true,
      "x-order": 1,
      type: "null",
    };
    expect(await texts({ kind: "jsonSchema", schema }, 3)).toEqual(["null", "null", "null"]);
  });
});

describe("what can be read in many ways", () => {
  it.each(
    ["(.{1,8}){1,8}.{1,8}(x|y|z){8}", ".{1,8}", "((a|b){2,5}c?){1,6}"].flatMap((part) =>
      [1, 10].map((n) => part.repeat(n)),
    ),
  )(
    "is what the expression says: %s",
    async (pattern) => {
      const found = await texts({ kind: "regex", pattern }, 3);
      for (const text of found) expect(text).toMatch(new RegExp(`^(?:${pattern})$`, "su"));
    },
    240_000,
  );

  it("ends where it takes too long", async () => {
    const size = byteLevel.vocabSize;
    const matcher = await createMatcher({ kind: "regex", pattern: "a+" }, { tokenizer: byteLevel, size, endIds: [] });
    let now = 0;
    const clock = vi.spyOn(performance, "now").mockImplementation(() => {
      now += 1400;
      return now;
    });
    try {
      await matcher.mask();
      const follow = () => {
        for (let i = 0; i < 4; i++) matcher.accept(byteLevel.tokenToId("a")!);
      };
      expect(follow).toThrow(/^constraint: it takes too long/);
    } finally {
      clock.mockRestore();
      matcher.dispose();
    }
  });
});

describe("what is too large", () => {
  const nested = (depth: number) => {
    let schema: object = { type: "integer" };
    for (let i = 0; i < depth; i++) schema = { type: "array", items: schema };
    return schema;
  };
  const properties = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`p${i}`, {}]));
  const doubled = Object.fromEntries(
    Array.from({ length: 60 }, (_, i) => {
      const next = { $ref: `#/$defs/d${i + 1}` };
      return [`d${i}`, i === 59 ? { type: "null" } : { type: "object", properties: { a: next, b: next } }];
    }),
  );

  it("is refused by what is too much of it", async () => {
    const size = byteLevel.vocabSize;
    const make = (pattern: string) =>
      createMatcher({ kind: "regex", pattern }, { tokenizer: byteLevel, size, endIds: [] });
    await expect(make(".*".repeat(201))).rejects.toThrow(
      "regex: expected at most 200 repetitions of different lengths",
    );
    (await make(".*".repeat(200))).dispose();
  });

  it.each<[Constraint]>([
    [{ kind: "regex", pattern: "(((a{0,100}){0,100}){0,100}){0,100}" }],
    [{ kind: "regex", pattern: "(.{0,9999}){0,9999}" }],
    [{ kind: "regex", pattern: "((a*)*)*b" }],
    [{ kind: "regex", pattern: "x".repeat(20_000) }],
    [{ kind: "regex", pattern: "([a-z]+[0-9]*)*".repeat(300) }],
    [{ kind: "grammar", ebnf: `root ::= ${"(y z)* ".repeat(300)}\ny ::= [a-z]\nz ::= [a-z]` }],
    [{ kind: "jsonSchema", schema: nested(2000) }],
    [{ kind: "jsonSchema", schema: { type: "object", properties: properties(1500) } }],
    [{ kind: "jsonSchema", schema: { $ref: "#/$defs/d0", $defs: doubled } }],
    [{ kind: "jsonSchema", schema: { type: "array", maxItems: 1e9 } }],
    [{ kind: "grammar", ebnf: `root ::= ${"(".repeat(3000)}"a"${")".repeat(3000)}` }],
  ])("is refused, or enforced: %#", async (constraint) => {
    const making = createMatcher(constraint, { tokenizer: byteLevel, size: byteLevel.vocabSize, endIds: [] });
    const made = await making.catch((error: unknown) => error);
    if (made instanceof Error)
      expect(made instanceof InvalidArgumentError || made instanceof UnsupportedError).toBe(true);
    else (made as { dispose(): void }).dispose();
  });
});

it("honours the keywords that the docs list", () => {
  const page = readFileSync(new URL("../../../docs/structured-output.md", import.meta.url), "utf8");
  for (const keyword of HONOURED.filter((name) => name !== "additionalItems")) expect(page).toContain(`\`${keyword}\``);
});
