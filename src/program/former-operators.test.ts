/** Programs of earlier versions call operators by the names that those had. */
import { expect, it } from "vitest";
import { renewOperators } from "./former-operators.ts";
import type { Method, Value } from "./program.ts";

const tensor: Value = {
  ...{ kind: "tensor", dtype: "f32", sizes: [1, 8], dimOrder: [0, 1], dynamism: "static" },
  ...{ constant: null, allocation: { memoryId: 1, offset: 0 }, name: null },
};

const method: Method = {
  ...{ name: "forward", inputs: [0, 1], outputs: [3], delegates: [], memorySizes: [0, 64] },
  values: [tensor, tensor, tensor, tensor],
  operators: [
    { name: "lowbit::swiglu", overload: "out" },
    { name: "lowbit::geglu_halves", overload: "out" },
    { name: "aten::add", overload: "out" },
  ],
  instructions: [
    { kind: "kernel", operator: 0, args: [0, 1, 2, 2] },
    { kind: "kernel", operator: 1, args: [2, 3, 3] },
    { kind: "move", from: 2, to: 3 },
    { kind: "kernel", operator: 2, args: [0, 1, 3, 3] },
  ],
};

it("calls the operators that took their place, with a word", () => {
  const { operators, values, instructions } = renewOperators(method);
  expect(operators.map(({ name }) => name)).toEqual(["lowbit::gate", "lowbit::gate_halves", "aten::add"]);
  expect(values.slice(4)).toEqual([
    { kind: "string", value: "silu" },
    { kind: "string", value: "geluTanh" },
  ]);
  expect(instructions).toEqual([
    { kind: "kernel", operator: 0, args: [0, 1, 4, 2, 2] },
    { kind: "kernel", operator: 1, args: [2, 5, 3, 3] },
    { kind: "move", from: 2, to: 3 },
    { kind: "kernel", operator: 2, args: [0, 1, 3, 3] },
  ]);
});

it("leaves methods that call none of them", () => {
  const { operators, instructions } = method;
  const other = {
    ...method,
    operators: operators.slice(2),
    instructions: [{ ...instructions[3]!, operator: 0 } as never],
  };
  expect(renewOperators(other)).toBe(other);
});
