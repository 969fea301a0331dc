/** The kernel table for an invented registry, so that the rows of this package may change freely. */
import { describe, expect, test } from "vitest";
import type { CpuFeature, Kernel } from "../kernels/contract.ts";
import { cpuWith } from "../kernels/cpu.ts";
import { defineOperator, type Operator } from "../ops/operator.ts";
import { OperatorRegistry } from "../ops/operator-registry.ts";
import { operators } from "../registry/operators.ts";
import { kernelTable } from "./kernel-table.ts";

function kernel(
  name: string,
  bits: readonly number[],
  needs: readonly CpuFeature[],
  mStep: number,
  changes: Partial<Kernel<object>> = {},
): Kernel<object> {
  const rest = { target: "reference", layouts: ["panel16"], nStep: 1, bind: () => () => {} } as const;
  return { ...rest, name, bits, needs, mStep, ...changes };
}

const rows = [
  kernel("wide", [4], ["neon"], 4),
  kernel("narrow", [2, 3, 4], ["neon"], 1),
  kernel("plain", [1, 2, 3, 4], [], 1),
];

function operatorNamed(name: string, kernels: readonly Kernel<object>[], isFused = false): Operator {
  return defineOperator<object>({
    schema: `${name}.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)`,
    ...{ kernels, isFused },
    shape: () => ({ dtype: "f32", shape: [1] }),
    prepare: () => ({}),
  });
}

const registry = new OperatorRegistry(
  ["test::mul_8bit_act_2bit", "test::mul_8bit_act_4bit"].map((name) => operatorNamed(name, rows)),
);

const operator = "test::mul_8bit_act_{b}bit.out";

describe("kernelTable", () => {
  test("lists the rows of operators that differ in their bits once, with reasons", () => {
    const { rows: listed, cpu } = kernelTable(cpuWith("scalar"), registry);
    expect(cpu).toBe("scalar");
    expect(listed.map((row) => [row.operator, row.kernel, row.refusal])).toEqual([
      [operator, "wide", "needs neon"],
      [operator, "narrow", "needs neon"],
      [operator, "plain", null],
    ]);
  });

  const groupSizes = [32, 64, 128, 256, "axis"] as const;

  test("tells which kernel serves which call, with bits that are served alike together", () => {
    const { choices } = kernelTable(cpuWith("neon"), registry);
    const what = { operator, layout: "panel16", groupSizes, packed: false };
    expect(choices).toEqual([
      { ...what, bits: [1], serving: [{ m: 1, kernel: "plain" }] },
      { ...what, bits: [2, 3], serving: [{ m: 1, kernel: "narrow" }] },
      {
        ...{ ...what, bits: [4] },
        serving: [
          { m: 1, kernel: "narrow" },
          { m: 4, kernel: "wide" },
        ],
      },
    ]);
  });

  test("tells which group sizes are packed in a layout for a CPU", () => {
    const serving = [{ m: 1, kernel: "plain" }];
    expect(kernelTable(cpuWith("scalar"), registry).choices).toEqual([
      { operator, layout: "panel16", bits: [1, 2, 3, 4], groupSizes, packed: true, serving },
    ]);
  });

  const limits = [
    { m: 4, longest: 32 },
    { m: 9, longest: 200 },
  ];
  const limited = [kernel("fast", [4], [], 4, { target: "wasm", groups: limits }), kernel("plain", [4], [], 1)];

  test("tells group sizes apart that are served by different kernels", () => {
    const table = kernelTable(cpuWith("scalar"), new OperatorRegistry([operatorNamed("test::mul", limited)]));
    const what = { operator: "test::mul.out", layout: "panel16", bits: [4], packed: true };
    const plain = { m: 1, kernel: "plain" };
    expect(table.choices).toEqual([
      { ...what, groupSizes: [32], serving: [plain, { m: 4, kernel: "fast" }] },
      { ...what, groupSizes: [64, 128], serving: [plain, { m: 9, kernel: "fast" }] },
      { ...what, groupSizes: [256, "axis"], serving: [plain] },
    ]);
    expect(table.rows.map(({ groups }) => groups)).toEqual([limits, null]);
  });

  test("shows no plain loop where calls would not be fused", () => {
    const joins = new OperatorRegistry([operatorNamed("test::join", limited, true)]);
    expect(kernelTable(cpuWith("scalar"), joins).choices.map((choice) => [choice.groupSizes, choice.serving])).toEqual([
      [
        [32],
        [
          { m: 1, kernel: null },
          { m: 4, kernel: "fast" },
        ],
      ],
      [
        [64, 128],
        [
          { m: 1, kernel: null },
          { m: 9, kernel: "fast" },
        ],
      ],
    ]);
  });

  test("lists native kernels of the CPU's architecture only", () => {
    const namesOf = (cpu: string) => {
      const { rows } = kernelTable(cpuWith(cpu), operators);
      return new Set(rows.filter(({ target }) => target === "native").map(({ needs }) => needs.includes("neon")));
    };
    expect(namesOf("scalar")).toEqual(new Set());
    expect(namesOf("neoverse-v2")).toEqual(new Set([true]));
    expect(namesOf("zen4")).toEqual(new Set([false]));
  });

  test("every operator of this package has a kernel for every call on any CPU", () => {
    const first = kernelTable(cpuWith("scalar"), operators).choices.map(({ serving }) => serving[0]!.m);
    expect(first.length).toBeGreaterThan(10);
    expect(new Set(first)).toEqual(new Set([1]));
  });
});
