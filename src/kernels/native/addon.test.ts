/** Which addon serves: what does not fit or is missing is passed over, with a word at info level on what to do. */
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { CpuFeature } from "../contract.ts";
import { NATIVE_ABI } from "./abi.ts";
import { featureBits, type NativeAddon } from "./interface.ts";
import { knownRows } from "./known-rows.ts";

const built = fileURLToPath(new URL("../../../build/lowbit.node", import.meta.url));
/** The checkout's own addon, as far as there is one in ELF's format. */
const existing = process.platform === "linux" && fs.existsSync(built) ? built : null;

let folder: string;
let lines: string[];

beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "lowbit-addon-"));
  lines = [];
  vi.spyOn(console, "error").mockImplementation((line) => void lines.push(String(line)));
  vi.stubEnv("LOWBIT_LOG", "info");
  vi.stubEnv("LOWBIT_BACKEND", undefined);
});

afterEach(() => {
  fs.rmSync(folder, { recursive: true });
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  vi.doUnmock("../../node-builtin.ts");
});

/** The loader, run anew; `built`: whether the checkout's own addon is there to be found. */
async function load({ given = "", built = true }): Promise<{ addon: NativeAddon | null; kernels: number }> {
  vi.stubEnv("LOWBIT_NATIVE_PATH", given);
  vi.resetModules();
  if (!built)
    vi.doMock("../../node-builtin.ts", async (original) => {
      const { nodeBuiltin } = await original<typeof import("../../node-builtin.ts")>();
      const empty = { ...fs, existsSync: () => false };
      return { nodeBuiltin: (name: string) => (name === "node:fs" ? empty : nodeBuiltin(name)) };
    });
  const { nativeAddon } = await import("./addon.ts");
  const addon = nativeAddon();
  expect(nativeAddon()).toBe(addon);
  const { linearA8 } = await import("../families/index.ts");
  return { addon, kernels: linearA8.length };
}

/** A module in place of an addon. */
function moduleWith(text: string): string {
  const path = join(folder, "addon.cjs");
  fs.writeFileSync(path, text);
  return path;
}

describe("the native addon", () => {
  it("serves where its interface is this code's", async () => {
    const given = moduleWith(`module.exports = { abi: "${NATIVE_ABI}", kernels: () => [], cpuFeatures: () => 0 };`);
    expect((await load({ given })).addon?.abi).toBe(NATIVE_ABI);
    expect(lines).toEqual([]);
  });

  it.each([
    ["built before there was a fingerprint", "module.exports = { kernels: () => [] };", "unknown"],
    ["of another version", 'module.exports = { abi: "old", kernels: () => [] };', "old"],
  ])("%s is refused and the next one is asked", async (_, text, abi) => {
    const given = moduleWith(text);
    const { addon } = await load({ given });
    expect(addon?.abi ?? NATIVE_ABI).toBe(NATIVE_ABI);
    const reason = `${given} is of another version (interface ${abi}, not ${NATIVE_ABI}): `;
    expect(lines.length).toBe(1);
    expect(lines[0]).toContain(`${reason}node scripts/native/build.js builds it again`);
  });

  it("that is no addon at all is refused with what the system says", async () => {
    const given = moduleWith("").replace(".cjs", ".node");
    fs.writeFileSync(given, "not a shared library");
    await load({ given });
    expect(lines).toEqual([expect.stringContaining(`${given} cannot be loaded: node scripts/native/build.js builds`)]);
  });

  it.skipIf(!existing)("that was cut short is refused before it is loaded, which would end the process", async () => {
    const whole = fs.readFileSync(existing!);
    const given = join(folder, "addon.node");
    fs.writeFileSync(given, whole.subarray(0, whole.length - 1));
    const { addon } = await load({ given });
    const cut = `${given}: expected ${whole.length} bytes but found ${whole.length - 1}: it was cut short`;
    expect(addon?.abi).toBe(NATIVE_ABI);
    expect(lines).toEqual([expect.stringContaining(`${cut} (node scripts/native/build.js builds it again)`)]);
    fs.writeFileSync(given, whole);
    expect((await load({ given })).addon?.abi).toBe(NATIVE_ABI);
  });

  it("is missed nowhere: other kernels serve, and how to get one is said", async () => {
    const { addon, kernels } = await load({ built: false });
    expect(addon).toBe(null);
    expect(kernels).toBeGreaterThan(0);
    expect(lines).toEqual([
      expect.stringMatching(
        /^lowbit: no native addon, slower kernels serve: @lowbit\/\S+ is not installed .*native\/build\.js/,
      ),
    ]);
  });

  it("that is asked for and is not there is an error with what keeps it from serving", async () => {
    vi.stubEnv("LOWBIT_BACKEND", "native");
    await load({ built: false });
    const { hostCpu } = await import("../cpu.ts");
    expect(hostCpu).toThrow(
      /^environment variable LOWBIT_BACKEND: expected wasm or reference, as .* found "native": @lowbit\/\S+ is not installed/,
    );
  });

  it("is not looked for where another backend is asked for", async () => {
    vi.stubEnv("LOWBIT_BACKEND", "reference");
    expect((await load({})).addon).toBe(null);
    expect(lines).toEqual([]);
    const { loadNativeKernels } = await import("./rows.ts");
    expect(() => loadNativeKernels("mine.so")).toThrow(
      "mine.so: kernels in C++ need the native addon, which is not here: LOWBIT_BACKEND is reference",
    );
  });

  it.skipIf(!knownRows[process.arch])("built for less than this CPU has serves what it has, and says so", async () => {
    const known = knownRows[process.arch]!;
    const bits = (names: readonly CpuFeature[]) =>
      names.reduce((sum, name) => sum | (1 << featureBits.indexOf(name)), 0);
    const ofAddon = bits(process.arch === "x64" ? ["sse2", "avx2"] : ["neon"]);
    const ofCpu = known.reduce((sum, { needs }) => sum | needs, 0);
    const loaded = async (features: number) => {
      const rows = known.filter(({ needs }) => (needs & ~features) === 0);
      const given = join(folder, `${features}.cjs`);
      const members = `abi: "${NATIVE_ABI}", kernels: () => ${JSON.stringify(rows)}, cpuFeatures: () => ${ofCpu}`;
      fs.writeFileSync(given, `module.exports = { ${members} };`);
      await load({ given });
      const { nativeFeatures, unservedFeatures } = await import("./rows.ts");
      const { linearA8, attention } = await import("../families/index.ts");
      const { selectKernel } = await import("../select.ts");
      const cpu = { name: "here", features: new Set(nativeFeatures()) };
      const chosen = selectKernel(linearA8, { layout: "panel16", bits: 4, m: 1 }, cpu);
      const names = [linearA8, attention].map((kernels) => kernels.map(({ name }) => name));
      return { names, served: bits(nativeFeatures()), unserved: bits(unservedFeatures()), chosen };
    };
    const whole = await loaded(ofCpu);
    expect([whole.served, whole.unserved, lines]).toEqual([ofCpu, 0, []]);
    const part = await loaded(ofAddon);
    expect([part.served, part.unserved]).toEqual([ofAddon, ofCpu & ~ofAddon]);
    // Rows that it lacks stand where they would, so that selection for other CPUs is the same.
    expect(part.names).toEqual(whole.names);
    expect(part.chosen.name).toMatch(process.arch === "x64" ? /_avx2$/ : /_neon$/);
    expect(lines).toEqual([
      expect.stringMatching(/was built for a CPU without .*scripts\/native\/build\.js adds their kernels/),
    ]);
  });
});
