/** Continuations of a sequence beside a plain search of all that came before. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { SuffixAutomaton } from "./suffix-automaton.ts";

/** The longest end of a sequence that occurred before, by comparing it with all texts in the sequence. */
function longest(tokens: readonly number[]): number {
  for (let length = tokens.length - 1; length > 0; length--)
    for (let end = tokens.length - 1; end >= length; end--)
      if (tokens.slice(-length).every((token, i) => token === tokens[end - length + i])) return length;
  return 0;
}

const continuation = ({ tokens, matchEnd }: SuffixAutomaton, most: number) =>
  matchEnd < 0 ? [] : tokens.slice(matchEnd + 1, matchEnd + 1 + most);

it("finds the longest end that occurred before, and what followed it there", () => {
  const sequences = fc
    .integer({ min: 1, max: 4 })
    .chain((kinds) => fc.array(fc.integer({ min: 0, max: kinds - 1 }), { maxLength: 40 }));
  fc.assert(
    fc.property(sequences, fc.integer({ min: 1, max: 6 }), (tokens, most) => {
      const automaton = new SuffixAutomaton();
      for (const [i, token] of tokens.entries()) {
        automaton.push(token);
        const before = tokens.slice(0, i + 1);
        const length = longest(before);
        expect(automaton.matchLength).toBe(length);
        const found = continuation(automaton, most);
        const ends = [...before.keys()].filter(
          (end) =>
            length > 0 && end >= length && before.slice(-length).join() === before.slice(end - length, end).join(),
        );
        const places = ends.filter((end) => end < before.length).map((end) => before.slice(end, end + most).join());
        expect(length === 0 ? [""] : places).toContain(found.join());
      }
    }),
    { numRuns: 1000 },
  );
});

it("gives what followed the last time that it was looked for", () => {
  const automaton = new SuffixAutomaton();
  for (const token of [1, 2, 3, 9, 1, 2, 4, 9, 1, 2]) automaton.push(token);
  expect(continuation(automaton, 2)).toEqual([4, 9]);
});

it("takes vocabularies of any size, and long sequences", () => {
  const automaton = new SuffixAutomaton();
  for (let i = 0; i < 20_000; i++) automaton.push((i % 5_000) * 3_000);
  expect(automaton.matchLength).toBe(15_000);
  expect(continuation(automaton, 3)).toEqual([0, 3_000, 6_000]);
});
