/** What is told of a checkpoint's weights: kept as stored, quantized now, or float. */
import { join } from "node:path";
import { encodeAqlm } from "lowbit/aqlm";
import { describe, expect, it } from "vitest";
import { writeAqlmCheckpoint } from "../../test/support/aqlm-checkpoint.ts";
import { lowbit } from "../../test/support/command-line.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import type { FloatFormat } from "../ops/weight.ts";
import { int8DynamicActivationIntxWeight, sharedEmbedding } from "../quantize/config.ts";
import { loadCheckpoint } from "./load.ts";
import { quantize } from "./quantize.ts";
import { describeOrigins, weightOrigins } from "./weight-origins.ts";

const folder = await temporaryFolder();
const q = "model.layers.0.self_attn.q_proj.weight";
const aqlm = { codebooks: 2, bits: 8, inGroup: 8, outGroup: 1 };

describe("a tied head", () => {
  const path = join(folder, "tied");
  const linear = int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32 });

  it("is listed where it is quantized and the embedding is not", async () => {
    await writeTinyCheckpoint(path);
    const model = await loadCheckpoint(path);
    quantize(model, [], { head: linear });
    const head = { name: "lm_head.weight", stored: "f32", treatment: "quantized" };
    for (const destination of ["lowbit", "gguf"] as const)
      expect(weightOrigins(model, destination).find(({ name }) => name === head.name)).toEqual(head);
    expect(describeOrigins(weightOrigins(model))).toBe("quantized: 1 f32; float: 20 f32");
    expect(describeOrigins(weightOrigins(model, "torchao"))).toBe("float: 20 f32");
    quantize(model, [linear, sharedEmbedding({ bits: 4, groupSize: 32 })]);
    expect(describeOrigins(weightOrigins(model))).toBe("quantized: 15 f32; float: 5 f32");
    await model.close();
  });

  it("that TorchAO's files keep as the embedding is told by name", async () => {
    const convert = (...options: string[]) =>
      lowbit(["quantize", path, "--qmode", "8da4w", ...options, "--format", "torchao", "-o", join(folder, "out")]);
    expect((await convert()).stderr).toMatch("lm_head.weight stays what model.embed_tokens.weight is");
    for (const option of ["--no-quantize-head", "--shared-embedding"])
      expect((await convert(option)).stderr).not.toContain("lm_head");
  });
});

describe("weights of formats of their own", () => {
  it("that the checkpoint has are kept as stored", async () => {
    const path = join(folder, "stored");
    await writeAqlmCheckpoint(path, { ...aqlm, plain: [q.replace(".weight", "")] });
    const model = await loadCheckpoint(path);
    const origins = weightOrigins(model);
    await model.close();
    expect(describeOrigins(origins)).toBe("kept as stored: 13 aqlm; float: 7 f16");
  });

  it("that were made from floats are quantized", async () => {
    const path = join(folder, "floats");
    await writeTinyCheckpoint(path);
    const model = await loadCheckpoint(path);
    await encodeAqlm(model, { codebooks: 1, bits: 2 });
    const origins = weightOrigins(model);
    await model.close();
    expect(describeOrigins(origins)).toBe("quantized: 14 f32; float: 6 f32");
    expect(origins.find(({ name }) => name === q)).toEqual({ name: q, stored: "f32", treatment: "quantized" });
  });

  it("that replace what the checkpoint has are quantized, or float", async () => {
    const path = join(folder, "replaced");
    await writeAqlmCheckpoint(path, aqlm);
    const model = await loadCheckpoint(path);
    const origin = () => weightOrigins(model).find(({ name }) => name === q);
    model.replaceWeight(q, model.weight(q));
    expect(origin()).toEqual({ name: q, stored: "aqlm", treatment: "quantized" });
    const format: FloatFormat = { kind: "float", dtype: "f32" };
    const load = async () => ({ dtype: "f32", shape: [32, 32], data: new Float32Array(32 * 32) });
    model.replaceWeight(q, { name: q, shape: [32, 32], format, load });
    expect(origin()).toEqual({ name: q, stored: "aqlm", treatment: "float" });
    await model.close();
  });
});
