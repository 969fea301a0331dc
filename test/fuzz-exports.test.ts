/**
 * Damaged programs of ExecuTorch's exporter: methods that are run instruction by instruction, several methods, tensors in
 * a file apart, delegates. Loading and running them give a clean error or a clean run, never anything else.
 */
import { readFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { memorySource } from "../src/byte-source.ts";
import { LowbitError } from "../src/errors.ts";
import { formatMethod } from "../src/program/format.ts";
import { readProgram } from "../src/program/read.ts";
import { LoadedProgram } from "../src/runtime/program.ts";
import { elementCount, type Tensor, zeroTensor } from "../src/tensor.ts";
import { changeBytes, programBytes } from "./support/damage.ts";
import { Random } from "./support/random.ts";

const bytesOf = async (path: string) => new Uint8Array(await readFile(new URL(path, import.meta.url)));
const golden = "../src/program/golden";

/** More than the inputs of honest programs here; a damaged file may ask for any. */
const INPUT_ELEMENTS_MAX = 4096;

/** Prints every method, and runs those that are not metadata on zeros, twice. True when all went well, false for an error of ours. */
async function survives(name: string, program: Uint8Array, data: Uint8Array | null): Promise<boolean> {
  try {
    const tensors = data ? [memorySource("fuzz.ptd", data)] : [];
    const read = await readProgram(memorySource("fuzz.pte", program), { data: tensors });
    read.methods.map(formatMethod);
    const loaded = await LoadedProgram.load(read);
    const session = loaded.createSession();
    for (const method of read.methods) {
      if (loaded.metadata.has(method.name)) continue;
      const inputs = method.inputs.flatMap((index): Tensor[] => {
        const value = method.values[index]!;
        if (value.kind !== "tensor") return [];
        const sizes = value.dynamism === "static" ? value.sizes : value.sizes.map((size) => Math.min(size, 2));
        return elementCount(sizes) > INPUT_ELEMENTS_MAX ? [] : [zeroTensor(value.dtype, sizes)];
      });
      for (let i = 0; i < 2; i++) await session.run(method.name, inputs);
    }
    return true;
  } catch (error) {
    if (error instanceof LowbitError) return false;
    throw new Error(`${name}: ${error}`, { cause: error });
  }
}

const external = {
  pte: await bytesOf(`${golden}/external.pte.golden`),
  ptd: await bytesOf(`${golden}/external.ptd.golden`),
};

const programs = {
  "custom attention": await bytesOf("./executorch-exports/custom-sdpa.pte.golden"),
  "portable attention": await bytesOf("./executorch-exports/portable-attention.pte.golden"),
  "quantized cache": await bytesOf("./executorch-exports/quantized-cache.pte.golden"),
  delegates: await bytesOf("./executorch-exports/xnnpack.pte.golden"),
  branch: await bytesOf(`${golden}/branch.pte.golden`),
  "several methods": external.pte,
};

it.each(Object.entries(programs))("changed bytes: %s", async (name, good) => {
  const data = good === external.pte ? external.ptd : null;
  expect(await survives(name, good, data)).toBe(name !== "delegates");
  for (let seed = 0; seed < 250; seed++) {
    const bytes = good.slice();
    changeBytes(bytes, { tableBytes: programBytes(good) }, new Random(seed));
    await survives(`${name}, seed ${seed}`, bytes, data);
  }
});

it("changed bytes: a file of tensors", async () => {
  let clean = 0;
  for (let seed = 0; seed < 1000; seed++) {
    const bytes = external.ptd.slice();
    changeBytes(bytes, { tableBytes: bytes.length }, new Random(seed));
    if (await survives(`tensors, seed ${seed}`, external.pte, bytes)) clean++;
  }
  expect(clean).toBeGreaterThan(50);
  expect(clean).toBeLessThan(900);
});

it("cut short: a file of tensors", async () => {
  for (let length = 0; length < external.ptd.length - 64; length += 7)
    expect(await survives(`${length} bytes`, external.pte, external.ptd.slice(0, length))).toBe(false);
});
