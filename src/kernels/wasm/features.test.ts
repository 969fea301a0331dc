/** What this engine is found to do, as far as that is known from elsewhere. */
import { describe, expect, it, vi } from "vitest";
import { nativeFeatures } from "../native/rows.ts";
import { webAssembly } from "./engine/web-assembly.ts";
import { wasmFeatureNames, wasmFeatures } from "./features.ts";

const features = new Set(wasmFeatures());

describe("features of this engine", () => {
  it("are in the order of the table", () => {
    expect([...features]).toEqual(wasmFeatureNames.filter((name) => features.has(name)));
  });

  it("have a way to multiply for every engine with relaxed SIMD", () => {
    const isKnown = features.has("relaxed_dot") || !features.has("relaxed_dot16") || features.has("split_dot");
    expect(isKnown).toBe(true);
  });

  it.skipIf(process.arch !== "x64" || nativeFeatures().length === 0)("dot products are whole on AVX-VNNI alone", () => {
    if (!nativeFeatures().includes("avx_vnni")) expect(features).toContain("split_dot");
  });

  it.skipIf(process.arch !== "arm64")("dot products are whole on Arm", () => {
    if (features.has("relaxed_dot")) expect(features).not.toContain("split_dot");
  });

  it("are none where the engine gives no memory", async () => {
    vi.resetModules();
    class Refused {
      constructor() {
        throw new RangeError("WebAssembly.Memory(): could not allocate memory");
      }
    }
    const memory = vi.spyOn(webAssembly!, "Memory").mockImplementation(Refused as never);
    const anew = await import("./features.ts");
    expect(anew.wasmFeatures()).toEqual([]);
    memory.mockRestore();
  });
});
