import { expect, it } from "vitest";
import { e4m3Code, e4m3Table } from "./float8.ts";

it("has the values of OCP's e4m3", () => {
  const table = e4m3Table();
  expect([0x00, 0x01, 0x07, 0x08, 0x38, 0x3b, 0x7e, 0xc0].map((code) => table[code])).toEqual([
    0,
    2 ** -9,
    7 * 2 ** -9,
    2 ** -6,
    1,
    1.375,
    448,
    -2,
  ]);
  expect([table[0x7f], table[0xff]]).toEqual([Number.NaN, Number.NaN]);
});

it("finds the code of each value, of what is a little beside it, and of what is past the largest", () => {
  const table = e4m3Table();
  for (let code = 0; code < 256; code++) {
    if (Number.isNaN(table[code])) continue;
    const near = [1, 1 - 2 ** -23, 1 + 2 ** -23].map((factor) => e4m3Code(table[code]! * factor));
    expect(near, `code ${code}`).toEqual([code, code, code]);
  }
  expect([e4m3Code(1e9), e4m3Code(-1e9), e4m3Code(2 ** -11)]).toEqual([0x7e, 0xfe, 0]);
});
