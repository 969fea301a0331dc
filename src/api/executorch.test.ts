/** Programs for ExecuTorch: operators that it has, and the same logits as our own form of the model. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { InvalidArgumentError } from "../errors.ts";
import {
  embedding,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  loadCheckpoint,
  type Model,
  quantize,
  sharedEmbedding,
} from "../index.ts";
import { compileModel, loadProgramObject } from "../tools/index.ts";

const folder = await temporaryFolder();
const tied = join(folder, "tied");
const untied = join(folder, "untied");
const sizes = { hidden_size: 64, intermediate_size: 96, head_dim: 16 };
await writeTinyCheckpoint(tied, { config: sizes });
await writeTinyCheckpoint(untied, {
  config: { ...sizes, tie_word_embeddings: false, attention_bias: true, mlp_bias: true },
  dtype: "bf16",
});

const odd = join(folder, "odd");
await writeTinyCheckpoint(odd, { config: { ...sizes, hidden_size: 48, intermediate_size: 100 } });

const ids = [72, 101, 108, 108, 111, 44, 32, 119];

async function logits(model: Model, target: "lowbit" | "executorch"): Promise<Float32Array> {
  const loading = target === "executorch" ? {} : ({ kvCache: "f32" } as const);
  const program = await loadProgramObject(compileModel(model, { target }), "program", loading);
  const decoder = program.createDecoder();
  const values = Float32Array.from(await decoder.prefill(ids));
  program.dispose();
  return values;
}

/** As TorchAO's operators have activations, so that both forms compute the same. */
const perToken = { activationGranularity: "per_token" } as const;
const schemes: readonly (readonly [string, string, (model: Model) => void])[] = [
  ["float, tied", tied, () => {}],
  ["bf16 with biases", untied, () => {}],
  [
    "8da4w",
    untied,
    (model) => quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32, ...perToken })]),
  ],
  [
    "8da4w, rows of no whole groups",
    odd,
    (model) => quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, ...perToken })]),
  ],
  [
    "one scale a row",
    odd,
    (model) => quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: "axis", ...perToken })]),
  ],
  ["shared, rows of no whole groups", odd, (model) => quantize(model, [sharedEmbedding({ bits: 4, ...perToken })])],
  ["shared, tied", tied, (model) => quantize(model, [sharedEmbedding({ bits: 4, groupSize: 32, ...perToken })])],
  ...[2, 3, 4, 8].map(
    (bits) =>
      [
        `embedding of ${bits} bits`,
        untied,
        (model: Model) => quantize(model, [embedding({ bits, groupSize: 32 })]),
      ] as const,
  ),
];

describe("target executorch", () => {
  it.each(schemes)("%s: logits of the fused form", async (_, path, apply) => {
    const model = await loadCheckpoint(path);
    apply(model);
    const program = compileModel(model, { target: "executorch" });
    const names = program.methods.flatMap(({ operators }) => operators.map(({ name }) => name));
    expect(names.filter((name) => !/^(aten|llama|quantized_decomposed|torchao)::/.test(name))).toEqual([]);
    const [ours, theirs] = [await logits(model, "lowbit"), await logits(model, "executorch")];
    expect(ours.length).toBeGreaterThan(0);
    for (const [i, value] of ours.entries()) expect(Math.abs(theirs[i]! - value)).toBeLessThan(2e-5);
    await model.close();
  });

  it("has one scale a token, whatever activations of a model have", async () => {
    const found: Float32Array[] = [];
    for (const activationGranularity of ["per_block", "per_token"] as const) {
      const model = await loadCheckpoint(untied);
      quantize(model, [int8DynamicActivationIntxWeight({ bits: 4, groupSize: 32, activationGranularity })]);
      found.push(await logits(model, "executorch"));
      await model.close();
    }
    expect(found[0]).toEqual(found[1]);
  });

  it("says what cannot be exported", async () => {
    const model = await loadCheckpoint(untied);
    quantize(model, [intxWeightOnly({ bits: 4, groupSize: 32 })]);
    expect(() => compileModel(model, { target: "executorch" })).toThrow(/linear_weight_only.*8da/);
    model.layout = "panel16";
    expect(() => compileModel(model, { target: "executorch" })).toThrow(InvalidArgumentError);
    await model.close();
  });
});
