/** GGUF files against the numpy dequantizer of ggml's gguf package, and logits of transformers on those values. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { compileModel, loadCheckpoint, loadProgramObject } from "../src/index.ts";
import { toFloat32 } from "../src/tensor.ts";
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
    const llm = await loadProgramObject(compileModel(model), file);
    const logits = await llm.createDecoder().prefill(golden!.ids);
    await model.close();
    for (const [i, value] of expected.last_logits.entries())
      if (!(Math.abs(logits[i]! - value) < 1e-4)) expect(logits[i], `logit ${i}`).toBe(value);
    expect(llm.hasTokenizer).toBe(true);
  });
});
