/** Selection is a pure function: invented rows on invented CPUs. */
import { describe, expect, it } from "vitest";
import { UnsupportedError } from "../errors.ts";
import type { WeightSpec } from "../quantized.ts";
import type { Cpu, CpuFeature, Kernel, KernelQuery } from "./contract.ts";
import { cpuWith, scalarCpu } from "./cpu.ts";
import { panel16 } from "./layout/panel16.ts";
import { explain, kernelRefusal, packedQuery, selectableLayouts, selectKernel, selectLayout } from "./select.ts";

const bind = () => () => {};

function row(
  name: string,
  mStep: number,
  needs: CpuFeature[],
  changes: Partial<Kernel<unknown>> = {},
): Kernel<unknown> {
  const base = { target: "native", layouts: ["panel16"], bits: [1, 2, 3, 4, 5, 6, 7, 8], nStep: 16, bind } as const;
  return { ...base, name, mStep, needs, ...changes };
}

const rows = [
  row("gemm_amx", 16, ["amx_int8"], { bits: [4, 8] }),
  row("gemm_vnni", 4, ["avx512_vnni"]),
  row("gemv_vnni", 1, ["avx512_vnni"]),
  row("gemv_vnni_again", 1, ["avx512_vnni"]),
  row("gemv_avx2", 1, ["avx2"]),
  row("gemm_i8mm", 8, ["neon", "i8mm"]),
  row("gemv_neon", 1, ["neon"]),
  row("reference", 1, [], { target: "reference", layouts: ["panel16", "torchao_universal"] }),
];

const query = (m: number, changes: Partial<KernelQuery> = {}): KernelQuery => ({
  layout: "panel16",
  bits: 4,
  m,
  ...changes,
});
const xeon = cpuWith("avx2,avx512,avx512_vnni,amx_int8");

describe("the first row that serves", () => {
  it.each<[string, number, string]>([
    ["avx2,avx512,avx512_vnni,amx_int8", 1, "gemv_vnni"],
    ["avx2,avx512,avx512_vnni,amx_int8", 3, "gemv_vnni"],
    ["avx2,avx512,avx512_vnni,amx_int8", 4, "gemm_vnni"],
    ["avx2,avx512,avx512_vnni,amx_int8", 15, "gemm_vnni"],
    ["avx2,avx512,avx512_vnni,amx_int8", 16, "gemm_amx"],
    ["avx2,avx512,avx512_vnni,amx_int8", 512, "gemm_amx"],
    ["avx2,avx512,avx512_vnni", 512, "gemm_vnni"],
    ["avx2", 512, "gemv_avx2"],
    ["neon", 512, "gemv_neon"],
    ["i8mm", 512, "reference"],
    ["neon,i8mm", 7, "gemv_neon"],
    ["neon,i8mm", 8, "gemm_i8mm"],
    ["", 1, "reference"],
    ["scalar", 99, "reference"],
  ])("on %s, m = %i: %s", (features, m, expected) => {
    expect(selectKernel(rows, query(m), cpuWith(features)).name).toBe(expected);
  });

  it("is not looked for among later rows, whatever m those are for", () => {
    expect(selectKernel(rows.toReversed(), query(16), xeon).name).toBe("reference");
    expect(selectKernel([rows[2]!, rows[0]!], query(16), xeon).name).toBe("gemv_vnni");
  });

  it("bits and layout must be among those that a row reads", () => {
    expect(selectKernel(rows, query(16, { bits: 3 }), xeon).name).toBe("gemm_vnni");
    expect(selectKernel(rows, query(16, { layout: "torchao_universal" }), xeon).name).toBe("reference");
  });

  it("operators without packed weights ask with null", () => {
    expect(selectKernel(rows, { layout: null, bits: null, m: 1 }, xeon).name).toBe("gemv_vnni");
  });
});

