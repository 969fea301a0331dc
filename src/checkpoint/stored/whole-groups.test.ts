/** Weights of GGUF files with all of their groups in one place: the file's values, packed and back, in as many bits. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { ggufFile } from "../../../test/support/gguf.ts";
import { Random } from "../../../test/support/random.ts";
import { expectSame } from "../../../test/support/same.ts";
import { unpackWeights } from "../../../test/support/unpack-weights.ts";
import { blockFormats } from "../../formats/gguf/blocks.ts";
import { openGguf } from "../../formats/gguf/open.ts";
import type { LowBitTensor } from "../../formats/tensor-source.ts";
import { startFastPacking } from "../../kernels/families/packing/packer.ts";
import { layoutNamed, openPacked, packWeights } from "../../kernels/layout/packed.ts";
import { dequantize, type QuantizedWeights } from "../../quantized.ts";
import { wholeGroups } from "./whole-groups.ts";

const folder = await temporaryFolder();

/** Bits of a weight with its group's scales, without corrections and padding: docs/formats.md has them. */
const bitsPerWeight: Readonly<Record<string, number>> = {
  ...{ Q4_0: 4.5, Q4_1: 5, Q5_0: 5.5, Q5_1: 6, Q8_0: 8.5, IQ4_NL: 4.5 },
  ...{ Q2_K: 3.125, Q3_K: 3.5625, Q4_K: 4.625, Q5_K: 5.625, Q6_K: 6.5625, IQ4_XS: 4.3125 },
  NVFP4: 4.5,
};

const metadata = {
  "general.architecture": "llama",
  "llama.context_length": 64,
  "llama.embedding_length": 512,
  "llama.block_count": 1,
  "llama.feed_forward_length": 32,
  "llama.attention.head_count": 4,
  "llama.attention.head_count_kv": 2,
  "llama.attention.key_length": 8,
  "llama.attention.layer_norm_rms_epsilon": 1e-5,
};

/** Equal numbers: zeros have no sign where an integer is 0. */
function expectValues(found: Float32Array, expected: Float32Array): void {
  expectSame(
    found.map((value) => value + 0),
    expected.map((value) => value + 0),
  );
}

it.each(blockFormats.filter(({ name }) => name in bitsPerWeight))("$name", async (format) => {
  const random = new Random(format.id);
  const [n, k] = [32, 512];
  // Without the bit, no half is infinite or not a number.
  const data = Uint8Array.from({ length: (n * k * format.bytes) / format.size }, () => random.integer(0, 255) & 0xbf);
  const path = join(folder, `${format.name}.gguf`);
  const entry = { sizes: [k, n], type: format.id, data };
  await writeFile(
    path,
    ggufFile(metadata, [
      { name: "token_embd.weight", ...entry },
      { name: "blk.0.attn_q.weight", ...entry },
    ]),
  );
  const { tensors, close } = await openGguf(path);
  // Rows of queries are turned, with all that they have.
  const name = "model.layers.0.self_attn.q_proj.weight";
  const values = (await tensors.read(name)).data as Float32Array;
  const whole = wholeGroups(tensors.lowBit!(name)!, null);
  expect(whole.minima).toBeUndefined();
  const weights = await whole.rows(0, n);
  expectValues(dequantize(weights), values);
  expectValues(dequantize(await whole.rows(5, 12)), values.subarray(5 * k, 17 * k));
  for (const layout of ["panel16", "panel32"].map(layoutNamed)) {
    const bytes = packWeights(weights, null, layout);
    expectValues(dequantize(unpackWeights(openPacked(bytes, weights)).weights), values);
    expect((8 * bytes.length) / (n * k)).toBeCloseTo(bitsPerWeight[format.name]!, 0);
    const shared = 8 * (64 + (weights.scaleDType === "e4m3" ? 8 : 4) * n);
    expect((8 * bytes.length - shared) / (n * k)).toBeLessThan(bitsPerWeight[format.name]! + 0.05);
    const { packer, target } = startFastPacking(whole.spec, null, layout);
    packer.add(weights, 0);
    packer.finish();
    expectSame(target, bytes);
  }
  await close();
});

const stored = (spec: Partial<LowBitTensor["spec"]>): LowBitTensor => ({
  stored: "of a test",
  spec: { bits: 4, n: 1, k: 64, groupSize: 32, hasZeros: true, hasLevels: false, scaleDType: "f16", ...spec },
  rows: () => Promise.reject(new Error("not read")),
  minima: { dtype: "bf16", rows: () => Promise.reject(new Error("not read")) },
});

it("gives e4m3 scales that are divided as products with the reciprocal, within the last bits", async () => {
  const values = [448, 2 ** -9, 0.40625, 0, -1.375].map((value) => Math.fround(value / 2677.3));
  const weights: QuantizedWeights = {
    ...{ bits: 4, n: 1, k: 80, groupSize: 16, hasZeros: false, hasLevels: true, scaleDType: "f32", zeros: null },
    ...{ qvals: new Int8Array(80).fill(-7), levels: Int8Array.from({ length: 16 }, (_, i) => i) },
    scales: Float32Array.from(values),
    superScales: Float32Array.of(1 / 2677.3),
  };
  const whole = wholeGroups({ stored: "NVFP4", spec: weights, factored: "e4m3", rows: async () => weights }, null);
  expect(whole.spec.scaleDType).toBe("e4m3");
  const rows = await whole.rows(0, 1);
  for (const [i, scale] of rows.scales.entries())
    expect(Math.abs(scale - values[i]!)).toBeLessThanOrEqual(2 ** -23 * Math.abs(scale));
  const bytes = packWeights(rows, null, layoutNamed("panel16"));
  expectSame(unpackWeights(openPacked(bytes, rows)).weights.scales, rows.scales);
});

it("keeps minima in float32 unless they and scales are float16", () => {
  expect(wholeGroups(stored({}), null).spec).toMatchObject({ hasMinima: true, hasZeros: false, scaleDType: "f32" });
});

it("leaves weights that the layout does not hold so as they are", () => {
  const weights = stored({});
  expect(wholeGroups(weights, "torchao_universal")).toBe(weights);
  const wide = stored({ k: 2 ** 17 });
  expect(wholeGroups(wide, null)).toBe(wide);
});
