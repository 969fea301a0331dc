import { describe, expect, it } from "vitest";
import { InvalidArgumentError, ShapeError, UnsupportedError } from "../errors.ts";
import type { Kernel } from "../kernels/contract.ts";
import { cpuWith, scalarCpu } from "../kernels/cpu.ts";
import { registerOperator } from "../registry/register.ts";
import { zeroTensor } from "../tensor.ts";
import { type Argument, Arguments, completeArguments, type TensorSpec } from "./call-arguments.ts";
import { defineOperator, type OperatorDefinition } from "./operator.ts";
import { OperatorRegistry } from "./operator-registry.ts";
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

  const lists = parseSchema("my::lists.out(int[] sizes, Tensor[] parts, str how, *, Tensor(a!) out) -> Tensor(a!)");
  it.each<[string, Argument<TensorSpec>[], string, typeof schema]>([
    ["a number for a tensor", [7], "x: expected a tensor but found 7", schema],
    ["a string for a number", [x, null, 3, "a"], "eps: expected a number but found a", schema],
    ["a fraction for a whole number", [x, null, 3.5], "n: expected a whole number but found 3.5", schema],
    ["a number for a truth value", [x, null, 3, 1, 1], "flip: expected true or false but found 1", schema],
    ["none where there must be one", [x, null, null], "n: expected a whole number but found null", schema],
    ["a list for a number", [x, null, 3, 0, false, [1]], "alpha: expected a number but found a list of 1", schema],
    ["a number for a list", [2, [x], "so"], "sizes: expected a list but found 2", lists],
    ["a number for a string", [[2], [x], 4], "how: expected a string but found 4", lists],
    ["a fraction in a list", [[2, 0.5], [x], "so"], "sizes, item 1: expected a whole number but found 0.5", lists],
    ["a number in a list of tensors", [[2], [3], "so"], "parts, item 0: expected a tensor but found 3", lists],
    ["none in a list of tensors", [[2], [x, null], "so"], "parts, item 1: expected a tensor but found null", lists],
  ])("%s is a ShapeError with operator and argument", (_, given, message, wanted) => {
    const name = wanted === schema ? "my::op.out" : "my::lists.out";
    expect(() => completeArguments(wanted, given)).toThrow(new ShapeError(`${name}, argument ${message}`));
  });

  it("takes lists as they are", () => {
    const given: Argument<TensorSpec>[] = [[2, 3], [x, x], "so"];
    expect(completeArguments(lists, given)).toEqual(given);
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
  const args = new Arguments(operator.schema, [zeroTensor("f32", [1]), zeroTensor("f32", [1])]);

  it("chooses a kernel for the CPU that is asked about", () => {
    expect(operator.resolve(args, cpuWith("avx2")).kernel.name).toBe("fast");
    expect(operator.resolve(args, scalarCpu).kernel.name).toBe("slow");
    expect(operator.resolve(args, scalarCpu).scratchBytes(4)).toBe(40);
    expect(operator.resolve(args, scalarCpu).encode(new Uint8Array(0))).toBeNull();
  });
});

describe("a definition is refused", () => {
  const definition: OperatorDefinition<unknown> = {
    schema: "my::id.out(Tensor x, int n, *, Tensor(a!) out) -> Tensor(a!)",
    kernels: [row("slow", [])],
    shape: (args) => args.tensor("x"),
    prepare: () => ({}),
  };

  it.each<[string, Partial<OperatorDefinition<unknown>>, RegExp]>([
    [
      "without a schema",
      { schema: undefined as never },
      /^registerOperator: expected schema, kernels, shape, prepare but found undefined as schema/,
    ],
    ["whose kernels are no list", { kernels: row("slow", []) as never }, /but found \{.*\} as kernels/],
    ["without a shape rule", { shape: undefined as never }, /but found undefined as shape/],
    ["without prepare", { prepare: undefined as never }, /but found undefined as prepare/],
    [
      "with a kernel that cannot be bound",
      { kernels: [{ ...row("slow", []), bind: undefined as never }] },
      /registerOperator, my::id.out.*, a kernel: expected name, target, needs, mStep, nStep, bind but found undefined as bind/,
    ],
    ["with a kernel of no rows", { kernels: [{ ...row("slow", []), mStep: 0 }] }, /but found 0 as mStep/],
    ["without kernels", { kernels: [] }, /operator my::id.out: expected at least one kernel/],
    ["whose last kernel needs a CPU", { kernels: [row("fast", ["avx2"])] }, /last kernel .* fast, which needs avx2/],
    [
      "whose last kernel needs several rows",
      { kernels: [{ ...row("tile", []), mStep: 4 }] },
      /last kernel .* tile, which serves m >= 4/,
    ],
    ...(
      [
        ["int[] d=1", "a list as default but found 1"],
        ["bool d=3", "true or false as default but found 3"],
        ["int d=1.5", "a whole number as default but found 1.5"],
        ["int d=None", "a whole number as default but found null"],
        ["Tensor? d=1", "a tensor as default but found 1"],
      ] as const
    ).map(([argument, problem]): [string, Partial<OperatorDefinition<unknown>>, RegExp] => [
      `with the argument ${argument}`,
      { schema: `my::id.out(Tensor x, ${argument}, *, Tensor(a!) out) -> Tensor(a!)` },
      new RegExp(`operator my::id.out, argument d: expected ${problem}$`),
    ]),
    ["that names rows of no argument", { rowwise: ["y"] }, /tensors of its schema \(x\) in .*rowwise.* but found y/],
    ["that is written over a number", { inPlace: ["n"] }, /but found n$/],
    ["that is written over its result", { inPlace: ["out"] }, /but found out$/],
    ["with indices in no argument", { indices: { argument: "i", limit: () => 1 } }, /indices but found i$/],
  ])("%s", (_, part, message) => {
    const make = () => registerOperator({ ...definition, ...part });
    expect(make).toThrow(InvalidArgumentError);
    expect(make).toThrow(message);
  });

  it("when it is none", () => {
    expect(() => registerOperator(undefined as never)).toThrow(InvalidArgumentError);
  });

  it.each<[string, unknown, string]>([
    ["nothing", undefined, "but found undefined"],
    ["no sizes", { dtype: "f32" }, "as sizes but found [undefined]"],
    ["another library's dtype", { dtype: "float32", shape: [2] }, "but found float32"],
    ["a fraction as a size", { dtype: "f32", shape: [2.5] }, "whole numbers from 0 on as sizes but found [2.5]"],
    ["a size below 0", { dtype: "f32", shape: [1, -2] }, "whole numbers from 0 on as sizes but found [1,-2]"],
  ])("when its shape rule gives %s", (_, spec, message) => {
    const operator = defineOperator({ ...definition, shape: () => spec as TensorSpec });
    const call = () => operator.shape(new Arguments<TensorSpec>(operator.schema, [x, 1]));
    expect(call).toThrow(InvalidArgumentError);
    expect(call).toThrow(/^my::id.out, result of its shape rule: expected /);
    expect(call).toThrow(message);
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
    const registry = new OperatorRegistry([operator]);
    expect(() => registry.get("my::id")).toThrow("operator my::id is not registered; expected my::id.out");
    expect(() => registry.get("my::i")).toThrow(/my::i is not registered; register it/);
  });
});
