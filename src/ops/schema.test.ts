import { describe, expect, it } from "vitest";
import { InvalidArgumentError } from "../errors.ts";
import { parseSchema, qualifiedName } from "./schema.ts";

describe("parseSchema", () => {
  it("reads names, types, defaults and what is written", () => {
    const schema = parseSchema(
      "lowbit::attention.out(Tensor q, Tensor(a!) cache, Tensor? mask=None, int window=0, float softcap=0.5, bool flip=False, int[] dims, Tensor[] parts, str how, *, Scalar alpha=1, Tensor(c!) out) -> Tensor(c!)",
    );
    expect(qualifiedName(schema)).toBe("lowbit::attention.out");
    expect(schema.args.map(({ name, type }) => `${type} ${name}`)).toEqual([
      "Tensor q",
      "Tensor cache",
      "Tensor? mask",
      "int window",
      "float softcap",
      "bool flip",
      "int[] dims",
      "Tensor[] parts",
      "str how",
      "Scalar alpha",
      "Tensor out",
    ]);
    expect(schema.args.map((arg) => arg.default)).toEqual([
      undefined,
      undefined,
      null,
      0,
      0.5,
      false,
      undefined,
      undefined,
      undefined,
      1,
      undefined,
    ]);
    expect(schema.args.filter(({ mutable }) => mutable).map(({ name }) => name)).toEqual(["cache", "out"]);
    expect(schema.args.filter(({ isOut }) => isOut).map(({ name }) => name)).toEqual(["out"]);
  });

  it("takes SymInt as int, sized lists as lists, any spaces and no overload", () => {
    const schema = parseSchema("  my::op( SymInt n,int[2] pad , *,Tensor(a!) out )->Tensor(a!)");
    expect(schema.args.map(({ type }) => type)).toEqual(["int", "int[]", "Tensor"]);
    expect([schema.name, schema.overload, qualifiedName(schema)]).toEqual(["my::op", "", "my::op"]);
  });

  it("reads strings and lists as defaults, and one number for all of a sized list", () => {
    const { args } = parseSchema(
      `my::op.out(Tensor x, str how="a, b", str? other='[c]', int[] sizes=[1, -2], int[] none=[], int[2] stride=3, int[2]? pad=[0,1], int[]? dim=None, *, Tensor(a!) out) -> Tensor(a!)`,
    );
    expect(args.slice(1, -1).map((arg) => arg.default)).toEqual(["a, b", "[c]", [1, -2], [], [3, 3], [0, 1], null]);
  });

  it("reads an operator without inputs", () => {
    expect(parseSchema("my::zeros.out(*, Tensor(a!) out) -> Tensor(a!)").args).toHaveLength(1);
  });

  it.each([
    ["", /expected "ns::name.out\(Tensor x, …\) -> Tensor\(a!\)"/],
    ["my::op(Tensor x)", /expected "ns::name.out/],
    ["op.out(*, Tensor(a!) out) -> Tensor(a!)", /expected a name such as ns::name/],
    ["a::b::c.out(*, Tensor(a!) out) -> Tensor(a!)", /expected a name such as ns::name/],
    ["my::op.out(Tensor x) -> Tensor", /exactly one out argument after "\*"/],
    ["my::op.out(Tensor x, Tensor(a!) out) -> Tensor(a!)", /exactly one out argument after "\*"/],
    [
      "my::op.out(*, Tensor(a!) out) -> Tensor(b!)",
      /expected the out argument, Tensor\(a!\), as the result but found Tensor\(b!\)/,
    ],
    ["my::op.out(*, Tensor(a!) out) -> int", /as the result but found int/],
    ["my::op.out(*, Tensor(a!) out, Tensor(b!) out2) -> Tensor(a!)", /exactly one out argument/],
    [
      "my::op.out(Tensor x, *, Tensor(a!) out, int n) -> Tensor(a!)",
      /exactly one out argument after .*, the last of all/,
    ],
    ["my::op.out(Matrix x, *, Tensor(a!) out) -> Tensor(a!)", /argument type "Matrix", expected one of Tensor,/],
    ["my::op.out(Tensor, *, Tensor(a!) out) -> Tensor(a!)", /cannot read argument "Tensor"/],
    [
      "my::op.out(int n=five, *, Tensor(a!) out) -> Tensor(a!)",
      /argument n: expected a number, True, False or None as default but found five/,
    ],
    [
      "my::op.out(str s=linear, *, Tensor(a!) out) -> Tensor(a!)",
      /argument s: expected a string in quotes or numbers in brackets as default/,
    ],
    [
      "my::op.out(int[] d=[1, b], *, Tensor(a!) out) -> Tensor(a!)",
      /numbers in brackets as default but found \[1, b\]/,
    ],
    ["my::op.out(Tensor x, int x, *, Tensor(a!) out) -> Tensor(a!)", /two arguments named x/],
    [`my::${"o".repeat(100)}.out(*, Tensor(a!) out) -> Tensor(a!)`, /at most 100 characters/],
  ])("%s is refused with a reason", (text, message) => {
    expect(() => parseSchema(text)).toThrow(message);
    expect(() => parseSchema(text)).toThrow(InvalidArgumentError);
  });
});
