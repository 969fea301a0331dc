/** CPUs by name, by features, and from the environment. */
import { afterEach, describe, expect, it, vi } from "vitest";
import { InvalidArgumentError } from "../errors.ts";
import { cpuWith, hostCpu, servingFeatures } from "./cpu.ts";
import { knownCpus } from "./known-cpus.ts";

afterEach(() => vi.unstubAllEnvs());

describe("CPUs by name", () => {
  it("a list of features", () => {
    expect([...cpuWith("neon,dotprod").features]).toEqual(["neon", "dotprod"]);
    expect(cpuWith("neon,dotprod").name).toBe("neon,dotprod");
    expect(cpuWith("scalar").features.size).toBe(0);
    expect(cpuWith("").name).toBe("scalar");
  });

  it("a name, and a name with features beside it", () => {
    expect([...cpuWith("neoverse-n1").features]).toEqual(["neon", "dotprod"]);
    expect(cpuWith("neoverse-n1").name).toBe("neoverse-n1");
    expect([...cpuWith("neoverse-n1, i8mm").features]).toEqual(["neon", "dotprod", "i8mm"]);
  });

  it.each(["neon,mmx", "constructor", "NEON", "skylake x"])("%s: what is expected is listed", (list) => {
    expect(() => cpuWith(list)).toThrow(InvalidArgumentError);
    expect(() => cpuWith(list)).toThrow(/CPU ".*": expected features \(simd128, .*\), .*neoverse-v2.* or scalar/);
  });

  it.each(Object.keys(knownCpus))("%s has what its features build on, of one architecture", (name) => {
    const { features } = cpuWith(name);
    expect(features.has("avx2")).toBe(!features.has("neon"));
    if (features.has("avx512_vnni")) expect(features.has("avx512")).toBe(true);
    if (features.has("amx_int8")) expect(features.has("avx512_bf16")).toBe(true);
    if (features.has("i8mm")) expect(features.has("dotprod")).toBe(true);
  });
});

describe("this machine", () => {
  it("has the features of LOWBIT_CPU that it has", () => {
    const all = hostCpu().features;
    vi.stubEnv("LOWBIT_CPU", "skylake-x,neon");
    const { name, features } = hostCpu();
    expect(name).toBe("skylake-x,neon");
    expect([...features]).toEqual([...all].filter((feature) => ["sse2", "avx2", "avx512", "neon"].includes(feature)));
    vi.stubEnv("LOWBIT_CPU", "scalar");
    expect(hostCpu().features.size).toBe(0);
  });

  it("without AVX2 is served by WebAssembly where that has vectors", () => {
    expect(servingFeatures(["sse2"], () => ["simd128"])).toEqual(["simd128"]);
    expect(servingFeatures(["sse2"], () => [])).toEqual(["sse2"]);
    for (const native of [["sse2", "avx2"], ["neon"]] as const)
      expect(servingFeatures(native, () => ["simd128"])).toEqual(native);
  });

  it("says which variable is wrong", () => {
    vi.stubEnv("LOWBIT_CPU", "pentium");
    expect(() => hostCpu()).toThrow(/^environment variable LOWBIT_CPU: CPU "pentium": expected features/);
    vi.stubEnv("LOWBIT_CPU", undefined);
    vi.stubEnv("LOWBIT_BACKEND", "Native");
    expect(() => hostCpu()).toThrow(
      'environment variable LOWBIT_BACKEND: expected one of native, wasm, reference but found "Native"',
    );
  });

  it("takes empty variables for missing ones", () => {
    for (const name of ["LOWBIT_CPU", "LOWBIT_BACKEND"]) vi.stubEnv(name, undefined);
    const { features } = hostCpu();
    for (const name of ["LOWBIT_CPU", "LOWBIT_BACKEND"]) vi.stubEnv(name, "");
    expect(hostCpu().features).toEqual(features);
  });
});
