/** The sampler's passes against plain loops, and every row against the reference in every bit. */
import { describe, expect, it } from "vitest";
import { describeRows, heap, machine, run } from "../../../../test/support/conformance.ts";
import { Random } from "../../../../test/support/random.ts";
import type { Kernel } from "../../contract.ts";
import { scalarCpu } from "../../cpu.ts";
import { BLOCK_TOKENS } from "./fields.ts";
import { vocabularyMaxima, vocabularyWeights } from "./kernels.ts";
import { VocabularyPasses, vocabularyPasses } from "./vocabulary.ts";

const random = new Random(5);
const bench = { memory: heap, threads: 1 };
const { NEGATIVE_INFINITY: none, POSITIVE_INFINITY: infinite } = Number;

function floats(values: ArrayLike<number>): Float32Array {
  const bytes = heap(4 * values.length);
  const result = new Float32Array(bytes.buffer, bytes.byteOffset, values.length);
  result.set(values);
  return result;
}

/** Blocks of logits, the first ones with what is special. */
function logitsOf(blocks: number, spread: number): Float32Array {
  const x = floats(random.floats(blocks * BLOCK_TOKENS, spread));
  x.set([none, -0, 0, 3.4028234663852886e38, -3.4028234663852886e38, 1e-45], 3);
  return x;
}

const bitsOf = (values: Float32Array) => new Uint32Array(values.buffer, values.byteOffset, values.length);

describe("largest logits of blocks", () => {
  const masks = {
    "all allowed": () => 0xffffffff,
    "none allowed": () => 0,
    "some allowed": () =>
      random.floats(1)[0]! > 0 ? 0xffffffff : Math.floor(2 ** 32 * Math.abs(random.floats(1)[0]!)) >>> 0,
    "the last of a word": () => 0x80000000,
  };
  describeRows(vocabularyMaxima, machine(), (kernel) => {
    it.each(Object.entries(masks))("%s", (_, word) => {
      for (let round = 0; round < 20; round++) {
        const blocks = 1 + (round % 5);
        const x = logitsOf(blocks, 8);
        if (round % 3 === 1) x[(37 * round) % x.length] = Number.NaN;
        if (round % 4 === 1) x[(53 * round) % x.length] = infinite;
        if (round === 7) x.fill(none);
        const words = heap(4 * blocks * 4);
        const allowed = new Uint32Array(words.buffer, words.byteOffset, 4 * blocks).map(word);
        const masked = Array.from(x, (value, i) => ((allowed[i >> 5]! >>> (i & 31)) & 1 ? value : none));
        const expected = Array.from({ length: blocks }, (_block, b) =>
          Math.max(...masked.slice(b * BLOCK_TOKENS, (b + 1) * BLOCK_TOKENS)),
        );
        const maxima = floats(new Float32Array(blocks).fill(99));
        run(kernel, { x, allowed, maxima }, bench);
        expect(Array.from(maxima, (value) => value + 0)).toEqual(expected.map((value) => value + 0));
        expect(Array.from(x)).toEqual(masked);
      }
    });
  });
});

describe("weights", () => {
  const settings = [
    { scale: Math.LOG2E, least: none },
    { scale: Math.LOG2E / 0.05, least: none },
    { scale: Math.LOG2E / 30, least: 1 },
    { scale: 2 ** 127, least: none },
    { scale: 2 ** -126, least: -1 },
    { scale: 1, least: infinite },
  ];
  const call = (kernel: Kernel<never>, { scale, least }: (typeof settings)[number]) => {
    const x = floats(new Random(9).floats(7 * BLOCK_TOKENS, 12));
    x.set([none, none, 12, 12], 140);
    x.fill(none, 3 * BLOCK_TOKENS, 4 * BLOCK_TOKENS);
    const maxima = floats(
      Array.from({ length: 7 }, (_, b) => Math.max(...x.subarray(b * BLOCK_TOKENS, (b + 1) * BLOCK_TOKENS))),
    );
    const args = {
      ...{ x, maxima, settings: floats([12, scale, least]) },
      ...{ weights: floats(new Float32Array(x.length).fill(-1)), sums: floats(new Float32Array(7).fill(-1)) },
    };
    run(kernel as Kernel<typeof args>, args, bench);
    return args;
  };
  describeRows(vocabularyWeights, machine(), (kernel) => {
    it.each(settings)("the bits of the reference, close to exp in double precision (%o)", (setting) => {
      const { x, maxima, weights, sums } = call(kernel, setting);
      const reference = call(vocabularyWeights.at(-1)!, setting);
      expect(bitsOf(weights)).toEqual(bitsOf(reference.weights));
      expect(bitsOf(sums)).toEqual(bitsOf(reference.sums));
      for (let block = 0; block < 7; block++) {
        let sum = 0;
        for (let i = block * BLOCK_TOKENS; i < (block + 1) * BLOCK_TOKENS; i++) {
          const exponent = (x[i]! - 12) * Math.fround(setting.scale);
          const exact = x[i]! >= setting.least && exponent >= -125 ? 2 ** exponent : 0;
          sum += exact;
          const isLeft = maxima[block]! < setting.least;
          const tolerance = exact > 0 ? 2e-7 * (1 - exponent) * exact + 3e-38 : 3e-38;
          if (isLeft) expect(weights[i]).toBe(-1);
          else expect(Math.abs(weights[i]! - exact)).toBeLessThanOrEqual(tolerance);
        }
        expect(Math.abs(sums[block]! - sum)).toBeLessThanOrEqual(1e-5 * sum + 1e-30);
      }
    });
  });
});

describe("passes", () => {
  it("are the same on all kernels, for any number of logits and one row after the other", () => {
    const wasm = { name: "wasm", features: new Set(["simd128"] as const) };
    for (const length of [1, 31, 32, 127, 128, 129, 1000, 4097]) {
      const all = [scalarCpu, wasm, machine()].map((cpu) => new VocabularyPasses(length, cpu));
      for (let round = 0; round < 3; round++) {
        const logits = random.floats(length, 9);
        const allowed = round === 1 ? new Uint32Array(Math.ceil(length / 32)).fill(0xfffffff7) : null;
        const found = all.map((passes) => {
          passes.logits.set(logits);
          passes.findMaxima(allowed);
          passes.weigh(Math.max(...passes.maxima), 0.7);
          return [passes.maxima, passes.weights, passes.sums].map((values) => Array.from(values));
        });
        expect(found[0]![0]).toHaveLength(Math.ceil(length / BLOCK_TOKENS));
        expect(found[0]![1]!.slice(length).every((weight) => weight === 0)).toBe(true);
        expect(found[1]).toEqual(found[0]);
        expect(found[2]).toEqual(found[0]);
      }
    }
  });

  it("of one length share a memory", () => {
    const first = vocabularyPasses(300, scalarCpu);
    expect(vocabularyPasses(300, scalarCpu)).toBe(first);
    for (let length = 301; length < 310; length++) expect(vocabularyPasses(length, scalarCpu).length).toBe(length);
    expect(vocabularyPasses(300, scalarCpu).length).toBe(300);
  });
});
