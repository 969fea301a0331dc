import fc from "fast-check";
import { expect, it } from "vitest";
import { JsonSource, jsonText, parseExactly, parseJson, parsePythonJson, pythonJson, valueTexts } from "./json-text.ts";

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

it("writes BigInts and texts of JSON as they are", () => {
  const value = { a: [12345678901234567890n, "1n"], b: new JsonSource('{"2": 1.0, "1": 0}'), c: null };
  expect(jsonText(value)).toBe('{"a":[12345678901234567890,"1n"],"b":{"2": 1.0, "1": 0},"c":null}');
  expect(jsonText({ a: "x", b: [1.5, true] })).toBe('{"a":"x","b":[1.5,true]}');
});

it("parses integers that no number holds to BigInts", () => {
  const text = '{"a": [12345678901234567890, -9007199254740993, 9007199254740991, 1e400, 0.1], "n1": "s\\"12"}';
  expect(parseExactly(text)).toEqual({
    a: [12345678901234567890n, -9007199254740993n, 9007199254740991, Infinity, 0.1],
    n1: 's"12',
  });
});

it("finds the texts of values at a path", () => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ "a b": fc.jsonValue(), other: fc.jsonValue() })),
      fc.jsonValue(),
      (items, last) => {
        const text = JSON.stringify({ x: last, items, y: [last] }, null, 1);
        const found = valueTexts(text, ["items", null, "a b"]);
        expect(found.map(({ indices }) => indices)).toEqual(items.map((_, index) => [index]));
        expect(found.map(({ text }) => JSON.parse(text))).toEqual(
          items.map((item) => JSON.parse(JSON.stringify(item["a b"]))),
        );
      },
    ),
  );
  expect(valueTexts('{"a":{"b":[1,{"c": "}"}]}}', ["a", "b", null, "c"])).toEqual([{ indices: [1], text: '"}"' }]);
  expect(valueTexts("[3]", ["a"])).toEqual([]);
});