describe("groups of weights", () => {
  const limited = [
    row("short", 32, [], {
      groups: [
        { m: 32, longest: 32 },
        { m: 128, longest: 224 },
      ],
    }),
    row("long", 16, []),
  ];

  it.each([
    [16, 32, "long"],
    [32, 32, "short"],
    [32, 33, "long"],
    [127, 64, "long"],
    [128, 64, "short"],
    [128, 224, "short"],
    [128, 225, "long"],
    [999, 2048, "long"],
    [999, undefined, "short"],
  ])("m = %i, group %s: %s", (m, group, name) => {
    expect(selectKernel(limited, query(m, group === undefined ? {} : { group }), xeon).name).toBe(name);
  });

  it("are what the weights have: at most k", () => {
    const spec = {
      bits: 4,
      n: 8,
      k: 48,
      groupSize: 1000,
      hasZeros: false,
      hasLevels: false,
      scaleDType: "f32",
    } as const;
    expect(packedQuery({ layout: panel16, spec }, 7)).toEqual({ layout: "panel16", bits: 4, m: 7, group: 48 });
    expect(packedQuery({ layout: panel16, spec: { ...spec, groupSize: 32 } }, 7).group).toBe(32);
  });

  it("are part of the reason", () => {
    expect(kernelRefusal(limited[0]!, query(64, { group: 64 }), xeon)).toBe(
      "serves groups of at most 32 for m >= 32, 224 for m >= 128",
    );
  });
});

describe("why", () => {
  it("each row has its reason", () => {
    const reasons = rows.map((kernel) => kernelRefusal(kernel, query(2, { bits: 5 }), cpuWith("neon")));
    expect(reasons).toEqual([
      "needs amx_int8",
      "needs avx512_vnni",
      "needs avx512_vnni",
      "needs avx512_vnni",
      "needs avx2",
      "needs i8mm",
      null,
      null,
    ]);
    expect(kernelRefusal(rows[0]!, query(16, { bits: 5 }), xeon)).toBe("takes 4, 8 bits");
    expect(kernelRefusal(rows[0]!, query(15), xeon)).toBe("serves m >= 16");
    expect(kernelRefusal(rows[0]!, query(16, { layout: "other" }), xeon)).toBe("reads panel16");
    expect(kernelRefusal(rows[5]!, query(16), scalarCpu)).toBe("needs neon, i8mm");
  });

  it("explain says it of all, in order", () => {
    const text = explain([rows[1]!, rows[7]!], query(1), cpuWith("avx512_vnni"));
    expect(text).toBe("gemm_vnni serves m >= 4; reference serves");
  });

  it("no kernel at all: UnsupportedError lists every candidate", () => {
    const cpu: Cpu = { name: "toaster", features: new Set() };
    expect(() => selectKernel([rows[0]!, rows[4]!], query(2), cpu)).toThrow(
      new UnsupportedError(
        "no kernel for panel16 layout, 4 bits, m = 2 on toaster: gemm_amx needs amx_int8; gemv_avx2 needs avx2",
      ),
    );
  });
});

describe("the layout to pack in", () => {
  const spec: WeightSpec = {
    bits: 4,
    n: 8,
    k: 64,
    groupSize: 32,
    hasZeros: false,
    hasLevels: false,
    scaleDType: "f16",
  };

  it("is, on one CPU or another, one of these", () => {
    const names = (weights: WeightSpec) => selectableLayouts(weights).map(({ name }) => name);
    expect(names(spec)).toEqual(["panel32", "panel16"]);
    expect(() => names({ ...spec, bits: 8, hasLevels: true })).toThrow(UnsupportedError);
  });

  it.each([
    ["scalar", "panel16"],
    ["avx2,avx512", "panel16"],
    ["neon", "panel32"],
    ["neon,dotprod,i8mm", "panel32"],
  ])("is the first made for the CPU that can store the weights: on %s %s", (features, name) => {
    expect(selectLayout(spec, cpuWith(features)).name).toBe(name);
    expect(selectLayout({ ...spec, scaleDType: "f32" }, cpuWith(features)).name).toBe(name);
  });

  it("none: UnsupportedError says why for each", () => {
    expect(() => selectLayout({ ...spec, bits: 8, hasLevels: true }, scalarCpu)).toThrow(UnsupportedError);
    expect(() => selectLayout({ ...spec, bits: 8, hasLevels: true }, scalarCpu)).toThrow(
      /8-bit weights \[8, 64\]: panel16: codebooks of more than 4 bits .*; torchao_universal: codebooks are not stored/,
    );
  });
});
