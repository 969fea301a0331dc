/** Reports of program files, against sizes worked out by hand and against damage done on purpose. */
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { unpackWeights } from "../../test/support/unpack-weights.ts";
import { memorySource } from "../byte-source.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { quantize } from "../checkpoint/quantize.ts";
import { openPacked } from "../kernels/layout/packed.ts";
import { readProgram } from "../program/read.ts";
import type { QuantizationConfig } from "../quantize/config.ts";
import { embedding, int8DynamicActivationIntxWeight, intxWeightOnly, sharedEmbedding } from "../quantize/config.ts";
import { dequantize, type QuantizedWeights } from "../quantized.ts";
import { type ExportOptions, exportProgram } from "./export-program.ts";
import { inspectProgram } from "./inspect.ts";
import { listWeights } from "./weight-list.ts";

const root = mkdtempSync(join(tmpdir(), "lowbit-inspect-"));
const folder = join(root, "tiny");
beforeAll(() => writeTinyCheckpoint(folder));
afterAll(() => rmSync(root, { recursive: true }));

async function exported(
  name: string,
  configs: QuantizationConfig[],
  { layout = null, ...options }: ExportOptions & { layout?: string | null } = {},
): Promise<string> {
  const path = join(root, name);
  const model = await loadCheckpoint(folder);
  model.layout = layout;
  quantize(model, configs);
  await exportProgram(model, path, options);
  await model.close();
  return path;
}

const linear = int8DynamicActivationIntxWeight({ bits: 4 });

