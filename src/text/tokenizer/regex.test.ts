/** Patterns against Oniguruma, as Rust's tokenizers 0.23.3 calls it (regex.json.golden says how). */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { Regex } from "./regex.ts";
import { DEFAULT_LIMITS, Work } from "./work-limit.ts";

const { texts, patterns }: { texts: string[]; patterns: [string, string[][]][] } = JSON.parse(
  readFileSync(new URL("regex.json.golden", import.meta.url), "utf8"),
);

it.each(patterns)("%s", (source, expected) => {
  const regex = new Regex(source);
  for (const [i, text] of texts.entries()) {
    const found: string[] = [];
    regex.forEachMatch(text, new Work("x", DEFAULT_LIMITS, text.length), (start, end) => {
      if (end > start) found.push(text.slice(start, end));
    });
    expect(found, JSON.stringify(text)).toEqual(expected[i]);
  }
});
