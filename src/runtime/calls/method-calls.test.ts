import { expect, it } from "vitest";
import type { Method } from "../../program/program.ts";
import { operators } from "../../registry/operators.ts";
import { MethodCalls, splitArguments } from "./method-calls.ts";

/** A method of one call, whose values are numbers of no further meaning. */
function methodOf(name: string, args: readonly number[]): Method {
  const values = Array.from({ length: 16 }, () => ({ kind: "none" }));
  const instructions = [{ kind: "kernel", operator: 0, args }];
  return { name: "forward", values, instructions, operators: [{ name, overload: "out" }] } as unknown as Method;
}

it("arguments that an operator gained at its end are their defaults in programs of before", () => {
  const before = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10];
  const { calls } = new MethodCalls(methodOf("lowbit::update_and_attend", before), operators);
  expect(calls).toMatchObject([{ given: before.slice(0, 10), rest: [null], outIndex: 10 }]);
  const now = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 10, 10];
  expect(new MethodCalls(methodOf("lowbit::update_and_attend", now), operators).calls).toMatchObject([
    { given: now.slice(0, 11), rest: [], outIndex: 10 },
  ]);
});

it("arguments without a default are not left out", () => {
  const short = methodOf("lowbit::update_short_conv", [0, 1, 2, 3, 4, 4]);
  expect(() => new MethodCalls(short, operators)).toThrow("expected 7 arguments");
});

const method = methodOf("none", []);
const split = (name: string, indices: readonly number[]) =>
  splitArguments(method, name, operators.schema(name), indices);

it("what is listed behind all arguments is what a call returns", () => {
  const number = split("aten::sym_size.int", [4, 5, 6]);
  expect(number).toEqual({ given: [4, 5], rest: [], outs: [], returned: 6 });
  const inPlace = split("aten::copy_", [1, 2, 3, 1]);
  expect(inPlace).toEqual({ given: [1, 2, 3], rest: [], outs: [], returned: 1 });
  expect(split("aten::linear.out", [1, 2, 3, 4])).toEqual({
    given: [1, 2, 3],
    rest: [],
    outs: [4],
    returned: undefined,
  });
  for (const indices of [
    [1, 2],
    [1, 2, 3, 4, 5],
    [1, 2, 3, 4, 4, 4],
  ])
    expect(() => split("aten::linear.out", indices), `${indices}`).toThrow("expected 4 arguments and the last again");
});

it("calls of several results leave out what has a default, too", () => {
  const whole = split("aten::topk.values", [1, 2, 3, 4, 5, 6, 7, 6]);
  expect(whole).toEqual({ given: [1, 2, 3, 4, 5], rest: [], outs: [6, 7], returned: 6 });
  const short = split("aten::topk.values", [1, 2, 6, 7, 6]);
  expect(short).toEqual({ given: [1, 2], rest: [-1, true, true], outs: [6, 7], returned: 6 });
  expect(() => split("aten::topk.values", [1, 6, 7, 6])).toThrow("expected 7 arguments");
});
