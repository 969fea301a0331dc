/** The best tokens, and tokens by their weights, against plain sorting and adding up. */
import { describe, expect, it } from "vitest";
import { Random } from "../../test/support/random.ts";
import { scalarCpu } from "../kernels/cpu.ts";
import { VocabularyPasses } from "../kernels/families/sampling/vocabulary.ts";
import { bestTokens, likeliest, tokenAt, totalWeight } from "./candidates.ts";

const random = new Random(3);

function passesOver(logits: ArrayLike<number>): VocabularyPasses {
  const passes = new VocabularyPasses(logits.length, scalarCpu);
  passes.logits.set(logits);
  passes.findMaxima(null);
  return passes;
}

const kinds: Record<string, (length: number) => Float32Array> = {
  "spread evenly": (length) => random.floats(length, 10),
  "of few values": (length) => random.floats(length, 3).map(Math.round),
  "all equal": (length) => new Float32Array(length).fill(-7.25),
  rising: (length) => Float32Array.from({ length }, (_, i) => i / 7),
  falling: (length) => Float32Array.from({ length }, (_, i) => -i),
  "in few blocks": (length) => random.floats(length, 1).map((value, i) => (i < 300 ? value + 50 : value)),
  "where samples tell nothing": (length) =>
    random.floats(length, 1).map((value, i) => (i % 16 === 0 ? value - 90 : value)),
  "where samples promise too much": (length) =>
    random.floats(length, 1).map((value, i) => (i % 16 === 0 ? value + 90 : value)),
  "with some impossible": (length) =>
    random.floats(length, 4).map((value, i) => (i % 3 === 0 ? Number.NEGATIVE_INFINITY : value)),
  "far apart": (length) => random.floats(length, 1).map((value, i) => (i % 5 === 0 ? value * 3e38 : value * 1e-38)),
};

describe("the best tokens", () => {
  it.each(Object.entries(kinds))("of logits %s are the first ones when all are sorted", (_, make) => {
    for (const length of [1, 2, 100, 129, 5000])
      for (const count of [1, 2, 5, 39, 40, 41, 70, 128, 1000, 4999, 5000, 6000]) {
        const logits = make(length);
        const possible = Array.from(logits.keys()).filter((id) => logits[id] !== Number.NEGATIVE_INFINITY);
        const expected = possible.sort((a, b) => logits[b]! - logits[a]! || a - b).slice(0, count);
        if (expected.length === 0) continue;
        const passes = passesOver(logits);
        const least = bestTokens(passes).leastOf(count);
        expect(least).toBe(logits[expected.at(-1)!]);
        // Others of the least logit are gone.
        const kept = Array.from(passes.logits.keys()).filter((id) => passes.logits[id]! >= least);
        expect(kept).toEqual(expected.toSorted((a, b) => a - b));
        expect(Array.from(bestTokens(passesOver(logits)).ranked(count))).toEqual(expected);
      }
  });
});

describe("tokens by weight", () => {
  it("share the whole range from 0 to 1 by their weights", () => {
    const logits = random.floats(700, 4).map((value, i) => (i % 11 === 0 ? Number.NEGATIVE_INFINITY : value));
    const passes = passesOver(logits);
    const largest = logits[likeliest(passes)]!;
    passes.weigh(largest, 2, -3);
    const weights = Array.from(logits, (logit) => (logit >= -3 ? Math.exp((logit - largest) / 2) : 0));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    expect(Math.abs(totalWeight(passes) / total - 1)).toBeLessThan(1e-6);
    let before = 0;
    for (const [id, weight] of weights.entries()) {
      if (weight > 0) {
        for (const part of [0.01, 0.5, 0.99]) expect(tokenAt(passes, (before + part * weight) / total)).toBe(id);
      }
      before += weight;
    }
    expect(tokenAt(passes, 0)).toBe(weights.findIndex((weight) => weight > 0));
  });

  it("are none where nothing was weighed", () => {
    const passes = passesOver([1, 2, 3]);
    passes.weigh(3, 1, 4);
    expect(tokenAt(passes, 0.5)).toBe(null);
  });
});
