/** Weights whose groups are not of neighbouring columns: products as of the float values, with zero points and with minima. */
import { join } from "node:path";
import { expect, it } from "vitest";
import { distance } from "../../../test/support/distance.ts";
import { temporaryFolder } from "../../../test/support/folders.ts";
import { Random } from "../../../test/support/random.ts";
import { TINY_CONTEXT, tinyConfig, writeTinyCheckpoint } from "../../../test/support/tiny-checkpoint.ts";
import { compileModel } from "../../api/compile-model.ts";
import { EagerModel } from "../../api/eager-model.ts";
import { loadProgramObject } from "../../api/load-program-object.ts";
import { openCheckpoint } from "../../formats/checkpoint.ts";
import { withComputed } from "../../formats/computed-tensors.ts";
import type { LowBitTensor } from "../../formats/tensor-source.ts";
import type { WeightSpec } from "../../quantized.ts";
import { toFloat32 } from "../../tensor.ts";
import { Model } from "../model.ts";
import { networkOf } from "../network.ts";

const NAME = "model.layers.0.mlp.down_proj.weight";
const [n, k, groupSize] = [tinyConfig.hidden_size, tinyConfig.intermediate_size, 32];
const ids = Array.from({ length: TINY_CONTEXT / 2 }, (_, i) => (i * 37) % 250);
const folder = join(await temporaryFolder(), "model");
await writeTinyCheckpoint(folder);

/** A matrix of 4 bits whose column order[j] is column j of its groups, and its float values. */
function orderedMatrix(beside: "zeros" | "minima") {
  const random = new Random(7);
  const order = Int32Array.from({ length: k }, (_, i) => i);
  for (let i = k - 1; i > 0; i--) {
    const j = random.integer(0, i);
    [order[i], order[j]] = [order[j]!, order[i]!];
  }
  const groups = k / groupSize;
  const qvals = Int8Array.from({ length: n * k }, () => random.integer(-8, 7));
  const scales = random.floats(n * groups, 0.1);
  const zeros = Int8Array.from(scales, () => (beside === "zeros" ? random.integer(-8, 7) : -8));
  const minima = random.floats(n * groups, beside === "minima" ? 0.4 : 0);
  const values = new Float32Array(n * k);
  for (let row = 0; row < n; row++)
    for (let j = 0; j < k; j++) {
      const group = row * groups + Math.floor(j / groupSize);
      values[row * k + order[j]!] = (qvals[row * k + j]! - zeros[group]!) * scales[group]! + minima[group]!;
    }
  const spec: WeightSpec = { bits: 4, n, k, groupSize, hasZeros: true, hasLevels: false, scaleDType: "f32" };
  const lowBit: LowBitTensor = {
    ...{ stored: "of a test", spec, order },
    rows: async (first, count) => ({
      ...{ ...spec, n: count, levels: null },
      qvals: qvals.slice(first * k, (first + count) * k),
      scales: scales.slice(first * groups, (first + count) * groups),
      zeros: zeros.slice(first * groups, (first + count) * groups),
    }),
    ...(beside === "minima" && {
      minima: {
        dtype: "f32" as const,
        rows: async (first: number, count: number) => ({
          dtype: "f32" as const,
          shape: [count, groups],
          data: minima.slice(first * groups, (first + count) * groups),
        }),
      },
    }),
  };
  return { values, lowBit };
}

/** Logits of the model with this matrix for one of its weights, compiled and eager. */
async function logitsOf(
  { values, lowBit }: { values: Float32Array; lowBit: LowBitTensor | null },
  activations: "int8" | "float",
) {
  const opened = await openCheckpoint(folder);
  const matrix = {
    ...{ name: NAME, shape: [n, k] as const, stored: "of a test", parts: [NAME], lowBit },
    rows: async (first: number, count: number) => values.slice(first * k, (first + count) * k),
  };
  const { tensors } = opened;
  const checkpoint = { ...opened, tensors: withComputed({ ...tensors, close: opened.close }, [matrix]) };
  const model = new Model(...(await networkOf(checkpoint)));
  model.activations = activations;
  const compiled = await (await loadProgramObject(compileModel(model), "ordered")).createDecoder().prefill(ids);
  const eager = toFloat32((await EagerModel.load(model)).forward(ids, 0)).slice(-compiled.length);
  await model.close();
  return { compiled, eager };
}

it.each(["zeros", "minima"] as const)("columns in another order with %s", async (beside) => {
  const matrix = orderedMatrix(beside);
  const expected = (await logitsOf({ ...matrix, lowBit: null }, "float")).eager;
  for (const activations of ["float", "int8"] as const) {
    const found = await logitsOf(matrix, activations);
    for (const logits of Object.values(found)) {
      const { relative } = distance(logits, expected);
      expect(relative).toBeLessThan(activations === "float" ? 1e-5 : 0.02);
      // The matrix counts: in float weights that were rounded to it, and in integers.
      expect(activations === "float" || relative > 1e-5).toBe(true);
    }
  }
});
