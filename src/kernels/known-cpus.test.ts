/** What selection chooses, from the rows of all architectures, on CPUs that need not be here. */
import { describe, expect, it } from "vitest";
import { neverChosen, passedOver } from "../../test/support/passed-over.ts";
import type { WeightSpec } from "../quantized.ts";
import type { Kernel } from "./contract.ts";
import { cpuWith, hostCpu } from "./cpu.ts";
import * as table from "./families/index.ts";
import { panel16 } from "./layout/panel16.ts";
import { nativeAddon } from "./native/addon.ts";
import { featureBits } from "./native/interface.ts";
import { knownRows } from "./native/known-rows.ts";
import { packedQuery, selectKernel, selectLayout } from "./select.ts";

const families = Object.values(table) as unknown as (readonly Kernel<never>[])[];

/** The last part of a kernel's name: what it is compiled for. */
function targetOf(kernels: readonly Kernel<never>[], cpuName: string, m: number, bits: number | null = null): string {
  const cpu = cpuWith(cpuName);
  const layout = bits === null ? null : selectLayout({ ...weights, bits }, cpu).name;
  return /\d+x\d+x\d+_(\w+)$/.exec(selectKernel(kernels, { layout, bits, m }, cpu).name)![1]!;
}

const weights: Omit<WeightSpec, "bits"> = {
  ...{ n: 512, k: 512, groupSize: 32, hasZeros: false, hasLevels: false, scaleDType: "f16" },
};

describe("4-bit linear layers of groups of 32", () => {
  it.each([
    ["scalar", "panel16", "reference", "reference", "reference"],
    ["haswell", "panel16", "avx2", "avx2", "avx2"],
    ["skylake", "panel16", "avx2", "avx2", "avx2"],
    ["zen3", "panel16", "avx2", "avx2", "avx2"],
    ["alder-lake", "panel16", "avx_vnni", "avx_vnni", "avx_vnni"],
    ["zen4", "panel16", "avx512_vnni", "avx512_vnni", "avx512_vnni"],
    ["cascade-lake", "panel16", "avx512_vnni", "avx512_vnni", "avx512_vnni"],
    ["sapphire-rapids", "panel16", "avx512_vnni", "avx512_vnni", null],
    ["cortex-a53", "panel32", "neon", "neon", "neon"],
    ["cortex-a76", "panel32", "neon_dotprod", "neon_dotprod", "neon_dotprod"],
    ["neoverse-n1", "panel32", "neon_dotprod", "neon_dotprod", "neon_dotprod"],
    ["apple-m1", "panel32", "neon_dotprod", "neon_dotprod", "neon_dotprod"],
    ["neoverse-n2", "panel32", "neon_dotprod", "neon_i8mm", "neon_i8mm"],
    ["neoverse-v1", "panel32", "neon_dotprod", "neon_i8mm", "neon_i8mm"],
    ["neoverse-v2", "panel32", "neon_dotprod", "neon_i8mm", "neon_i8mm"],
    ["apple-m2", "panel32", "neon_dotprod", "neon_i8mm", "neon_i8mm"],
    ["apple-m4", "panel32", "neon_dotprod", "neon_i8mm", "sme2"],
    ["arm-c1", "panel32", "neon_dotprod", "neon_i8mm", "sme2"],
  ])("%s: %s; m = 1: %s, m = 4: %s, m = 512: %s", (cpu, layout, ...targets) => {
    expect(selectLayout({ ...weights, bits: 4 }, cpuWith(cpu)).name).toBe(layout);
    for (const [i, m] of [1, 4, 512].entries())
      for (const kernels of targets[i] === null ? [] : [table.linearA8, table.linearA8Blocks])
        expect([m, targetOf(kernels, cpu, m, 4)]).toEqual([m, targets[i]]);
  });

  it("of a machine with AVX-512 but no VNNI need no VNNI", () => {
    for (const m of [1, 8, 512]) expect(targetOf(table.linearA8, "skylake-x", m, 4)).toMatch(/^avx(2|512)$/);
  });
});

describe("linear layers in WebAssembly", () => {
  it.each([
    ["simd128,relaxed_dot,relaxed_dot16", "wasm_relaxed"],
    ["simd128,relaxed_dot,relaxed_dot16,split_dot", "wasm_relaxed16"],
    ["simd128,relaxed_dot16,split_dot", "wasm_relaxed16"],
    ["simd128,relaxed_dot", "wasm_relaxed"],
    ["simd128", "wasm_simd"],
  ])("with %s: %s", (features, target) => {
    for (const bits of [1, 4, 8])
      for (const m of [1, 4, 512])
        for (const kernels of [table.linearA8, table.linearA8Blocks])
          expect(targetOf(kernels, features, m, bits)).toBe(target);
  });
});

/** Exact sums of groups where they are as fast; else weights in two planes of bytes. */
const [exact, planes] = ["linear_a8_wx_16x16x64_amx_int8", "linear_a8_wx_32x16x64_amx_int8"];

describe("linear layers on AMX, by groups", () => {
  it.each([
    [16, 32, exact],
    [31, 32, exact],
    [32, 32, planes],
    [32, 64, exact],
    [127, 64, exact],
    [128, 64, planes],
    [512, 128, planes],
    [512, 256, exact],
    [512, 2048, exact],
  ])("m = %i, group %i: %s", (m, groupSize, name) => {
    const cpu = cpuWith("sapphire-rapids");
    for (const bits of [2, 4, 8]) {
      const spec = { ...weights, bits, k: 2048, groupSize };
      expect(selectKernel(table.linearA8, packedQuery({ layout: panel16, spec }, m), cpu).name).toBe(name);
    }
  });
});

