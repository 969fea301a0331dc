/** Every component and option of tokenizer.json against Rust's tokenizers 0.23.3 (scripts/goldens/tokenizer-goldens.py). */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { LowbitError } from "../../errors.ts";
import { Tokenizer } from "../tokenizer.ts";

interface Golden {
  readonly models: readonly { readonly type: string }[];
  readonly cases: readonly {
    readonly model: number;
    readonly parts: Readonly<Record<string, unknown>>;
    readonly tests: readonly {
      readonly text?: string;
      readonly pair?: string;
      readonly special?: boolean;
      readonly ids?: number[];
      /** Null where the library has an error. */
      readonly expected: unknown;
    }[];
  }[];
}

const golden: Golden = JSON.parse(readFileSync(new URL("components.json.golden", import.meta.url), "utf8"));

it.each(golden.cases.map((golden, place) => [place, golden] as const))("tokenizer %i", (_, { model, parts, tests }) => {
  const tokenizer = new Tokenizer({ model: golden.models[model], ...parts });
  for (const { text, pair, special, ids, expected } of tests) {
    const find = () => (ids ? tokenizer.decode(ids) : tokenizer.encode(text!, { pair, addSpecialTokens: special }));
    if (expected === null) expect(find, JSON.stringify([text, pair])).toThrow(LowbitError);
    else expect(find(), JSON.stringify(text ?? ids)).toEqual(expected);
  }
});

/** By `BertNormalizer.normalize_str` of tokenizers 0.23.3, for each code point below the private ones. */
it("BertNormalizer drops control characters but tab, line feed and carriage return, and makes white space of others", () => {
  const normalizer = { type: "BertNormalizer", clean_text: true, handle_chinese_chars: false, strip_accents: false };
  const model = { type: "WordLevel", vocab: { a: 0 }, unk_token: "a" };
  const tokenizer = new Tokenizer({ model, normalizer: { ...normalizer, lowercase: false } });
  const found = new Map<string, number[]>();
  for (let code = 0; code < 0xd800; code++) {
    const text = tokenizer.normalize(String.fromCodePoint(code));
    if (text !== String.fromCodePoint(code)) found.set(text, [...(found.get(text) ?? []), code]);
  }
  const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);
  expect(found.get(" ")).toEqual([
    ...range(0x9, 0xa),
    0xd,
    0xa0,
    0x1680,
    ...range(0x2000, 0x200a),
    ...range(0x2028, 0x2029),
    0x202f,
    0x205f,
    0x3000,
  ]);
  expect(found.get("")).toEqual([
    ...range(0x0, 0x8),
    ...range(0xb, 0xc),
    ...range(0xe, 0x1f),
    ...range(0x7f, 0x9f),
    0xad,
    ...range(0x600, 0x605),
    0x61c,
    0x6dd,
    0x70f,
    0x180e,
    ...range(0x200b, 0x200f),
    ...range(0x202a, 0x202e),
    ...range(0x2060, 0x2064),
    ...range(0x2066, 0x206f),
  ]);
  expect([...found.keys()].sort()).toEqual(["", " "]);
});
