/** The kernel table for an invented registry, so that the rows of this package may change freely. */
import { describe, expect, test } from "vitest";
import type { CpuFeature, Kernel } from "../kernels/contract.ts";
import { cpuWith } from "../kernels/cpu.ts";
import { defineOperator, OperatorRegistry } from "../ops/operator.ts";
import { operators } from "../ops/registry.ts";
import { kernelTable } from "./kernel-table.ts";

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
    const all = (name: string) => ({ 1: name, 4: name, 32: name });
    expect(choices).toEqual([
      { operator, layout: "panel16", bits: [1], byRows: all("plain") },
      { operator, layout: "panel16", bits: [2, 3], byRows: all("narrow") },
      { operator, layout: "panel16", bits: [4], byRows: { 1: "narrow", 4: "wide", 32: "wide" } },
    ]);
    expect(kernelTable(cpuWith("scalar"), registry).choices).toEqual([
      { operator, layout: "panel16", bits: [1, 2, 3, 4], byRows: all("plain") },
    ]);
  });

  test("every operator of this package has a kernel for every call on any CPU", () => {
    const names = kernelTable(cpuWith("scalar"), operators).choices.flatMap(({ byRows }) => Object.values(byRows));
    expect(names.length).toBeGreaterThan(10);
    expect(names).not.toContain(null);
  });
});
