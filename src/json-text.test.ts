import { expect, it } from "vitest";
import { parseJson, parsePythonJson, pythonJson } from "./json-text.ts";

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

/** What Python's `json.loads` makes of them. */
it("reads the constants of Python's json outside of strings", () => {
  const text =
    '{"a": [0.0, Infinity], "NaN": "Infinity \\" NaN", "b": -Infinity, "c": [NaN,-1e5], "d": "number:Infinity"}';
  expect(parsePythonJson(text)).toEqual({
    a: [0, Number.POSITIVE_INFINITY],
    NaN: 'Infinity " NaN',
    b: Number.NEGATIVE_INFINITY,
    c: [Number.NaN, -1e5],
    d: "number:Infinity",
  });
  expect(parsePythonJson("NaN")).toBeNaN();
  for (const text of [
    "[nan]",
    "[+Infinity]",
    "[- Infinity]",
    "[Infinity1]",
    "[NaNNaN]",
    "[Inf]",
    "{NaN: 1}",
    "[--Infinity]",
  ])
    expect(() => parsePythonJson(text), text).toThrow(SyntaxError);
  expect(() => parsePythonJson(nested(257))).toThrow("expected at most 256 levels");
  expect(() => parseJson("[NaN]")).toThrow(SyntaxError);
});

it("refuses a byte order mark by its name, as Python's json does", () => {
  expect(() => parsePythonJson('\uFEFF{"a": 1}')).toThrow("it begins with a byte order mark (U+FEFF)");
});

it("writes what it reads", () => {
  const value = { a: [0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN], b: 'x "number:1" Infinity' };
  const text = pythonJson(value, 2);
  expect(text).toContain("-Infinity,\n    NaN\n");
  expect(parsePythonJson(text)).toEqual(value);
  expect(pythonJson({ a: [1.5, null, "NaN"], b: undefined })).toBe('{"a":[1.5,null,"NaN"]}');
});
