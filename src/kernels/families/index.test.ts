/** Rules for every row of the kernel table. */
import { describe, expect, it } from "vitest";
import { UnsupportedError } from "../../errors.ts";
import type { CpuFeature, Kernel } from "../contract.ts";
import { scalarCpu } from "../cpu.ts";
import { layouts } from "../layout/packed.ts";
import { nativeFeatures } from "../native/rows.ts";
import * as table from "./index.ts";

const families = Object.entries(table) as unknown as [string, readonly Kernel<never>[]][];
const rows = families.flatMap(([, kernels]) => kernels);

/** `<operator>_<types>_<m>x<n>x<k>_<target>` */
const NAME =
  /^(?<operator>[a-z][a-z0-9]*(?:_[a-z][a-z0-9]*)*?)_(?<types>(?:a8|any|f32|f16|bf16|wx|w[1-8])(?:_(?:f32|f16|bf16|wx|w[1-8]))*)_(?<m>\d+)x(?<n>\d+)x(?<k>\d+)_(?<target>[a-z0-9]+(?:_[a-z0-9]+)*)$/;

/** The last part of native kernels' names, and features that such a kernel needs. */
const NATIVE_TARGETS: Readonly<Record<string, readonly CpuFeature[]>> = {
  sse2: ["sse2"],
  avx2: ["avx2"],
  avx_vnni: ["avx2", "avx_vnni"],
  avx512: ["avx2", "avx512"],
  avx512_vnni: ["avx2", "avx512", "avx512_vnni"],
  avx512_bf16: ["avx2", "avx512", "avx512_bf16"],
  amx: ["avx2", "avx512"],
  amx_int8: ["avx2", "avx512", "amx_int8"],
  amx_bf16: ["avx2", "avx512", "amx_bf16"],
  neon: ["neon"],
  neon_dotprod: ["neon", "dotprod"],
  neon_i8mm: ["neon", "dotprod", "i8mm"],
  neon_bf16: ["neon", "bf16"],
  sme2: ["neon", "dotprod", "i8mm", "sme2"],
};

describe.each(rows.map((kernel) => [kernel.name, kernel] as const))("%s", (name, kernel) => {
  it("is named by the grammar, with its true tile", () => {
    const parts = NAME.exec(name)?.groups;
    expect(parts, "<operator>_<types>_<m>x<n>x<k>_<target>").toBeDefined();
    expect([Number(parts!.m), Number(parts!.n)]).toEqual([kernel.mStep, kernel.nStep]);
    expect(kernel.target === "reference").toBe(parts!.target === "reference");
  });

  it("is named for the bits that it takes and for features that it needs", () => {
    const { types, target } = NAME.exec(name)!.groups!;
    const bits = /(?<=_|^)w([1-8])$/.exec(types!);
    if (bits) expect(kernel.bits ?? [Number(bits[1])]).toEqual([Number(bits[1])]);
    if (kernel.target !== "native") return;
    const features = NATIVE_TARGETS[target!];
    expect(features, `target ${target}: expected one of ${Object.keys(NATIVE_TARGETS).join(", ")}`).toBeDefined();
    for (const feature of features!) expect(kernel.needs).toContain(feature);
  });

  it("claims layouts and bits that exist", () => {
    const known = [...layouts.map((layout) => layout.name), "torchao_embedding"];
    for (const layout of kernel.layouts ?? []) expect(known).toContain(layout);
    for (const bits of kernel.bits ?? []) expect([1, 2, 3, 4, 5, 6, 7, 8]).toContain(bits);
    expect(kernel.layouts === null).toBe(kernel.bits === null);
  });
});

it("names are unique", () => {
  expect(new Set(rows.map(({ name }) => name)).size).toBe(rows.length);
});

describe.each(families)("family %s", (_, kernels) => {
  it("ends with a reference row that runs everywhere", () => {
    const last = kernels.at(-1)!;
    expect([last.target, last.needs, last.mStep]).toEqual(["reference", [], 1]);
    if (last.bits) expect(last.bits).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(kernels.filter(({ target }) => target === "reference").length).toBe(1);
  });

  it("has one operator", () => {
    expect(new Set(kernels.map(({ name }) => NAME.exec(name)!.groups!.operator)).size).toBe(1);
  });
});

it("native rows for other CPUs can be chosen, and say why they do not run", () => {
  const here = new Set(nativeFeatures());
  const others = rows.filter(
    ({ target, needs }) => target === "native" && !needs.every((feature) => here.has(feature)),
  );
  expect(others.length).toBeGreaterThan(0);
  for (const { name, bind, encode } of others) {
    expect(encode, name).toBeUndefined();
    const run = () => bind({} as never, new Uint8Array(0), 1);
    expect(run, name).toThrow(UnsupportedError);
    expect(run).toThrow(
      /(is not in the native addon of this machine|needs [a-z0-9_, ]+, which this CPU does not have): choose kernels/,
    );
  }
});

it("the scalar CPU has no features", () => {
  expect(scalarCpu.features.size).toBe(0);
});
