/** The example operator of examples/squared-relu: exported, loaded again and run, with each of its kernels. */
import { spawnSync } from "node:child_process";
import { copyFile, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { registerSquaredRelu } from "../examples/squared-relu/operator.ts";
import { compile } from "../src/compile/compile.ts";
import { executorchTarget } from "../src/executorch/compile/lowering.ts";
import { loadNativeKernels, nativeKernels, Ops, operators } from "../src/extension/index.ts";
import { cpuWith, exportMethods, hostCpu, InvalidFileError, type MethodSource } from "../src/index.ts";
import type { Cpu } from "../src/kernels/contract.ts";
import { nativeAddon } from "../src/kernels/native/addon.ts";
import { wasmFeatures } from "../src/kernels/wasm/features.ts";
import { qualifiedName } from "../src/ops/schema.ts";
import { temporaryFolder } from "./support/folders.ts";

const path = (name: string) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const folder = await temporaryFolder();
const library = join(folder, "squared-relu.so");
const source = path("examples/squared-relu/squared-relu.cc");
const compiler = process.env.CXX ?? "c++";
const flags = ["-O3", "-std=c++17", "-shared", "-fPIC", "-I", path("native"), source, "-o", library];
const isBuilt = nativeAddon() !== null && spawnSync(compiler, flags).status === 0;
const reason = isBuilt ? "" : " (skipped: no native addon, or no C++ compiler)";

/** squared_relu(x + x) */
const forward: MethodSource = {
  name: "forward",
  inputs: [{ name: "x", spec: { dtype: "f32", shape: [1, 10000] }, smallest: [1, 1] }],
  build(builder, [x]) {
    const ops = new Ops(builder);
    return [ops.call("example::squared_relu.out", ops.add(x!, x!))];
  },
};
const program = join(folder, "squared-relu.pte");

beforeAll(async () => {
  registerSquaredRelu();
  await exportMethods([forward], program);
});

/** Runs the program with a copy of the package of its own, as an operator is registered once only. */
async function kernelsAfterRun(cpu: Cpu, options: { threads?: number; library?: string } = {}): Promise<string[]> {
  const { threads = 1, library } = options;
  vi.resetModules();
  const own = await import("../src/index.ts");
  (await import("../examples/squared-relu/operator.ts")).registerSquaredRelu(library);
  const loaded = await own.loadMethods(program, { cpu, threads });
  const data = Float32Array.from({ length: 10000 }, (_, i) => (i - 5000) / 1000);
  const [y] = await loaded.createSession().run("forward", [{ dtype: "f32", shape: [1, 10000], data }]);
  for (const [i, value] of data.entries()) expect(y!.data[i]).toBeCloseTo(value > 0 ? 4 * value * value : 0, 4);
  const kernels = [...loaded.activeKernels.get("example::squared_relu.out")!];
  await loaded.dispose();
  return kernels;
}

describe("an operator outside the package", () => {
  it("runs in TypeScript", async () => {
    expect(await kernelsAfterRun(cpuWith("scalar"))).toEqual(["squared_relu_f32_1x1x1_reference"]);
  });

  it.each([1, 2])("runs in WebAssembly, threads: %i", async (threads) => {
    const cpu: Cpu = { name: "WebAssembly", features: new Set(wasmFeatures()) };
    expect(await kernelsAfterRun(cpu, { threads })).toEqual(["squared_relu_f32_1x1x1_wasm"]);
  });

  // After the others: a process keeps the libraries that it has loaded.
  it.skipIf(!isBuilt)(`runs in C++${reason}`, async () => {
    expect(await kernelsAfterRun(hostCpu(), { library })).toEqual(["squared_relu_f32_1x1x1_cpp"]);
  });

  it.skipIf(!isBuilt)(`has each library once, however often it is asked for${reason}`, () => {
    for (let i = 0; i < 70; i++) loadNativeKernels(library);
    expect(nativeKernels("squared_relu", () => ({ scalars: [], buffers: [] }))).toHaveLength(1);
  });

  it.skipIf(!isBuilt)(`refuses another library with kernels of the same names${reason}`, async () => {
    const other = join(folder, "other.so");
    await copyFile(library, other);
    expect(() => loadNativeKernels(other)).toThrow(
      "other.so: is no library of kernels: there is a kernel squared_relu_f32_1x1x1_cpp already",
    );
    expect(nativeKernels("squared_relu", () => ({ scalars: [], buffers: [] }))).toHaveLength(1);
  });

  it("stays in programs for ExecuTorch, which an operator library can give it", () => {
    const { methods } = compile([forward], { registry: operators, cpu: cpuWith("scalar"), target: executorchTarget });
    expect(methods[0]!.operators.map(qualifiedName)).toContain("example::squared_relu.out");
  });

  it.skipIf(!isBuilt)(`refuses a file that is no library${reason}`, () => {
    expect(() => loadNativeKernels(source)).toThrow(InvalidFileError);
    expect(() => loadNativeKernels(join(folder, "none.so"))).toThrow(/none.so: is no library of kernels/);
    expect(() => loadNativeKernels(folder)).toThrow(InvalidFileError);
  });

  it.skipIf(!isBuilt || process.platform !== "linux")(`refuses a library that was cut short${reason}`, async () => {
    const cut = join(folder, "cut.so");
    await writeFile(cut, (await readFile(library)).subarray(0, -1));
    expect(() => loadNativeKernels(cut)).toThrow(/cut.so: is no library of kernels: expected \d+ bytes .* cut short/);
  });
});