it.each([16, 32, 128, 2048])(
  "linear layers of activations in blocks on AMX: bf16 from 32 rows on, groups of %i",
  (groupSize) => {
    const spec = { ...weights, bits: 4, k: 2048, groupSize };
    const nameFor = (m: number) =>
      selectKernel(table.linearA8Blocks, packedQuery({ layout: panel16, spec }, m), cpuWith("sapphire-rapids")).name;
    expect([1, 16, 32, 512].map(nameFor)).toEqual([
      "linear_a8b32_wx_1x128x4_avx512_vnni",
      "linear_a8b32_wx_16x32x4_avx512_vnni",
      "linear_a8b32_wx_32x32x32_amx_bf16",
      "linear_a8b32_wx_32x32x32_amx_bf16",
    ]);
  },
);

describe("linear layers on AMX, by groups with minima or integer scales", () => {
  const sums = "linear_a8_wx_16x32x4_avx512_vnni";
  it.each([
    [31, 16, sums],
    [32, 16, planes],
    [31, 32, sums],
    [32, 32, planes],
    [127, 64, sums],
    [128, 64, planes],
    [512, 256, sums],
  ])("m = %i, group %i: %s", (m, groupSize, name) => {
    const cpu = cpuWith("sapphire-rapids");
    const spec: WeightSpec = { ...weights, bits: 2, k: 2048, groupSize, hasMinima: true };
    const specs = groupSize > 32 ? [spec] : [spec, { ...spec, scaleDType: "i8" as const }];
    for (const each of specs)
      expect(selectKernel(table.linearA8, packedQuery({ layout: panel16, spec: each }, m), cpu).name).toBe(name);
  });
});

const { attention, rmsNorm, rope, gate, add, softmax, argmax } = table;

describe.each(Object.entries({ attention, rmsNorm, rope, gate, add, softmax, argmax }))("%s", (_, kernels) => {
  it.each([
    ["scalar", "reference"],
    ["sse2", "sse2"],
    ["haswell", "avx2"],
    ["alder-lake", "avx2"],
    ["skylake-x", "avx512"],
    ["zen4", "avx512"],
    ["sapphire-rapids", "avx512"],
    ["cortex-a53", "neon"],
    ["neoverse-v2", "neon"],
  ])("of one token on %s: %s", (cpu, target) => {
    expect(targetOf(kernels as unknown as readonly Kernel<never>[], cpu, 1)).toBe(target);
  });
});

/** Of 16 to 31 rows on AMX, whose row of many begins at 32: a row of many is faster than AMX CPUs' row of one. */
const exceptions: Record<string, readonly string[]> = {
  linearA8Blocks: ["linear_a8b32_wx_16x32x4_avx512_vnni for linear_a8b32_wx_1x128x4_avx512_vnni"],
};

it.each(Object.entries(table))("no row of %s is passed over for one that needs less of a CPU", (family, kernels) => {
  expect([...passedOver(kernels as unknown as readonly Kernel<never>[])]).toEqual(exceptions[family] ?? []);
});

it.each(Object.entries(table))(
  "every row of %s is chosen for some call, but for those that NEON has faster",
  (_, kernels) => {
    const rows = neverChosen(kernels as unknown as readonly Kernel<never>[]);
    expect(rows.filter((name) => !/^linear_a8(b32)?_wx_1x(16|32)x1_neon$/.test(name))).toEqual([]);
  },
);

describe("rows of machines that are not here", () => {
  const own = new Set(
    nativeAddon()
      ?.kernels()
      .map(({ name }) => name),
  );
  const absent = families.flat().filter(({ name, target }) => target === "native" && !own.has(name));

  it("are never chosen for this one", () => {
    for (const kernel of absent) {
      const missing = kernel.needs.filter((feature) => !hostCpu().features.has(feature));
      expect(missing, kernel.name).not.toEqual([]);
    }
  });

  it("say so when they are run", () => {
    expect(absent.length).toBeGreaterThan(0);
    expect(() => absent[0]!.bind(undefined as never, new Uint8Array(0), 1)).toThrow(/not in the native addon of this/);
  });
});

describe("the known rows", () => {
  it.skipIf(nativeAddon() === null)("are those of this machine's addon (npm run rows writes them)", () => {
    const rows = nativeAddon()!
      .kernels()
      .filter(({ family }) => !/^(gptq|measure|quantize|vocabulary)_/.test(family));
    // An addon of `npm install` has the rows of instruction sets that this CPU has, one of scripts/native/build.js --strict all.
    const built = rows.reduce((bits, { needs }) => bits | needs, 0);
    expect(knownRows[process.arch]!.filter(({ needs }) => (needs & ~built) === 0)).toEqual(rows);
    const runs = knownRows[process.arch]!.filter(({ needs }) => (needs & ~nativeAddon()!.cpuFeatures()) === 0);
    expect(rows).toEqual(expect.arrayContaining(runs));
  });

  it.each([
    ["x64", /^(sse2|avx|amx)/],
    ["arm64", /^(neon|dotprod|i8mm|bf16|sme2)/],
  ])("of %s need features of that architecture, and at least one", (architecture, names) => {
    for (const { name, needs } of knownRows[architecture]!) {
      const features = featureBits.filter((_, bit) => (needs >> bit) & 1);
      expect(features.length > 0 && features.every((feature) => names.test(feature)), `${name}: ${features}`).toBe(
        true,
      );
    }
  });
});
