/**
 * Draws the next token from logits. The order is that of transformers: logit bias, repetition penalty, presence and frequency
 * penalties, temperature, top-k, top-p, min-p, draw. Kernels make the passes over the whole vocabulary; the rest works on a few
 * tokens. All kernels give the same bits, and so the same tokens.
 */
import { checkIds, shown } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { Cpu } from "../kernels/contract.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { type VocabularyPasses, vocabularyPasses } from "../kernels/families/sampling/vocabulary.ts";
import { bestTokens, countEqual, likeliest, removeEqual, tokenAt, totalWeight } from "./candidates.ts";
import { createRandom, type Random } from "./random.ts";

export interface SamplerOptions {
  /** Divides the logits; 0 takes the largest one (of equal ones the lowest id). Default 1. */
  readonly temperature?: number | undefined;
  /** Keeps the k most likely tokens; 0 keeps all. Default 0. */
  readonly topK?: number | undefined;
  /** Keeps the fewest most likely tokens whose probabilities (after top-k) reach p, at least one. Default 1: all. */
  readonly topP?: number | undefined;
  /** Drops tokens less likely than this fraction of the most likely one. Default 0. */
  readonly minP?: number | undefined;
  /** Divides positive and multiplies negative logits of tokens in the window, as CTRL does. Default 1. */
  readonly repetitionPenalty?: number | undefined;
  /** Subtracted once from the logit of each token in the window, as OpenAI does. Default 0. */
  readonly presencePenalty?: number | undefined;
  /** Subtracted for each occurrence of a token in the window, as OpenAI does. Default 0. */
  readonly frequencyPenalty?: number | undefined;
  /** How many of the latest ids, prompt included, the penalties see; Infinity for all. Default 64, as in llama.cpp. */
  readonly penaltyWindow?: number | undefined;
  /** Added to the logits of these ids; -Infinity bans a token. */
  readonly logitBias?: Readonly<Record<number, number>> | undefined;
  /** Ids that are never drawn, whatever `logitBias` says. Default none. */
  readonly suppressTokens?: readonly number[] | undefined;
  /**
   * A whole number from 0 to 2^53-1. Equal seeds give equal draws; the text is the same where the logits are, too: with the
   * same program, CPU, backend and number of threads, whose kernels differ in the last bits of sums. Default: random.
   */
  readonly seed?: number | undefined;
}

export interface Sampler {
  /**
   * The next token id. `logits` [vocabulary] is not changed; `history` is the ids so far, oldest first. With a mask
   * [vocabulary / 32, rounded up], only ids whose bit (i % 32 of word i / 32) is set can be taken.
   * InvalidArgumentError when a logit is NaN or Infinity, or when no id is left.
   */
  sample(logits: Float32Array, history: readonly number[], mask?: Uint32Array | null): number;
}

interface Settings {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly repetitionPenalty: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  readonly penaltyWindow: number;
  readonly bias: readonly (readonly [id: number, bias: number])[];
  readonly suppressed: readonly number[];
}

/**
 * Creates a sampler with its own random sequence, with kernels for a CPU. InvalidArgumentError naming an option that is out of
 * range.
 */
export function createSampler(options: SamplerOptions = {}, cpu: Cpu = hostCpu()): Sampler {
  return new LogitSampler(checkOptions(options), createRandom(checkSeed(options.seed)), cpu);
}

/** Occurrences of each token id in the penalty window; all samplers share the array, which is zero between calls. */
let occurrences = new Int32Array(0);

class LogitSampler implements Sampler {
  readonly #settings: Settings;
  readonly #random: Random;
  readonly #cpu: Cpu;
  readonly #penalizes: boolean;
  #passes: VocabularyPasses | null = null;
  /** A bit per id that is not banned; null where none is. */
  #allowed: Uint32Array | null = null;
  /** A bit per id that is not banned and in the mask. */
  #both: Uint32Array | null = null;

  constructor(settings: Settings, random: Random, cpu: Cpu) {
    const { repetitionPenalty, presencePenalty, frequencyPenalty } = settings;
    this.#settings = settings;
    this.#random = random;
    this.#cpu = cpu;
    this.#penalizes = repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;
  }

