import { expect, it } from "vitest";
import { parseJson } from "./json-text.ts";

const nested = (levels: number) => `${"[".repeat(levels)}1${"]".repeat(levels)}`;

it("parses what JSON.parse does", () => {
  for (const text of ['{"a": [1, {"b": "\\"[[{\\\\"}], "c": null}', "3", '"[[["', nested(256), '"\\\\"'])
    expect(parseJson(text)).toEqual(JSON.parse(text));
});

it("refuses what JSON.parse refuses", () => {
  for (const text of ["", "[", '"', '"\\', '"\\"', "]]", '{"a"}', "undefined"])
    expect(() => parseJson(text)).toThrow(SyntaxError);
});

it("refuses levels that recursion could not follow", () => {
  const message = "expected at most 256 levels of lists and objects but found more at 256";
  for (const levels of [257, 1_000_000]) expect(() => parseJson(nested(levels))).toThrow(message);
  expect(() => parseJson('{"a":'.repeat(1000))).toThrow("expected at most 256 levels");
});

it("does not count brackets in strings", () => {
  expect(parseJson(`["${"[".repeat(1000)}"]`)).toEqual(["[".repeat(1000)]);
});
