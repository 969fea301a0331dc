/** GGUF files against the numpy dequantizer of ggml's gguf package, and logits of transformers on those values. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { listWeights } from "../src/api/weight-list.ts";
import { readGgufHeader } from "../src/formats/gguf/header.ts";
import { ggufTensors } from "../src/formats/gguf/tensors.ts";
import { int8DynamicActivationIntxWeight, loadCheckpoint, quantize } from "../src/index.ts";
import { TORCHAO_MAGIC } from "../src/kernels/layout/torchao-linear.ts";
import { openFile } from "../src/node-file.ts";
import { dequantize } from "../src/quantized.ts";
import { toFloat32 } from "../src/tensor.ts";
import { compileModel, loadProgramObject, weightOrigins } from "../src/tools/index.ts";
import { distance } from "./support/distance.ts";
import { doubleLlama } from "./support/double-llama.ts";
import { absence, shared } from "./support/folders.ts";

interface Golden {
  readonly ids: readonly number[];
  readonly types: Readonly<
    Record<string, { attn_v0_first64: number[]; attn_v0_sum: number; last_logits: readonly number[] }>
  >;
}

const path = "golden/gguf";
const golden = absence(path) ? null : (JSON.parse(readFileSync(join(shared, path, "golden.json"), "utf8")) as Golden);
const files = golden ? readdirSync(join(shared, path)).filter((name) => name.endsWith(".gguf")) : [];

describe.skipIf(golden === null)(`golden GGUF files${absence(path)}`, () => {
  it.each(files)("%s", async (file) => {
    const expected = golden!.types[file.replace(".gguf", "")]!;
    const model = await loadCheckpoint(join(shared, path, file));
    const { tensors } = model.checkpoint;
    const values = toFloat32(await tensors.read("model.layers.0.self_attn.v_proj.weight"));
    for (const [i, value] of expected.attn_v0_first64.entries()) expect(values[i]).toBeCloseTo(value, 6);
    expect(values.reduce((sum, value) => sum + value, 0)).toBeCloseTo(expected.attn_v0_sum, 2);
    const logitsWith = async (activations: "int8" | "float") => {
      model.activations = activations;
      const llm = await loadProgramObject(compileModel(model), file);
      expect(llm.hasTokenizer).toBe(true);
      return llm.createDecoder().prefill(golden!.ids);
    };
    const exact = await logitsWith("float");
    const rounded = await logitsWith("int8");
    await model.close();
    for (const [i, value] of expected.last_logits.entries())
      if (!(Math.abs(exact[i]! - value) < 1e-4)) expect(exact[i], `logit ${i}`).toBe(value);
    expect(distance(rounded, expected.last_logits).relative).toBeLessThan(0.04);
  });

  it.each(files.filter((file) => file !== "F16.gguf"))(
    "%s, kept as stored in ExecuTorch's layout too",
    async (file) => {
      const model = await loadCheckpoint(join(shared, path, file));
      const [first] = model.decoder.slots.filter(({ role }) => role === "linear");
      const { bits } = model.checkpoint.tensors.lowBit!(first!.name)!.spec;
      quantize(model, [int8DynamicActivationIntxWeight({ bits, groupSize: 32 })]);
      const results: Float32Array[] = [];
      for (const target of ["lowbit", "executorch"] as const) {
        const linear = weightOrigins(model, target).filter(({ name }) => /proj/.test(name));
        expect(linear.every(({ treatment }) => treatment === "kept as stored")).toBe(true);
        const program = compileModel(model, { target });
        const layouts = listWeights(program).flatMap(({ kind, data }) => (kind === "packed" ? [data] : []));
        for (const data of layouts) {
          const magic = new DataView((await data.read()).slice().buffer).getUint32(0, true);
          expect(magic === TORCHAO_MAGIC).toBe(target === "executorch");
        }
        const llm = await loadProgramObject(program, file);
        results.push(await llm.createDecoder().prefill(golden!.ids));
      }
      await model.close();
      // Activations of 8 bits, rounded after other float operators: as far apart as both are from float activations.
      expect(distance(results[1]!, results[0]!).relative).toBeLessThan(0.1);
    },
  );
});

interface TypeGolden {
  readonly file: string;
  readonly type_number: number;
  readonly input_ids: readonly number[];
  readonly dequantized_first_row: Readonly<Record<string, readonly number[]>>;
  readonly last_logits: readonly number[];
}

const typesPath = "golden/models-2026/gguf";
const types = absence(typesPath)
  ? {}
  : (JSON.parse(readFileSync(join(shared, typesPath, "golden.json"), "utf8")) as { types: Record<string, TypeGolden> })
      .types;

/** Files whose logits change by 3.8 and 4.2 % when activations are rounded to 8 bits in blocks of 32: see docs/accuracy.md. */
const far = ["Q2_0.gguf", "TQ1_0.gguf"];

describe.skipIf(absence(typesPath) !== "")(`GGUF types of few bits${absence(typesPath)}`, () => {
  it.each(Object.values(types))("$file is read exactly and gives the logits of its values", async (golden) => {
    const source = await openFile(join(shared, typesPath, golden.file));
    const stored = ggufTensors(source, await readGgufHeader(source));
    for (const [name, row] of Object.entries(golden.dequantized_first_row)) {
      const values = toFloat32(await stored.readRows(name, 0, 1));
      expect(values.map((value) => value + 0)).toEqual(Float32Array.from(row, (value) => value + 0));
      const low = stored.lowBit(name);
      if (low) expect(dequantize(await low.rows(0, 1))).toEqual(values);
      expect(low === null).toBe(/^IQ/.test(golden.file));
    }
    await source.close();
    const model = await loadCheckpoint(join(shared, typesPath, golden.file));
    const logitsWith = async (activations: "int8" | "float") => {
      model.activations = activations;
      const llm = await loadProgramObject(compileModel(model), golden.file);
      return llm.createDecoder().prefill(golden.input_ids);
    };
    expect(distance(await logitsWith("float"), golden.last_logits).relative).toBeLessThan(1e-4);
    const rounded = await logitsWith("int8");
    const { relative, correlation } = distance(rounded, golden.last_logits);
    const isFar = far.includes(golden.file);
    expect(relative).toBeLessThan(isFar ? 0.045 : 0.03);
    expect(correlation).toBeGreaterThan(isFar ? 0.999 : 0.9995);
    // What rounding costs is what it costs in double precision: kernels add nothing to it.
    expect(distance(rounded, await doubleLlama(model.checkpoint, golden.input_ids, true)).relative).toBeLessThan(1e-5);
    await model.close();
  });
});