  sample(logits: Float32Array, history: readonly number[], mask: Uint32Array | null = null): number {
    const passes = this.#passesFor(logits.length);
    const scores = passes.logits;
    scores.set(logits);
    for (const [id, bias] of this.#settings.bias) scores[id] = finite(scores[id]! + bias);
    if (this.#penalizes) this.#penalize(scores, history);
    passes.findMaxima(this.#allowedBy(mask));
    const best = likeliest(passes);
    if (this.#settings.temperature === 0) return best;
    return this.#draw(passes, scores[best]!) ?? best;
  }

  #allowedBy(mask: Uint32Array | null): Uint32Array | null {
    const allowed = this.#allowed;
    if (!mask || !allowed) return mask ?? allowed;
    this.#both ??= new Uint32Array(allowed.length);
    const both = this.#both;
    for (let word = 0; word < both.length; word++) both[word] = allowed[word]! & mask[word]!;
    return both;
  }

  #passesFor(length: number): VocabularyPasses {
    if (this.#passes?.length === length) return this.#passes;
    this.#allowed = allowedBits(this.#settings, length);
    this.#both = null;
    this.#passes = vocabularyPasses(length, this.#cpu);
    return this.#passes;
  }

  #penalize(scores: Float32Array, history: readonly number[]): void {
    const { repetitionPenalty, presencePenalty, frequencyPenalty, penaltyWindow } = this.#settings;
    const { length } = this.#passes!;
    if (occurrences.length < length) occurrences = new Int32Array(length);
    const counts = occurrences;
    const first = Math.max(0, history.length - penaltyWindow);
    for (let i = first; i < history.length; i++) if (history[i]! < length) counts[history[i]!]!++;
    for (let i = first; i < history.length; i++) {
      const id = history[i]!;
      const count = id < length ? counts[id]! : 0;
      if (count === 0) continue;
      counts[id] = 0;
      const score = scores[id]!;
      const repeated = score < 0 ? score * repetitionPenalty : score / repetitionPenalty;
      scores[id] = finite(repeated - presencePenalty - frequencyPenalty * count);
    }
  }

  /**
   * Draws from softmax(logits / temperature) restricted by top-k, top-p and min-p, each of which keeps the tokens from some
   * logit on. Null should rounding leave none.
   */
  #draw(passes: VocabularyPasses, largest: number): number | null {
    const { temperature, topK, topP, minP } = this.#settings;
    let least = topK > 0 && topK < passes.length ? bestTokens(passes).leastOf(topK) : Number.NEGATIVE_INFINITY;
    let reached = Number.POSITIVE_INFINITY;
    if (topP < 1) {
      passes.weigh(largest, temperature, least);
      reached = topP * totalWeight(passes);
    }
    if (minP > 0) least = Math.max(least, Math.fround(largest + temperature * Math.log(minP)));
    if (topP === 1 || minP > 0) passes.weigh(largest, temperature, least);
    return this.#drawBefore(passes, largest, reached);
  }

  /**
   * Top-p by rejection: draws a token and takes it if the mass of more likely tokens is below `reached`; else keeps only those
   * and draws again, which takes few draws.
   */
  #drawBefore(passes: VocabularyPasses, largest: number, reached: number): number | null {
    const { temperature } = this.#settings;
    const { logits, weights } = passes;
    // The largest logit has the weight 1.
    if (reached <= 1) return null;
    for (;;) {
      const id = tokenAt(passes, this.#random.uniform());
      if (id === null || reached === Number.POSITIVE_INFINITY) return id;
      const logit = logits[id]!;
      const weight = weights[id]!;
      passes.weigh(largest, temperature, nextFloat(logit));
      const better = totalWeight(passes);
      if (better >= reached) continue;
      if (better + weight * countEqual(passes, logit, id) < reached) return id;
      removeEqual(passes, logit, id);
      passes.weigh(largest, temperature, logit);
    }
  }
}

const LARGEST = (2 - 2 ** -23) * 2 ** 127;

const float = new Float32Array(1);
const bits = new Int32Array(float.buffer);

/** The least float32 above a finite one. */
function nextFloat(value: number): number {
  if (value === 0) return 2 ** -149;
  float[0] = value;
  bits[0]! += value > 0 ? 1 : -1;
  return float[0];
}

/** An adjusted logit clamped to float32's range: finite where it is finite. */
function finite(value: number): number {
  return Number.isFinite(value) ? Math.min(LARGEST, Math.max(-LARGEST, value)) : value;
}

/** A bit (i % 32 of word i / 32) per id that neither `suppressTokens` nor `logitBias` bans; null where they ban none. */
function allowedBits({ bias, suppressed }: Settings, length: number): Uint32Array | null {
  const check = (name: string, id: number) => {
    if (id >= length) throw new InvalidArgumentError(`${name}: expected ids below ${length} but found ${id}`);
  };
  for (const [id] of bias) check("logitBias", id);
  for (const id of suppressed) check("suppressTokens", id);
  const banned = [...suppressed, ...bias.flatMap(([id, value]) => (value === Number.NEGATIVE_INFINITY ? [id] : []))];
  if (banned.length === 0) return null;
  const allowed = new Uint32Array(Math.ceil(length / 32)).fill(0xffffffff);
  for (const id of banned) allowed[id >>> 5]! &= ~(1 << (id & 31));
  return allowed;
}

function checkOptions(options: SamplerOptions): Settings {
  const inRange = (name: keyof SamplerOptions, fallback: number, min: number, max: number) => {
    const value = options[name] ?? fallback;
    if (typeof value !== "number" || !(value >= min && value <= max))
      throw new InvalidArgumentError(`${name}: expected a number from ${min} to ${max} but found ${shown(value)}`);
    return value;
  };
  const whole = (name: keyof SamplerOptions, fallback: number) => {
    const value = inRange(name, fallback, 0, Number.POSITIVE_INFINITY);
    if (!Number.isInteger(value) && value !== Number.POSITIVE_INFINITY)
      throw new InvalidArgumentError(`${name}: expected a whole number but found ${value}`);
    return value;
  };
  const { logitBias = {}, suppressTokens = [] } = options;
  if (typeof logitBias !== "object" || logitBias === null)
    throw new InvalidArgumentError(`logitBias: expected an object but found ${shown(logitBias)}`);
  checkIds("suppressTokens", suppressTokens);
  return {
    temperature: inRange("temperature", 1, 0, Number.MAX_VALUE),
    topK: whole("topK", 0),
    topP: inRange("topP", 1, 0, 1),
    minP: inRange("minP", 0, 0, 1),
    repetitionPenalty: inRange("repetitionPenalty", 1, Number.MIN_VALUE, Number.MAX_VALUE),
    presencePenalty: inRange("presencePenalty", 0, -Number.MAX_VALUE, Number.MAX_VALUE),
    frequencyPenalty: inRange("frequencyPenalty", 0, -Number.MAX_VALUE, Number.MAX_VALUE),
    penaltyWindow: whole("penaltyWindow", 64),
    bias: Object.entries(logitBias).map(([key, bias]) => checkBias(Number(key), bias)),
    suppressed: suppressTokens,
  };
}

function checkBias(id: number, bias: unknown): [id: number, bias: number] {
  if (!Number.isInteger(id) || id < 0)
    throw new InvalidArgumentError(`logitBias: expected token ids as keys but found ${id}`);
  if (typeof bias !== "number" || !(bias < Number.POSITIVE_INFINITY))
    throw new InvalidArgumentError(
      `logitBias: expected a finite number or -Infinity for id ${id} but found ${shown(bias)}`,
    );
  return [id, bias];
}

function checkSeed(seed: number | undefined): number {
  if (seed === undefined) return crypto.getRandomValues(new Uint32Array(1))[0]!;
  if (!Number.isSafeInteger(seed) || seed < 0)
    throw new InvalidArgumentError(`seed: expected a whole number from 0 to 2^53-1 but found ${shown(seed)}`);
  return seed;
}
