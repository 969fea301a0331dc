/** Sampler against a plain one that sorts everything, its distribution, and its refusals. */
import { describe, expect, it } from "vitest";
import { machine } from "../../test/support/conformance.ts";
import { InvalidArgumentError } from "../errors.ts";
import { cpuWith, scalarCpu } from "../kernels/cpu.ts";
import { createRandom } from "./random.ts";
import { createSampler, type SamplerOptions } from "./sampler.ts";

const numbers = createRandom(11);
/** Roughly normal numbers of a given spread. */
const normal = (spread: number) => {
  let sum = -6;
  for (let i = 0; i < 12; i++) sum += numbers.uniform();
  return sum * spread;
};
const randomLogits = (length: number, spread = 3) => Float32Array.from({ length }, () => normal(spread));

/** Probabilities by the definition: all ids sorted, every rule applied to the whole list. */
function plainProbabilities(logits: Float32Array, history: readonly number[], options: SamplerOptions): number[] {
  const { temperature = 1, topK = 0, topP = 1, minP = 0 } = options;
  const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0, penaltyWindow = 64 } = options;
  const scores = Array.from(logits);
  for (const [id, bias] of Object.entries(options.logitBias ?? {})) scores[Number(id)]! += bias;
  const window = penaltyWindow === 0 ? [] : history.slice(-penaltyWindow);
  for (const id of new Set(window)) {
    if (id >= scores.length) continue;
    const occurrences = window.filter((other) => other === id).length;
    scores[id]! *= scores[id]! < 0 ? repetitionPenalty : 1 / repetitionPenalty;
    scores[id]! -= presencePenalty + frequencyPenalty * occurrences;
  }
  const order = scores.map((_, id) => id).sort((a, b) => scores[b]! - scores[a]! || a - b);
  const max = scores[order[0]!]!;
  if (temperature === 0) return scores.map((_, id) => (id === order[0] ? 1 : 0));
  let kept = topK > 0 ? order.slice(0, topK) : order;
  const weight = (id: number) => Math.exp((scores[id]! - max) / temperature);
  const total = kept.reduce((sum, id) => sum + weight(id), 0);
  let reached = 0;
  kept = kept.filter((_, rank) => {
    if (rank > 0 && reached >= topP) return false;
    reached += weight(kept[rank]!) / total;
    return true;
  });
  kept = kept.filter((id) => weight(id) >= minP);
  const keptTotal = kept.reduce((sum, id) => sum + weight(id), 0);
  return scores.map((_, id) => (kept.includes(id) ? weight(id) / keptTotal : 0));
}

const cases: [string, SamplerOptions][] = [
  ["nothing", {}],
  ["temperature", { temperature: 0.3 }],
  ["high temperature", { temperature: 5 }],
  ["top-k 1", { topK: 1 }],
  ["top-k", { topK: 7, temperature: 0.8 }],
  ["top-k beyond the vocabulary", { topK: 1000 }],
  ["top-p", { topP: 0.9 }],
  ["top-p 0", { topP: 0 }],
  ["top-p close to 1", { topP: 0.999999, temperature: 3 }],
  ["min-p", { minP: 0.05 }],
  ["min-p 1", { minP: 1 }],
  ["all cuts", { topK: 20, topP: 0.8, minP: 0.02, temperature: 1.5 }],
  ["repetition", { repetitionPenalty: 1.7 }],
  ["reward of repetition", { repetitionPenalty: 0.6 }],
  ["presence and frequency", { presencePenalty: 0.7, frequencyPenalty: 0.4, penaltyWindow: 10 }],
  ["no window", { repetitionPenalty: 2, penaltyWindow: 0 }],
  ["whole history", { frequencyPenalty: 0.3, penaltyWindow: Number.POSITIVE_INFINITY }],
  ["bias", { logitBias: { 3: 5, 4: Number.NEGATIVE_INFINITY, 5: -1 }, topP: 0.95 }],
];