describe("inspectProgram", () => {
  test("tells methods, memory and parts", async () => {
    const path = await exported("parts.pte", [linear, sharedEmbedding({ bits: 4 })]);
    const { parts, methods, metadata, namedData } = await inspectProgram(path);
    expect(parts.total).toBe(statSync(path).size);
    const { program, constants, namedData: named, otherSegments, padding } = parts;
    expect(program + constants + named + otherSegments + padding).toBe(parts.total);
    expect(methods.map(({ name }) => name)).toEqual(["forward"]);
    const [forward] = methods;
    expect(forward!.inputs).toEqual([
      { kind: "tensor", dtype: "i64", sizes: [1, 64], dynamic: true },
      { kind: "tensor", dtype: "i64", sizes: [64], dynamic: true },
      { kind: "tensor", dtype: "i64", sizes: [64], dynamic: true },
    ]);
    expect(forward!.outputs[0]!.sizes).toEqual([1, 64, 282]);
    // 2 layers of q with k and v, o, gate with up, down, and the head.
    const calls = new Map(forward!.operators.map(({ name, calls }) => [name, calls]));
    expect(calls.get("lowbit::linear_8bit_block_act.out")).toBe(9);
    expect(calls.get("lowbit::rope_update_and_attend.out")).toBe(2);
    expect(forward!.operators.every(({ known }) => known)).toBe(true);
    // Keys and values are with the sequences.
    expect(forward!.stateBytes).toBe(0);
    expect(forward!.stateTypes).toEqual({});
    // Gate and up.
    expect(forward!.largest.map(({ byteLength }) => byteLength)).toContain(64 * 128 * 4);
    expect(metadata).toMatchObject({ get_max_context_len: 64, get_vocab_size: 282, get_eos_ids: [277] });
    expect(namedData.map(({ key }) => key)).toContain("tokenizer.json");
  });

  test("tells layout, bits and size of weights; tied ones are one", async () => {
    const path = await exported("shared.pte", [linear, sharedEmbedding({ bits: 2 })]);
    const { weights, bitsPerWeight } = await inspectProgram(path, { verify: true });
    const named = new Map(weights.map((weight) => [weight.name, weight]));
    expect(named.get("model.embed_tokens.weight")).toMatchObject({
      layout: "panel16",
      bits: 2,
      shape: [282, 32],
      groupSize: 32,
      scaleType: "f32",
      hasZeros: true,
      intact: true,
      operators: ["torchao::_shared_embedding_2bit.out", "lowbit::linear_8bit_block_act.out"],
    });
    expect(named.get("model.layers.1.mlp.down_proj.weight")).toMatchObject({
      bits: 4,
      shape: [32, 64],
      hasZeros: false,
    });
    expect(named.get("model.norm.weight")).toMatchObject({ layout: null, bits: 32, byteLength: 128, intact: null });
    const count = weights.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
    const bits = weights.reduce((sum, { byteLength }) => sum + 8 * byteLength, 0);
    expect(bitsPerWeight).toBeCloseTo(bits / count, 9);
  });

  test("counts scales and zero points of a separate embedding as part of it", async () => {
    const path = await exported("embedding.pte", [linear, embedding({ bits: 3, groupSize: 32 })]);
    const { weights } = await inspectProgram(path);
    const found = weights.find(({ name }) => name === "model.embed_tokens.weight");
    // 64 bytes of header, 3 bits a value, and an f32 scale and an int8 zero point for each group of 32.
    expect(found).toMatchObject({
      layout: "torchao_embedding",
      bits: 3,
      groupSize: 32,
      byteLength: 64 + (282 * 32 * 3) / 8 + 282 * 5,
    });
  });

  test.each([
    [4, 32],
    [3, 16],
  ])(
    "tells learned levels, one codebook for what reads the same inputs: %i bits in groups of %i",
    async (bits, groupSize) => {
      const form = { bits, groupSize, mappingType: "kmeans", algorithm: "mse", scaleDType: "i8" } as const;
      const path = await exported("levels.pte", [int8DynamicActivationIntxWeight(form)]);
      const { weights } = await inspectProgram(path, { verify: true });
      const name = "model.layers.0.self_attn.{q,k,v}_proj.weight";
      const found = weights.find((weight) => weight.name === name)!;
      expect(found).toMatchObject({ bits, groupSize, scaleType: "i8", hasZeros: false, intact: true });
      expect(found.oddZero).toBe(bits < 4 ? -5 : -3);
      expect(found.levels).toHaveLength(2 ** bits);
      expect(Math.max(...found.levels!.map(Math.abs))).toBe(bits < 4 ? 63 : 127);
      const others = weights.filter(({ levels }) => levels !== null).map(({ levels }) => levels!.join());
      expect(new Set(others).size).toBeGreaterThan(1);
      // What is packed is what the model has.
      const listed = listWeights(await readProgram(memorySource(path, readFileSync(path))));
      const bytes = await listed.find((weight) => weight.name === name)!.data.read();
      const packed = openPacked(Uint8Array.from(bytes), { n: 64, k: 32, groupSize });
      const model = await loadCheckpoint(folder);
      quantize(model, [int8DynamicActivationIntxWeight(form)]);
      const parts: QuantizedWeights[] = [];
      for (const part of ["q", "k", "v"])
        parts.push((await model.weight(`model.layers.0.self_attn.${part}_proj.weight`).load()) as QuantizedWeights);
      await model.close();
      expect([...dequantize(unpackWeights(packed).weights)]).toEqual(parts.flatMap((part) => [...dequantize(part)]));
    },
  );

  test("reads TorchAO's headers, and float programs", async () => {
    const wide = intxWeightOnly({ bits: 5, groupSize: 16 });
    const torchao = await inspectProgram(await exported("torchao.pte", [wide], { layout: "torchao_universal" }), {
      verify: true,
    });
    const gate = torchao.weights.find(({ name }) => name === "model.layers.0.mlp.{gate,up}_proj.weight");
    expect(gate).toMatchObject({ layout: "torchao_universal", bits: 5, groupSize: 16, scaleType: "f32", intact: null });
    const float = await inspectProgram(await exported("float.pte", []));
    expect(float.bitsPerWeight).toBe(32);
  });

  test("finds damaged weights, and headers that contradict their use", async () => {
    const path = await exported("damaged.pte", [linear]);
    const bytes = readFileSync(path);
    const program = await readProgram(memorySource(path, bytes));
    const gate = listWeights(program).find(({ name }) => name === "model.layers.0.mlp.{gate,up}_proj.weight")!;
    const at = bytes.indexOf(Buffer.from(await gate.data.read()));
    expect(at).toBeGreaterThan(0);
    bytes[at + 100]! ^= 1;
    writeFileSync(path, bytes);
    const verified = await inspectProgram(path, { verify: true });
    expect(verified.weights.filter(({ intact }) => intact === false).map(({ name }) => name)).toEqual([gate.name]);
    const unverified = await inspectProgram(path);
    expect(unverified.weights.every(({ intact }) => intact === null)).toBe(true);
    bytes[at + 8]! ^= 1;
    writeFileSync(path, bytes);
    await expect(inspectProgram(path)).rejects.toThrow(
      `${path}: weight ${gate.name}: packed weights: the header's checksum`,
    );
  });

  test("describes programs of others, with operators that are not known here", async () => {
    const path = fileURLToPath(new URL("../program/golden/delegate.pte.golden", import.meta.url));
    const { methods } = await inspectProgram(path);
    expect(methods[0]!.delegates.length).toBeGreaterThan(0);
  });
});
