/** Constants and states of eager execution; what calls compute, the operators' tests show. */
import { describe, expect, it } from "vitest";
import { InvalidArgumentError, ShapeError } from "../errors.ts";
import { scalarCpu } from "../kernels/cpu.ts";
import { operators } from "../registry/operators.ts";
import type { LazyConstant } from "./builder.ts";
import { EagerBuilder } from "./eager.ts";

const constant = (...values: number[]): LazyConstant => ({
  key: "c",
  dtype: "f32",
  shape: [values.length],
  read: async () => Float32Array.from(values),
});

describe("eager", () => {
  it("constants are those that were loaded", async () => {
    const builder = new EagerBuilder(operators, scalarCpu);
    expect(() => builder.constant(constant(1))).toThrow(/constant c was not loaded; expected `load` of it/);
    await builder.load(constant(1));
    expect(builder.constant(constant(1)).data).toEqual(Float32Array.of(1));
    expect(() => builder.constant(constant(1, 2))).toThrow(
      new InvalidArgumentError("constant c: expected f32 [1], which it is already, but found f32 [2]"),
    );
  });

  it("refuses constants that are not as long as their sizes say, which kernels would read beyond", async () => {
    const builder = new EagerBuilder(operators, scalarCpu);
    await expect(builder.load({ ...constant(1, 2, 3), shape: [4] })).rejects.toThrow(
      new ShapeError("constant c: expected 16 bytes for f32 [4] but found 12"),
    );
  });

  it("results take the memory of those that were given back, of as many bytes", () => {
    const builder = new EagerBuilder(operators, scalarCpu);
    const tensor = (...values: number[]) =>
      ({ dtype: "f32", shape: [values.length], data: Float32Array.from(values) }) as const;
    const first = builder.call("aten::mul.out", tensor(1, 2), tensor(3, 4));
    builder.recycle(first);
    const longer = builder.call("aten::mul.out", tensor(1, 2, 3), tensor(3, 4, 5));
    const second = builder.call("aten::mul.out", tensor(5, 6), tensor(7, 8));
    expect(longer.data).toEqual(Float32Array.of(3, 8, 15));
    expect(second.data).toEqual(Float32Array.of(35, 48));
    expect(second.data.buffer).toBe(first.data.buffer);
    expect(builder.call("aten::mul.out", tensor(1, 1), tensor(1, 1)).data.buffer).not.toBe(second.data.buffer);
  });

  it("refuses arguments that are not as long as their sizes say, of lists, too", () => {
    const builder = new EagerBuilder(operators, scalarCpu);
    const [short, whole] = [3, 4].map(
      (length) => ({ dtype: "f32", shape: [4], data: new Float32Array(length) }) as const,
    );
    const problem = "expected 16 bytes for f32 [4] but found 12";
    expect(() => builder.call("aten::mul.out", whole!, short!)).toThrow(
      new ShapeError(`aten::mul.out, argument other: ${problem}`),
    );
    expect(() => builder.call("aten::cat.out", [whole!, short!])).toThrow(
      new ShapeError(`aten::cat.out, argument tensors: ${problem}`),
    );
  });

  it("a state is one tensor by its name, and no other", () => {
    const builder = new EagerBuilder(operators, scalarCpu);
    const state = builder.state("s", { dtype: "f32", shape: [2] });
    expect(builder.state("s", { dtype: "f32", shape: [2] })).toBe(state);
    expect(() => builder.state("s", { dtype: "i8", shape: [2] })).toThrow(
      new InvalidArgumentError("state s: expected f32 [2], which it is already, but found i8 [2]"),
    );
  });
});