describe("against the plain sampler", () => {
  it.each(cases)("%s: the candidates and the draws are the same", (_, options) => {
    for (let round = 0; round < 10; round++) {
      const logits = randomLogits(120);
      const history = Array.from({ length: 90 }, () => numbers.uint32() % 130);
      const expected = plainProbabilities(logits, history, options);
      const greedy = expected.indexOf(Math.max(...expected));
      const cold = { ...options, temperature: 0 };
      const coldest = plainProbabilities(logits, history, cold).indexOf(1);
      expect(createSampler(cold).sample(logits, history)).toBe(coldest);
      const sampler = createSampler({ ...options, seed: round });
      const counts = new Array<number>(120).fill(0);
      const draws = 400;
      for (let i = 0; i < draws; i++) counts[sampler.sample(logits, history)]!++;
      for (let id = 0; id < 120; id++) {
        const p = expected[id]!;
        if (p === 0) expect(counts[id]).toBe(0);
        // Six standard deviations, and one draw more for the rare ones.
        expect(Math.abs(counts[id]! - p * draws)).toBeLessThan(6 * Math.sqrt(draws * p * (1 - p)) + 2);
      }
      expect(counts[greedy]).toBeGreaterThan(0);
    }
  });

  it("keeps every candidate that it should: each is drawn in the end", () => {
    const logits = Float32Array.of(1, 1.2, 0.9, 1.1, -2, 1.05, -9, 0.95);
    for (const options of [{ topK: 5 }, { topP: 0.8 }, { minP: 0.5 }, { topK: 6, topP: 0.7 }]) {
      const sampler = createSampler({ ...options, seed: 3 });
      const drawn = new Set(Array.from({ length: 500 }, () => sampler.sample(logits, [])));
      const expected = plainProbabilities(logits, [], options).flatMap((p, id) => (p > 0 ? [id] : []));
      expect([...drawn].sort((a, b) => a - b)).toEqual(expected);
    }
  });
});

/** Plain loops, WebAssembly, and what this machine has best. */
const cpus = [scalarCpu, cpuWith("simd128"), machine()];

/** The token that the definition draws, by lists and double precision. */
function plainDraw(logits: Float32Array, options: SamplerOptions, uniform: () => number): number {
  const { temperature = 1, topK = 0, topP = 1, minP = 0 } = options;
  const order = Array.from(logits.keys()).sort((a, b) => logits[b]! - logits[a]! || a - b);
  const most = logits[order[0]!]!;
  const weight = (id: number) => Math.exp((logits[id]! - most) / temperature);
  const massOf = (ids: readonly number[]) => ids.reduce((sum, id) => sum + weight(id), 0);
  const likely = topK > 0 ? order.slice(0, topK) : order;
  const reached = topP < 1 ? topP * massOf(likely) : Number.POSITIVE_INFINITY;
  if (reached <= 1) return order[0]!;
  let ids = likely.filter((id) => logits[id]! >= Math.fround(most + temperature * Math.log(minP)));
  for (;;) {
    let rest = uniform() * massOf(ids);
    const id = ids
      .toSorted((a, b) => a - b)
      .find((candidate) => {
        rest -= weight(candidate);
        return rest < 0;
      })!;
    const higher = likely.filter((other) => logits[other]! > logits[id]!);
    const better = likely.slice(0, likely.indexOf(id));
    if (massOf(better) < reached) return id;
    ids = massOf(higher) >= reached ? higher : better;
  }
}

