/** Programs whose experts are not stored alike are refused when they are loaded, from memory and from mapped files. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { mixtureConfigs, writeDecoderCheckpoint } from "../../test/support/hybrid-checkpoint.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { exportProgram, loadCheckpoint, loadProgram, ShapeError } from "../index.ts";
import type { Cpu } from "../kernels/contract.ts";
import { hostCpu, scalarCpu } from "../kernels/cpu.ts";
import { checksum } from "../kernels/layout/header.ts";
import { wasmFeatures } from "../kernels/wasm/features.ts";
import { int8DynamicActivationIntxWeight } from "../quantize/config.ts";

const folder = await temporaryFolder();
const cpus: readonly Cpu[] = [hostCpu(), { name: "WebAssembly", features: new Set(wasmFeatures()) }, scalarCpu];
const HEADER = Buffer.from("LBW1");

/** A program with experts whose packed matrices are changed, as its file. */
async function changed(name: string, change: (headers: readonly Buffer[]) => void): Promise<string> {
  const source = join(folder, `${name}-checkpoint`);
  await writeDecoderCheckpoint(source, mixtureConfigs.qwen3_moe);
  const model = await loadCheckpoint(source);
  quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 })]);
  const path = join(folder, `${name}.pte`);
  await exportProgram(model, path);
  await model.close();
  const bytes = await readFile(path);
  const headers: Buffer[] = [];
  for (let at = bytes.indexOf(HEADER); at >= 0; at = bytes.indexOf(HEADER, at + 1))
    headers.push(bytes.subarray(at, at + 64));
  change(headers);
  for (const header of headers) header.writeUInt32LE(checksum(header.subarray(0, 60)), 60);
  await writeFile(path, bytes);
  return path;
}

/** The headers of the sizes that most have, which are experts of one sort. */
const alike = (headers: readonly Buffer[]) => {
  const sizes = headers.map((header) => header.subarray(16, 28).toString("hex"));
  const most = [...new Set(sizes)].map((size) => headers.filter((_, i) => sizes[i] === size));
  return most.sort((a, b) => b.length - a.length)[0]!;
};

describe("experts", () => {
  it.each([
    ["of other bits", (header: Buffer) => header.writeUInt8(5, 8), /expected \d+ bytes but found/],
    ["of other groups", (header: Buffer) => header.writeUInt32LE(16, 24), /group size 32 but the header says .*16/],
    ["with a codebook", (header: Buffer) => header.writeUInt16LE(4, 10), /expected 4 bits .* but found .* a codebook/],
  ] as const)("%s than the first", async (what, change, expected) => {
    const path = await changed(what, (headers) => change(alike(headers).at(-1)!));
    for (const cpu of cpus) {
      const error = await loadProgram(path, { cpu }).catch((found: unknown) => found);
      expect(error, cpu.name).toBeInstanceOf(ShapeError);
      expect((error as Error).message).toMatch(/experts\.\*\..*weight.*, matrix \d+ of \d+: packed weights: /);
      expect((error as Error).message).toMatch(expected);
    }
  });

  it("with codebooks and signs of scales of their own are read", async () => {
    const path = await changed("same", (headers) => alike(headers).at(-1)!.writeUInt8(0, 15));
    for (const cpu of cpus) await (await loadProgram(path, { cpu })).dispose();
  });
});
