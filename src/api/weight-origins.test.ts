/** What is told of a checkpoint's weights: kept as stored, quantized now, or float. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { writeAqlmCheckpoint } from "../../test/support/aqlm-checkpoint.ts";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { encodeAqlm } from "../aqlm/index.ts";
import type { FloatFormat } from "../ops/weight.ts";
import { loadCheckpoint } from "./model.ts";
import { describeOrigins, weightOrigins } from "./weight-origins.ts";

const folder = await temporaryFolder();
const q = "model.layers.0.self_attn.q_proj.weight";
const aqlm = { codebooks: 2, bits: 8, inGroup: 8, outGroup: 1 };

describe("weights of formats of their own", () => {
  it("that the checkpoint has are carried over", async () => {
    const path = join(folder, "stored");
    await writeAqlmCheckpoint(path, { ...aqlm, plain: [q.replace(".weight", "")] });
    const model = await loadCheckpoint(path);
    const origins = weightOrigins(model);
    await model.close();
    expect(describeOrigins(origins)).toBe("carried over bit for bit: 13 aqlm; float: 7 f16");
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
