/** Log probabilities against double precision, on every kind of kernel. */
import { describe, expect, it } from "vitest";
import { machine } from "../../test/support/conformance.ts";
import { Random } from "../../test/support/random.ts";
import { cpuWith, scalarCpu } from "../kernels/cpu.ts";
import { logProbabilities } from "./log-probabilities.ts";

const random = new Random(8);
const cpus = [scalarCpu, cpuWith("simd128"), machine()];

describe.each(cpus)("on $name", (cpu) => {
  it.each([1, 2, 127, 1000, 20_001])("of %d tokens are those of log softmax", (length) => {
    for (const spread of [0, 1, 20, 500]) {
      const logits = random.floats(length, spread);
      const max = Math.max(...logits);
      const normalizer = max + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - max), 0));
      const order = Array.from(logits.keys()).sort((a, b) => logits[b]! - logits[a]! || a - b);
      for (const count of [0, 1, 20, 100]) {
        const id = random.integer(0, length - 1);
        const { top, ...taken } = logProbabilities(logits, id, count, cpu);
        expect(taken.id).toBe(id);
        expect(Math.abs(taken.logprob - (logits[id]! - normalizer))).toBeLessThan(1e-6);
        expect(top.map((token) => token.id)).toEqual(order.slice(0, count));
        for (const token of top) expect(Math.abs(token.logprob - (logits[token.id]! - normalizer))).toBeLessThan(1e-6);
      }
    }
  });

  it("list possible tokens only, and refuse what is no number", () => {
    const { NEGATIVE_INFINITY: none } = Number;
    const logits = Float32Array.of(none, 1, none, 1);
    const { top, logprob } = logProbabilities(logits, 0, 3, cpu);
    expect(logprob).toBe(none);
    expect(top.map(({ id }) => id)).toEqual([1, 3]);
    for (const token of top) expect(token.logprob).toBeCloseTo(-Math.LN2, 6);
    expect(() => logProbabilities(Float32Array.of(0, Number.NaN), 0, 1, cpu)).toThrow("found NaN at id 1");
  });
});
