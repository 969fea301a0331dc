import { expect, it } from "vitest";
import { operators } from "../ops/registry.ts";
import type { Method } from "../program/program.ts";
import { MethodCalls } from "./method-calls.ts";

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