describe("on any kernels", () => {
  const settings: SamplerOptions[] = [
    {},
    { temperature: 0.3 },
    { temperature: 4, topK: 11 },
    { topK: 3 },
    { topK: 90 },
    { topP: 0.9 },
    { topP: 0.5, temperature: 2 },
    { topP: 0.02, temperature: 5 },
    { minP: 0.05 },
    { topK: 20, topP: 0.8, minP: 0.02, temperature: 1.5 },
    { topP: 0.95, minP: 0.3, temperature: 3 },
  ];

  it.each(settings)("%o draws what lists and double precision draw", (options) => {
    for (let seed = 0; seed < 90; seed++) {
      const length = [1, 2, 33, 129, 400][seed % 5]!;
      const logits = randomLogits(length).map((logit) => (seed % 2 === 0 ? logit : Math.round(logit)));
      const random = createRandom(seed);
      const samplers = cpus.map((cpu) => createSampler({ ...options, seed }, cpu));
      for (let draw = 0; draw < 4; draw++) {
        const expected = plainDraw(logits, options, () => random.uniform());
        expect(samplers.map((sampler) => sampler.sample(logits, []))).toEqual([expected, expected, expected]);
      }
    }
  });

  it.each([
    ...settings,
    { temperature: 0 },
    { temperature: 0, repetitionPenalty: 1.3, logitBias: { 7: -2 } },
    { repetitionPenalty: 1.2, presencePenalty: 0.3, suppressTokens: [0, 5, 64], topP: 0.9 },
  ])("%o draws the same of a large vocabulary", (options) => {
    for (let seed = 0; seed < 12; seed++) {
      const logits = Float32Array.from({ length: 20_011 }, () => normal(2));
      const history = Array.from({ length: 100 }, () => numbers.uint32() % 20_011);
      const samplers = cpus.map((cpu) => createSampler({ ...options, seed }, cpu));
      for (let draw = 0; draw < 3; draw++) {
        const [expected, ...others] = samplers.map((sampler) => sampler.sample(logits, history));
        expect(others).toEqual([expected, expected]);
      }
    }
  });

  it.each(cpus)("extremes are drawn from as they are ($name)", (cpu) => {
    const { NEGATIVE_INFINITY: none } = Number;
    const largest = 3.4028234663852886e38;
    for (const options of [
      {},
      { topK: 2 },
      { topP: 0.9 },
      { minP: 0.1 },
      { temperature: 1e-300 },
      { temperature: 1e-40 },
    ]) {
      const sample = (...logits: number[]) =>
        createSampler({ ...options, seed: 3 }, cpu).sample(Float32Array.from(logits), []);
      expect(sample(-largest, largest, -largest)).toBe(1);
      expect(sample(none, -largest)).toBe(1);
      expect(sample(0, 200, -200)).toBe(1);
      expect(sample(1e-45)).toBe(0);
    }
    const flat = createSampler({ temperature: Number.MAX_VALUE, seed: 1 }, cpu);
    const drawn = new Set(Array.from({ length: 200 }, () => flat.sample(Float32Array.of(-1000, 0, none, 1000), [])));
    expect([...drawn].sort()).toEqual([0, 1, 3]);
    const biased = { logitBias: { 0: 1e300, 1: -1e300 }, temperature: 0 };
    expect(createSampler(biased, cpu).sample(Float32Array.of(1, 2, 3), [])).toBe(0);
    const equal = createSampler({ topP: 0.25, seed: 5 }, cpu);
    const firsts = new Set(Array.from({ length: 300 }, () => equal.sample(new Float32Array(12).fill(2), [])));
    expect([...firsts].sort()).toEqual([0, 1, 2]);
  });

  it.each(cpus)("what is banned may be anything ($name)", (cpu) => {
    const logits = Float32Array.of(1, Number.NaN, 5, Number.POSITIVE_INFINITY);
    const sampler = createSampler(
      { suppressTokens: [1], logitBias: { 3: Number.NEGATIVE_INFINITY }, temperature: 0 },
      cpu,
    );
    expect(sampler.sample(logits, [])).toBe(2);
  });
});

describe("draws", () => {
  it.each([{}, { topK: 8 }, { topP: 0.999 }])("follow the probabilities (chi-square, %o)", (options) => {
    const logits = Float32Array.of(0, 1, 2, -1, 0.5, 1.5, -0.5, 0.2);
    const p = plainProbabilities(logits, [], options);
    const draws = 20000;
    const sampler = createSampler({ ...options, seed: 2024 });
    const counts = new Array<number>(8).fill(0);
    for (let i = 0; i < draws; i++) counts[sampler.sample(logits, [])]!++;
    const chiSquare = counts.reduce((sum, n, id) => sum + (n - draws * p[id]!) ** 2 / (draws * p[id]!), 0);
    expect(chiSquare).toBeLessThan(24.3); // 7 degrees of freedom, one in a thousand
  });

  it("are the same for the same seed, and differ between seeds", () => {
    const logits = randomLogits(1000, 1);
    const run = (seed?: number) => {
      const sampler = createSampler({ seed, topP: 0.95 });
      return Array.from({ length: 20 }, () => sampler.sample(logits, []));
    };
    expect(run(7)).toEqual(run(7));
    expect(run(7)).not.toEqual(run(8));
    expect(run()).not.toEqual(run());
  });

  it("do not change the logits and follow a vocabulary that changes size", () => {
    const sampler = createSampler({ topK: 3, repetitionPenalty: 1.5, logitBias: { 0: 1 }, seed: 0 });
    for (const size of [10, 500, 10]) {
      const logits = randomLogits(size);
      const before = logits.slice();
      expect(sampler.sample(logits, [1, 2])).toBeLessThan(size);
      expect(logits).toEqual(before);
    }
  });

  it("cut a large vocabulary as they cut a small one", () => {
    const logits = randomLogits(60_000, 1);
    for (const options of [{ topK: 50 }, { topP: 0.3 }, { topK: 500, topP: 0.5 }]) {
      const order = Array.from(logits.keys()).sort((a, b) => logits[b]! - logits[a]! || a - b);
      const weight = (id: number) => Math.exp(logits[id]! - logits[order[0]!]!);
      const list = order.slice(0, options.topK ?? order.length);
      const total = list.reduce((sum, id) => sum + weight(id), 0);
      let sum = 0;
      const allowed = new Set<number>();
      for (const id of list) {
        if (sum >= (options.topP ?? 1) * total) break;
        allowed.add(id);
        sum += weight(id);
      }
      const sampler = createSampler({ ...options, seed: 4 });
      for (let i = 0; i < 20; i++) expect(allowed).toContain(sampler.sample(logits, []));
    }
  });
});

