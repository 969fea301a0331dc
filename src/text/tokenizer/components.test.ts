/** Every component and option of tokenizer.json against Rust's tokenizers 0.23.3 (scripts/tokenizer-goldens.py). */
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
