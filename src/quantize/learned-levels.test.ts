/** Learned levels against those of plain k-means in doubles, and against fixed ones. */
import { expect, it } from "vitest";
import { Random } from "../../test/support/random.ts";
import { dequantize } from "../quantized.ts";
import { codebooks } from "./codebooks.ts";
import { type LevelSample, learnLevels } from "./learned-levels.ts";
import { quantizeMse } from "./mse.ts";

const scheme = { groupSize: 32, mappingType: "kmeans", algorithm: "mse", scaleDType: "i8" } as const;

/** Weights with tails on one side, so that no fixed codebook suits them. */
function sampleOf(random: Random, n: number, k: number): LevelSample {
  const values = Float32Array.from({ length: n * k }, () => {
    const value = random.floats(3).reduce((sum, part) => sum + part, 0) ** 3;
    return value > 0 ? value : value / 3;
  });
  return { n, k, values, importance: random.floats(k).map((value) => value * value + 0.1) };
}

const round = (bits: number) => async (sample: LevelSample, levels: Int8Array) =>
  quantizeMse(sample.values, { ...scheme, bits, n: sample.n, k: sample.k }, sample.importance, levels);

async function lossOf(sample: LevelSample, bits: number, levels: Int8Array): Promise<number> {
  const rounded = dequantize(await round(bits)(sample, levels));
  return sample.values.reduce((sum, w, i) => sum + sample.importance![i % sample.k]! * (w - rounded[i]!) ** 2, 0);
}

it.each([2, 3, 4])("%i bits lose less on other rows than fixed levels", async (bits) => {
  const random = new Random(bits);
  const [seen, unseen] = [sampleOf(random, 60, 256), sampleOf(random, 60, 256)];
  const levels = await learnLevels([seen], bits, round(bits));
  expect(levels).toHaveLength(2 ** bits);
  expect(Math.max(...levels.map(Math.abs))).toBe(bits < 4 ? 63 : 127);
  expect([...levels].sort((a, b) => a - b)).toEqual([...levels]);
  const other = { ...unseen, importance: seen.importance };
  expect(await lossOf(other, bits, levels)).toBeLessThan(0.97 * (await lossOf(other, bits, codebooks[bits]!)));
});

it("finds levels that weights are at, whatever their groups' scales", async () => {
  const random = new Random(5);
  const made = [-63, -20, 8, 40];
  const k = 64;
  const values = Float32Array.from({ length: 200 * k }, (_, i) => random.pick(made) * (1 + (Math.floor(i / 32) % 7)));
  const sample = { n: 200, k, values, importance: null };
  expect([...(await learnLevels([sample], 2, round(2)))]).toEqual(made);
});

it("is one codebook for several matrices", async () => {
  const random = new Random(6);
  const samples = [sampleOf(random, 20, 128), sampleOf(random, 20, 96)];
  const levels = await learnLevels(samples, 3, round(3));
  for (const fixed of [codebooks[3]!])
    expect((await lossOf(samples[0]!, 3, levels)) + (await lossOf(samples[1]!, 3, levels))).toBeLessThan(
      (await lossOf(samples[0]!, 3, fixed)) + (await lossOf(samples[1]!, 3, fixed)),
    );
});

it("keeps levels apart where weights do not tell", async () => {
  const levels = await learnLevels([{ n: 1, k: 64, values: new Float32Array(64), importance: null }], 4, round(4));
  expect(new Set(levels).size).toBe(16);
});