describe("temperature 0", () => {
  it("takes the lowest id among equals, also at top-k's edge", () => {
    expect(createSampler({ temperature: 0 }).sample(Float32Array.of(1, 3, 3, 2), [])).toBe(1);
    const edge = createSampler({ topK: 2, seed: 1 });
    const equal = new Float32Array(50).fill(1);
    const drawn = new Set(Array.from({ length: 100 }, () => edge.sample(equal, [])));
    expect([...drawn].sort()).toEqual([0, 1]);
  });
});

describe("logits that cannot be sampled", () => {
  const samplers = [createSampler({ temperature: 0 }), createSampler({}), createSampler({ topK: 2, minP: 0.1 })];

  it.each(samplers)("are refused with the reason (%#)", (sampler) => {
    const { NEGATIVE_INFINITY: none, POSITIVE_INFINITY: infinite, NaN: broken } = Number;
    expect(sampler.sample(Float32Array.of(none, 0, none), [])).toBe(1);
    expect(() => sampler.sample(Float32Array.of(0, 1, broken), [])).toThrow("found NaN at id 2");
    expect(() => sampler.sample(Float32Array.of(0, infinite), [])).toThrow("found Infinity at id 1");
    expect(() => sampler.sample(Float32Array.of(none, none), [])).toThrow("all 2 are -Infinity");
    expect(() => sampler.sample(new Float32Array(0), [])).toThrow(InvalidArgumentError);
  });

  it("include those that are suppressed, whatever their bias", () => {
    const logits = Float32Array.of(1, 9, 2);
    const suppressTokens = [1];
    for (const temperature of [0, 1])
      for (let seed = 0; seed < 20; seed++)
        expect(createSampler({ temperature, seed, suppressTokens, logitBias: { 1: 50 } }).sample(logits, [])).not.toBe(
          1,
        );
    expect(createSampler({ temperature: 0, suppressTokens, logitBias: { 0: 5 } }).sample(logits, [])).toBe(0);
    expect(() => createSampler({ suppressTokens: [0, 1, 2] }).sample(logits, [])).toThrow("-Infinity");
    expect(() => createSampler({ suppressTokens: [3] }).sample(logits, [])).toThrow(
      "suppressTokens: expected ids below 3 but found 3",
    );
    expect(() => createSampler({ suppressTokens: [-1] })).toThrow("suppressTokens: expected token ids but found -1");
  });

  it("include those that a bias bans", () => {
    const sampler = createSampler({ logitBias: { 0: Number.NEGATIVE_INFINITY } });
    expect(() => sampler.sample(Float32Array.of(1), [])).toThrow("-Infinity");
    expect(() => createSampler({ logitBias: { 9: 1 } }).sample(Float32Array.of(1), [])).toThrow("logitBias");
  });
});

it.each([
  { temperature: -1 },
  { temperature: Number.NaN },
  { temperature: Number.POSITIVE_INFINITY },
  { topK: 1.5 },
  { topK: -1 },
  { topP: 1.1 },
  { topP: "0.5" as unknown as number },
  { minP: -0.1 },
  { repetitionPenalty: 0 },
  { presencePenalty: Number.NaN },
  { frequencyPenalty: Number.POSITIVE_INFINITY },
  { penaltyWindow: -1 },
  { seed: 0.5 },
  { seed: -1 },
  { seed: 2 ** 53 },
  { logitBias: { a: 1 } as Record<number, number> },
  { logitBias: { 3: Number.NaN } },
  { logitBias: { 3: Number.POSITIVE_INFINITY } },
] satisfies SamplerOptions[])("refuses %o by name", (options) => {
  const [name] = Object.keys(options);
  expect(() => createSampler(options)).toThrow(InvalidArgumentError);
  expect(() => createSampler(options)).toThrow(`${name}: expected`);
});
