/** Grammars that take the engine minutes, beside texts that go on. */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { Worker } from "node:worker_threads";
import { expect, it } from "vitest";
import { UnsupportedError } from "../../errors.ts";
import { Tokenizer } from "../tokenizer.ts";
import { compileConstraint } from "./compile.ts";
import { FollowedTexts } from "./followed-texts.ts";
import { writeGrammar } from "./grammar.ts";
import { tokenBytes } from "./token-bytes.ts";

const json = JSON.parse(readFileSync(new URL("../byte-level-tokenizer.json.golden", import.meta.url), "utf8"));
const tokenizer = new Tokenizer(json, { eos_token: "<|end|>" });

/** A vocabulary with all texts of up to three of some letters, as large ones have. */
function largeVocabulary() {
  const letters = [..."abcdefghijklmnopqrstuvwxyz"];
  const pairs = letters.flatMap((a) => letters.map((b) => a + b));
  const bytes = [
    ...tokenBytes(tokenizer, tokenizer.vocabSize),
    ...pairs,
    ...pairs.flatMap((a) => letters.map((b) => a + b)),
  ];
  return { bytes, size: bytes.length, endIds: [tokenizer.eos!.id], keptGrammars: 4 };
}

const grammarOf = (pattern: string) => writeGrammar(compileConstraint({ kind: "regex", pattern }));
const BOMB = grammarOf("\\w?".repeat(199));

it("ends a grammar that takes too long, while the thread and other texts go on", async () => {
  const vocabulary = largeVocabulary();
  const texts = new FollowedTexts(vocabulary, { compileMs: 1000 });
  const other = await texts.begin(grammarOf("ab(cd|ce)f"));
  const a = vocabulary.bytes.indexOf("a");
  other.taken.push(a, "bc");
  const before = await texts.mask(other, 1000);
  const allowed = [...vocabulary.bytes.keys()].filter((id) => (before.mask[id >>> 5]! >>> (id & 31)) & 1);
  expect(allowed.map((id) => vocabulary.bytes[id]).sort()).toEqual(["d", "df", "e", "ef"]);
  let ticks = 0;
  const timer = setInterval(() => ticks++, 10);
  const bomb = texts.begin(BOMB);
  const beside = texts.mask(other, 1000);
  await expect(bomb).rejects.toThrow(UnsupportedError);
  await expect(bomb).rejects.toThrow(/^constraint: it takes too long/);
  expect(ticks).toBeGreaterThan(5);
  clearInterval(timer);
  expect((await beside).mask).toEqual(before.mask);
  // It is known by now.
  await expect(texts.begin(BOMB)).rejects.toThrow(/^constraint: it takes too long/);
  other.taken.push("df");
  const { mask } = await texts.mask(other, 1000);
  expect((mask[tokenizer.eos!.id >>> 5]! >>> (tokenizer.eos!.id & 31)) & 1).toBe(1);
});

it("names what the engine refuses, and goes on with another", async () => {
  const texts = new FollowedTexts(largeVocabulary());
  await expect(texts.begin("root ::= nothing")).rejects.toThrow("constraint: the engine does not take this grammar");
  const text = await texts.begin(grammarOf("ab"));
  expect((await texts.mask(text, 1000)).mask.some((word) => word !== 0)).toBe(true);
});

it("goes on with another engine when one has ended by itself", async () => {
  const started = once(process, "worker") as Promise<[Worker]>;
  const texts = new FollowedTexts(largeVocabulary());
  const text = await texts.begin(grammarOf("ab(cd|ce)f"));
  text.taken.push("ab");
  const before = await texts.mask(text, 1000);
  const [engine] = await started;
  const ended = once(engine, "exit");
  await engine.terminate();
  await ended;
  expect((await texts.mask(text, 1000)).mask).toEqual(before.mask);
  await texts.begin(grammarOf("other"));
});
