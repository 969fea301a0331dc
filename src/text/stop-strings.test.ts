/** Stop strings: found however the text is cut, nothing of them shown, nothing else lost. */
import { expect, it } from "vitest";
import { InvalidArgumentError } from "../errors.ts";
import { createRandom } from "./random.ts";
import { StopMatcher } from "./stop-strings.ts";

function run(stops: string[], pieces: string[]): { shown: string; stop: string | null } {
  const matcher = new StopMatcher(stops);
  let shown = "";
  for (const piece of pieces) {
    const { text, stop } = matcher.push(piece);
    shown += text;
    if (stop !== null) return { shown, stop };
  }
  return { shown: shown + matcher.flush(), stop: null };
}

it("holds back a beginning and shows it when it comes to nothing", () => {
  const matcher = new StopMatcher(["END", "\nUser:"]);
  const push = (piece: string) => matcher.push(piece).text;
  expect(["a E", "N", "ding", "\nUse", "s", "\n"].map(push)).toEqual(["a ", "", "ENding", "", "\nUses", ""]);
  expect(matcher.flush()).toBe("\n");
  expect(matcher.flush()).toBe("");
});

it("never shows a part of a stop string", () => {
  expect(run(["END"], ["so E", "N", "D more"])).toEqual({ shown: "so ", stop: "END" });
  expect(run(["aab"], ["a", "a", "a", "b"])).toEqual({ shown: "a", stop: "aab" });
  expect(run(["bc", "abcd"], ["xa", "b", "c", "d"])).toEqual({ shown: "xa", stop: "bc" });
  expect(run(["bc", "abc"], ["xabc"])).toEqual({ shown: "x", stop: "abc" });
  expect(run([], ["a", "b"])).toEqual({ shown: "ab", stop: null });
});

it("finds the same however the text is cut", () => {
  const random = createRandom(3);
  const letters = (length: number) => Array.from({ length }, () => "ab"[random.uint32() % 2]).join("");
  for (let round = 0; round < 2000; round++) {
    const stops = Array.from({ length: 1 + (random.uint32() % 3) }, () => letters(1 + (random.uint32() % 5)));
    const text = letters(random.uint32() % 16);
    let expected: { shown: string; stop: string | null } = { shown: text, stop: null };
    for (let end = 0; end <= text.length && expected.stop === null; end++) {
      const ending = stops.filter((stop) => text.slice(0, end).endsWith(stop));
      const stop = ending.sort((a, b) => b.length - a.length)[0];
      if (stop !== undefined) expected = { shown: text.slice(0, end - stop.length), stop };
    }
    const cut = random.uint32() % (text.length + 1);
    for (const pieces of [[text], [...text], [text.slice(0, cut), text.slice(cut)]])
      expect(run(stops, pieces)).toEqual(expected);
  }
});

it("refuses an empty stop string", () => {
  expect(() => new StopMatcher(["a", ""])).toThrow(InvalidArgumentError);
});

it("takes a list, and no string in its place", () => {
  const stops = "END" as unknown as string[];
  expect(() => new StopMatcher(stops)).toThrow(
    new InvalidArgumentError('stop: expected a list of strings but found "END"'),
  );
});
