import { describe, expect, it } from "vitest";
import { InvalidArgumentError, ShapeError, UnsupportedError } from "../errors.ts";
import type { Kernel } from "../kernels/contract.ts";
import { cpuWith, scalarCpu } from "../kernels/cpu.ts";
import { zeroTensor } from "../tensor.ts";
import { Arguments, completeArguments, defineOperator, OperatorRegistry, type TensorSpec } from "./operator.ts";
import { parseSchema } from "./schema.ts";

const schema = parseSchema(
  "my::op.out(Tensor x, Tensor? bias=None, int n=3, float eps=0.5, bool flip=False, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
);
const x: TensorSpec = { dtype: "f32", shape: [2, 3] };

describe("completeArguments", () => {
  it("fills in the defaults, but not the out argument", () => {
    expect(completeArguments(schema, [x])).toEqual([x, null, 3, 0.5, false, 1]);
    expect(completeArguments(schema, [x, x, 7, 1, true, 2])).toEqual([x, x, 7, 1, true, 2]);
  });

  it("a missing argument, and one too many, are ShapeErrors with its name", () => {
    expect(() => completeArguments(schema, [])).toThrow(new ShapeError("my::op.out: argument x is missing"));
    expect(() => completeArguments(schema, [x, null, 1, 1, true, 1, x])).toThrow(
      new ShapeError("my::op.out: expected 6 arguments but found 7"),
    );
  });
});

describe("Arguments", () => {
  const args = new Arguments<TensorSpec>(schema, [x, null, 3.5, 0.5, true, 1]);

  it("gives typed values by name", () => {
    expect(args.tensor("x", "f16", "f32")).toBe(x);
    expect(args.optionalTensor("bias")).toBeNull();
    expect([args.number("eps"), args.boolean("flip"), args.optionalNumber("bias")]).toEqual([0.5, true, null]);
  });

  it.each<[string, () => unknown, RegExp]>([
    ["no tensor", () => args.tensor("bias"), /my::op.out, argument bias: expected a tensor but found none/],
    ["a number for a tensor", () => args.tensor("eps"), /argument eps: expected a tensor but found 0.5/],
    ["another dtype", () => args.tensor("x", "i64", "i32"), /argument x: expected dtype i64 or i32 but found f32/],
    ["a tensor for a number", () => args.number("x"), /argument x: expected a number but found/],
    ["a fraction for a whole number", () => args.integer("n"), /argument n: expected a whole number but found 3.5/],
    ["a number below the least", () => args.integer("alpha", 2), /a whole number of at least 2 but found 1/],
  ])("%s is a ShapeError with operator and argument", (_, get, message) => {
    expect(get).toThrow(message);
    expect(get).toThrow(ShapeError);
  });
});

const row = (name: string, needs: Kernel<unknown>["needs"]): Kernel<unknown> => ({
  name,
  target: "reference",
  layouts: null,
  bits: null,
  needs,
  mStep: 1,
  nStep: 1,
  scratchBytes: (_, threads) => 10 * threads,
  bind: () => () => {},
});

describe("defineOperator", () => {
  const operator = defineOperator<unknown>({
    schema: "my::id.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    kernels: [row("fast", ["avx2"]), row("slow", [])],
    shape: (args) => args.tensor("x"),
    prepare: () => ({}),
  });
  const tensor = zeroTensor("f32", [1]);
  const args = new Arguments(operator.schema, [tensor, tensor]);

  it("chooses a kernel for the CPU that is asked about", () => {
    expect(operator.resolve(args, cpuWith("avx2")).kernel.name).toBe("fast");
    expect(operator.resolve(args, scalarCpu).kernel.name).toBe("slow");
    expect(operator.resolve(args, scalarCpu).scratchBytes(4)).toBe(40);
    expect(operator.resolve(args, scalarCpu).encode(new Uint8Array(0))).toBeNull();
  });
});

describe("OperatorRegistry", () => {
  const operator = defineOperator<unknown>({
    schema: "my::id.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    kernels: [row("slow", [])],
    shape: (args) => args.tensor("x"),
    prepare: () => ({}),
  });

  it("has what was registered", () => {
    const registry = new OperatorRegistry([operator]);
    expect(registry.get("my::id.out")).toBe(operator);
    expect([registry.has("my::id.out"), registry.has("my::id")]).toEqual([true, false]);
    expect([...registry]).toEqual([operator]);
  });

  it("a name means one operator", () => {
    expect(() => new OperatorRegistry([operator, operator])).toThrow(InvalidArgumentError);
  });

  it("an unknown name is an UnsupportedError that says what to do", () => {
    expect(() => new OperatorRegistry().get("my::other.out")).toThrow(UnsupportedError);
    expect(() => new OperatorRegistry().get("my::other.out")).toThrow(/my::other.out.*registerOperator/);
  });
});
