/** Tokens that are looked up: behind changes, with JSON's escapes and without, beside the answers themselves. */
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { expect, it } from "vitest";
import { LimitError } from "../errors.ts";
import { DraftLookup, type Match } from "./draft-lookup.ts";
import { Tokenizer } from "./tokenizer.ts";

const json = JSON.parse(readFileSync(new URL("byte-level-tokenizer.json.golden", import.meta.url), "utf8"));
const tokenizer = new Tokenizer(json, { eos_token: "<|end|>" });
const code = readFileSync(new URL("stop-strings.ts", import.meta.url), "utf8").slice(0, 2000);

const chanceOf = ({ length, isResumed }: Match) => (isResumed ? length + 4 : length);

/** How many tokens of an answer, at most `most`, were looked up before each of its tokens came. */
function foundOf(before: readonly number[], answer: readonly number[], most = 1, own = tokenizer): number[] {
  const history = [...before];
  const lookup = new DraftLookup(history, [], own);
  return answer.map((id, at) => {
    lookup.find(chanceOf);
    const draft = lookup.continuation(most);
    history.push(id);
    const wrong = draft.findIndex((other, i) => other !== answer[at + i]);
    return wrong < 0 ? draft.length : wrong;
  });
}

const meanOf = (found: readonly number[]) => found.reduce((sum, count) => sum + count, 0) / found.length;
const idsOf = (text: string) => tokenizer.encode(text, { addSpecialTokens: false });

it("goes on behind tokens that were changed, added and left out", () => {
  const text = Array.from({ length: 60 }, (_, i) => 10 + i);
  const changes = { changed: [...text.slice(0, 30), 5, 6, ...text.slice(32)], added: text.toSpliced(30, 0, 5, 6) };
  for (const [name, answer] of Object.entries({ ...changes, left: text.toSpliced(30, 5) })) {
    const found = foundOf(text, answer);
    expect(found.slice(1, 30), name).toEqual(Array(29).fill(1));
    // After two tokens, what follows is known: after none where one stands for another, and one to find what was left out.
    expect(found.slice(34), name).toEqual(Array(answer.length - 34).fill(1));
  }
});

it("follows the text before with JSON's escapes, and a string of JSON without them", () => {
  const [plain, escaped] = [idsOf(code), idsOf(JSON.stringify({ content: code }))];
  expect(meanOf(foundOf(plain, escaped, 7))).toBeGreaterThan(6.5);
  expect(meanOf(foundOf(escaped, plain, 7))).toBeGreaterThan(6.5);
  // In no other way as much is found.
  const limited = {
    vocabSize: tokenizer.vocabSize,
    decode: (ids: readonly number[]) => tokenizer.decode(ids),
    encode: () => {
      throw new LimitError("tokenizer.json", "takes too long");
    },
  } as unknown as Tokenizer;
  expect(meanOf(foundOf(plain, escaped, 7, limited))).toBeLessThan(6.3);
  expect(meanOf(foundOf(escaped, plain, 7, limited))).toBeLessThan(6.3);
});

it("expects what followed a text before, never what ends one", () => {
  const texts = fc.array(fc.integer({ min: 0, max: 5 }), { minLength: 1, maxLength: 40 });
  const property = fc.property(texts, texts, texts, (prediction, before, answer) => {
    const history = [...before];
    const lookup = new DraftLookup(history, prediction, tokenizer);
    for (const id of answer) {
      lookup.find(chanceOf);
      const draft = lookup.continuation(3);
      const isIn = (list: readonly number[]) => `,${list.join()},`.includes(`,${draft.join()},`);
      expect(draft.length === 0 || isIn(prediction) || isIn(history)).toBe(true);
      history.push(id);
    }
  });
  fc.assert(property, { numRuns: 500 });
});
