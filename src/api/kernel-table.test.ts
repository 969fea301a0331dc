/** The kernel table for an invented registry, so that the rows of this package may change freely. */
import { describe, expect, test } from "vitest";
import type { CpuFeature, Kernel } from "../kernels/contract.ts";
import { cpuWith } from "../kernels/cpu.ts";
import { defineOperator, OperatorRegistry } from "../ops/operator.ts";
import { operators } from "../ops/registry.ts";
import { type KernelChoice, kernelTable } from "./kernel-table.ts";

function kernel(name: string, bits: readonly number[], needs: readonly CpuFeature[], mStep: number): Kernel<object> {
  return { name, target: "reference", layouts: ["panel16"], bits, needs, mStep, nStep: 1, bind: () => () => {} };
}

const rows = [
  kernel("wide", [4], ["neon"], 4),
  kernel("narrow", [2, 3, 4], ["neon"], 1),
  kernel("plain", [1, 2, 3, 4], [], 1),
];

const registry = new OperatorRegistry(
  ["test::mul_8bit_act_2bit", "test::mul_8bit_act_4bit"].map((name) =>
    defineOperator<object>({
      schema: `${name}.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)`,
      kernels: rows,
      shape: () => ({ dtype: "f32", shape: [1] }),
      prepare: () => ({}),
    }),
  ),
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

  test("tells which kernel serves which call, with bits that are served alike together", () => {
    const { choices } = kernelTable(cpuWith("neon"), registry);
    const groupSizes: KernelChoice["groupSizes"] = [];
    const layout = "panel16";
    expect(choices).toEqual([
      { operator, layout, bits: [1], groupSizes, serving: [{ m: 1, kernel: "plain" }] },
      { operator, layout, bits: [2, 3], groupSizes, serving: [{ m: 1, kernel: "narrow" }] },
      {
        ...{ operator, layout, bits: [4], groupSizes },
        serving: [
          { m: 1, kernel: "narrow" },
          { m: 4, kernel: "wide" },
        ],
      },
    ]);
  });

  test("tells which group sizes are packed in a layout for a CPU", () => {
    const groupSizes = [32, 64, 128, 256, "axis"];
    expect(kernelTable(cpuWith("scalar"), registry).choices).toEqual([
      { operator, layout: "panel16", bits: [1, 2, 3, 4], groupSizes, serving: [{ m: 1, kernel: "plain" }] },
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
