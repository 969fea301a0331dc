/** Calls as templates write them, with any values, cut, split and padded anywhere: the same calls, or unfinished ones. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  callsIn,
  callsOf,
  expectBeginnings,
  hostile,
  parse,
  piecesOf,
  plain,
} from "../../../test/support/parsed-calls.ts";
import { families, PAD } from "../../../test/support/written-calls.ts";

const paddings = fc.array(fc.constantFrom("", "", " ", "\n", " \n\t"), { minLength: 8, maxLength: 8 });

function padded(text: string, paddings: readonly string[]): string {
  let count = 0;
  return text.replaceAll(PAD, () => paddings[count++ % paddings.length]!);
}

const unpadded = (text: string) => padded(text, [""]);

describe.each(families.map((family) => [family.name, family] as const))("calls of %s", (_, family) => {
  const numRuns = 15;

  it("are the same, with any text in them, split and padded anywhere", () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(callsOf(fc.oneof(plain, hostile), family.never), paddings, sizes, (calls, spaces, sizes) => {
        const behind = family.isMarked ? "\nDone." : "";
        const answer = padded(family.write(calls), spaces) + behind;
        const whole = parse(family.template, [answer]);
        expect(callsIn(whole)).toEqual(calls);
        expect(whole.text).toBe(behind.trim());
        expect(parse(family.template, piecesOf(answer, sizes))).toEqual(whole);
      }),
      { numRuns },
    );
  });

  const places = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 5, maxLength: 5 });

  it("are unfinished, or whole, where the answer is cut", () => {
    fc.assert(
      fc.property(callsOf(plain, family.never), places, fc.boolean(), (calls, places, isCut) => {
        expectBeginnings(family.template, unpadded(family.write(calls)), places, isCut);
      }),
      { numRuns },
    );
  });

  it("are unfinished, or whole, where a limit cuts an answer with markers in its texts", () => {
    fc.assert(
      fc.property(callsOf(hostile, family.never), places, (calls, places) => {
        expectBeginnings(family.template, unpadded(family.write(calls)), places, true);
      }),
      { numRuns },
    );
  });
});
