/** A method as text. */
import { expect, it } from "vitest";
import { formatMethod } from "./format.ts";
import type { TensorValue } from "./program.ts";

const tensor = (sizes: number[], rest: Partial<TensorValue>): TensorValue => ({
  kind: "tensor",
  dtype: "f32",
  sizes,
  dimOrder: sizes.map((_, i) => i),
  dynamism: "static",
  constant: null,
  allocation: null,
  name: null,
  ...rest,
});

it("shows instructions with their literals, lists and places", () => {
  const text = formatMethod({
    name: "forward",
    values: [
      tensor([1, 4], { dynamism: "bound", allocation: { memoryId: 1, offset: 0 } }),
      tensor([4], { constant: 0, name: "weight:f32" }),
      { kind: "int", value: 2 },
      { kind: "intList", items: [2, 2] },
      tensor([1, 8], { allocation: { memoryId: 1, offset: 64 } }),
      { kind: "tensorList", items: [0, 1] },
      { kind: "null" },
    ],
    inputs: [0],
    outputs: [4],
    operators: [{ name: "aten::cat", overload: "out" }],
    instructions: [{ kind: "kernel", operator: 0, args: [5, 3, 6, 4, 4] }],
    delegates: [],
    memorySizes: [0, 128],
  });
  expect(text).toBe(
    [
      "forward(input0: f32[<=1, 4] at 1:0)",
      "  %0: f32[1, 8] at 1:64 = aten::cat.out([input0, weight:f32], [2, 2], null)",
      "  return %0",
    ].join("\n"),
  );
});
