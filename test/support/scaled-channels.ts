/** Whether the activations that a model calls scalable are: their sources scaled one way and their readers the other. */
import { EagerModel, type Model } from "../../src/index.ts";
import { type Tensor, toFloat32 } from "../../src/tensor.ts";
import { Random } from "./random.ts";

/** FNV-1a. */
export function seedOf(name: string): number {
  let seed = 0x811c9dc5;
  for (const byte of Buffer.from(name)) seed = Math.imul(seed ^ byte, 0x01000193) >>> 0;
  return seed;
}

/** Scales the channels of a model's scalable activations; the largest change of its logits against `model`'s, by their peak. */
export async function changeByScaling(model: Model, scaled: Model, ids: readonly number[]): Promise<number> {
  for (const { source, sourceBias, norm, rows, readers } of scaled.decoder.scalable) {
    const random = new Random(seedOf(source));
    const byRow = new Map([...new Set(rows)].map((row) => [row, 0.25 + 4 * random.next()]));
    const factorOf = (row: number) => byRow.get(row) ?? 1;
    const offset = norm?.offset ?? 0;
    const divide = (value: number, row: number) => (value + offset) / factorOf(row) - offset;
    for (const name of sourceBias ? [source, sourceBias] : [source])
      await change(scaled, name, (value, i, width) => divide(value, Math.floor(i / width)));
    for (const reader of readers) await change(scaled, reader, (value, i, width) => value * factorOf(rows[i % width]!));
  }
  const [expected, found] = await Promise.all(
    [model, scaled].map(async (each) => (await EagerModel.load(each)).forward(ids, 0).data as Float32Array),
  );
  const peak = expected!.reduce((known, value) => Math.max(known, Math.abs(value)), 0);
  return expected!.reduce((most, value, i) => Math.max(most, Math.abs(found![i]! - value)), 0) / peak;
}

/** Changes a float weight of a model; `width` is the length of its rows, 1 of a vector. */
async function change(model: Model, name: string, by: (value: number, i: number, width: number) => number) {
  const { shape, load } = model.weight(name);
  const width = shape[1] ?? 1;
  const values = toFloat32((await load()) as Tensor).map((value, i) => by(value, i, width));
  const tensor: Tensor = { dtype: "f32", shape, data: values };
  const format = { kind: "float", dtype: "f32" } as const;
  model.replaceWeight(name, { name, shape, format, load: async () => tensor });
}
