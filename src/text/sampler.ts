/**
 * Logits to the next token. The order is that of transformers: logit bias, repetition penalty, presence and frequency
 * penalties, temperature, top-k, top-p, min-p, draw. Work grows with the vocabulary, not with its sorting.
 */
import { checkIds } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { selectBest } from "./best-set.ts";
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
  /** Ids that are never taken, whatever `logitBias` says. Default none. */
  readonly suppressTokens?: readonly number[] | undefined;
  /**
   * A whole number from 0 to 2^53-1. Equal seeds give equal draws; the text is the same where the logits are, too: with the
   * same program, CPU, backend and number of threads, whose kernels differ in the last bits of sums. Default: random.
   */
  readonly seed?: number | undefined;
}

export interface Sampler {
  /**
   * The next token id. `logits` [vocabulary] is not changed; `history` is the ids so far, oldest first.
   * InvalidArgumentError when a logit is NaN or Infinity, or when all are -Infinity.
   */
  sample(logits: Float32Array, history: readonly number[]): number;
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

/** A sampler with its own random sequence; InvalidArgumentError naming the option that is out of range. */
export function createSampler(options: SamplerOptions = {}): Sampler {
  return new LogitSampler(checkOptions(options), createRandom(checkSeed(options.seed)));
}

class LogitSampler implements Sampler {
  readonly #settings: Settings;
  readonly #random: Random;
  readonly #adjusts: boolean;
  readonly #penalizes: boolean;
  /** Scratch of the vocabulary's size, made at first use: adjusted logits, then weights; candidates; occurrences. */
  #scores = new Float64Array(0);
  #ids = new Int32Array(0);
  #counts = new Int32Array(0);

  constructor(settings: Settings, random: Random) {
    const { repetitionPenalty, presencePenalty, frequencyPenalty } = settings;
    this.#settings = settings;
    this.#random = random;
    this.#penalizes = repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;
    this.#adjusts = this.#penalizes || settings.bias.length > 0 || settings.suppressed.length > 0;
  }

  sample(logits: Float32Array, history: readonly number[]): number {
    const greedy = this.#settings.temperature === 0;
    if (greedy && !this.#adjusts) return argmax(logits);
    if (this.#scores.length !== logits.length) {
      this.#scores = new Float64Array(logits.length);
      this.#ids = new Int32Array(logits.length);
      this.#counts = new Int32Array(logits.length);
    }
    this.#scores.set(logits);
    this.#addBias();
    if (this.#penalizes) this.#penalize(history);
    const best = argmax(this.#scores);
    return greedy ? best : this.#drawFrom(best);
  }

  #addBias(): void {
    const size = this.#scores.length;
    const check = (name: string, id: number) => {
      if (id >= size) throw new InvalidArgumentError(`${name}: expected ids below ${size} but found ${id}`);
    };
    for (const [id, bias] of this.#settings.bias) {
      check("logitBias", id);
      this.#scores[id]! += bias;
    }
    for (const id of this.#settings.suppressed) {
      check("suppressTokens", id);
      this.#scores[id] = Number.NEGATIVE_INFINITY;
    }
  }

  #penalize(history: readonly number[]): void {
    const { repetitionPenalty, presencePenalty, frequencyPenalty, penaltyWindow } = this.#settings;
    const scores = this.#scores;
    const counts = this.#counts;
    const first = Math.max(0, history.length - penaltyWindow);
    for (let i = first; i < history.length; i++) if (history[i]! < counts.length) counts[history[i]!]!++;
    for (let i = first; i < history.length; i++) {
      const id = history[i]!;
      const count = id < counts.length ? counts[id]! : 0;
      if (count === 0) continue;
      counts[id] = 0;
      const score = scores[id]!;
      const repeated = score < 0 ? score * repetitionPenalty : score / repetitionPenalty;
      scores[id] = repeated - presencePenalty - frequencyPenalty * count;
    }
  }

  /** Draws from softmax(scores / temperature) cut by top-k, top-p and min-p. The weight of `best` is 1. */
  #drawFrom(best: number): number {
    const { temperature, topK, topP, minP } = this.#settings;
    const scores = this.#scores;
    const ids = this.#ids;
    const max = scores[best]!;
    let count = scores.length;
    for (let i = 0; i < count; i++) ids[i] = i;
    if (topK > 0 && topK < count) {
      // Most tokens are seen to be too unlikely at a glance; the best of the others are looked for.
      count = this.#keepHeavier(count, reachedBy(scores, topK));
      count = selectBest(ids, scores, count, { count: topK });
    }
    let total = 0;
    for (let i = 0; i < count; i++) {
      const weight = Math.exp((scores[ids[i]!]! - max) / temperature);
      scores[ids[i]!] = weight;
      total += weight;
    }
    if (topP < 1) {
      const sum = topP * total;
      // Tokens lighter than (1-p) total / (count-1) sum to less than 1-p, so that the others reach p without them.
      const surelyCut = count > 1 ? Math.min(1, (total - sum) / (count - 1)) : 0;
      count = selectBest(ids, scores, this.#keepHeavier(count, surelyCut), { sum });
    }
    if (minP > 0) count = this.#keepHeavier(count, minP);
    return this.#draw(count, best);
  }

  /** Keeps candidates of at least this weight; gives their number. */
  #keepHeavier(count: number, weight: number): number {
    let kept = 0;
    for (let i = 0; i < count; i++) {
      const id = this.#ids[i]!;
      if (this.#scores[id]! >= weight) this.#ids[kept++] = id;
    }
    return kept;
  }

  /** One of the first `count` candidates, by weight; `best` should rounding leave none. */
  #draw(count: number, best: number): number {
    const scores = this.#scores;
    const ids = this.#ids;
    let total = 0;
    for (let i = 0; i < count; i++) total += scores[ids[i]!]!;
    let rest = this.#random.uniform() * total;
    for (let i = 0; i < count; i++) {
      rest -= scores[ids[i]!]!;
      if (rest < 0) return ids[i]!;
    }
    return best;
  }
}

/** A value that at least `count` of the scores reach: the least of the largest of so many parts. */
function reachedBy(scores: Float64Array, count: number): number {
  const length = Math.floor(scores.length / count);
  let least = Number.POSITIVE_INFINITY;
  for (let part = 0; part < count; part++) {
    let largest = Number.NEGATIVE_INFINITY;
    for (let i = part * length; i < (part + 1) * length; i++) if (scores[i]! > largest) largest = scores[i]!;
    if (largest < least) least = largest;
  }
  return least;
}

/** The index of the largest value, the lowest of equal ones. */
function argmax(values: Float32Array | Float64Array): number {
  let best = -1;
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!;
    if (value > max) {
      max = value;
      best = i;
    } else if (Number.isNaN(value)) throw new InvalidArgumentError(`logits: expected numbers but found NaN at id ${i}`);
  }
  if (max === Number.POSITIVE_INFINITY)
    throw new InvalidArgumentError(`logits: expected finite numbers or -Infinity but found Infinity at id ${best}`);
  if (best < 0) throw new InvalidArgumentError(`logits: all ${values.length} are -Infinity, no token can follow`);
  return best;
}

function checkOptions(options: SamplerOptions): Settings {
  const inRange = (name: keyof SamplerOptions, fallback: number, min: number, max: number) => {
    const value = options[name] ?? fallback;
    if (typeof value !== "number" || !(value >= min && value <= max))
      throw new InvalidArgumentError(`${name}: expected a number from ${min} to ${max} but found ${String(value)}`);
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
    throw new InvalidArgumentError(`logitBias: expected an object but found ${JSON.stringify(logitBias)}`);
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
    suppressed: suppressTokens.map(checkSuppressed),
  };
}

function checkSuppressed(id: unknown): number {
  if (typeof id === "number" && Number.isInteger(id) && id >= 0) return id;
  throw new InvalidArgumentError(`suppressTokens: expected token ids but found ${JSON.stringify(id)}`);
}

function checkBias(id: number, bias: unknown): [id: number, bias: number] {
  if (!Number.isInteger(id) || id < 0)
    throw new InvalidArgumentError(`logitBias: expected token ids as keys but found ${id}`);
  if (typeof bias !== "number" || !(bias < Number.POSITIVE_INFINITY))
    throw new InvalidArgumentError(`logitBias: expected a finite number or -Infinity for id ${id} but found ${bias}`);
  return [id, bias];
}

function checkSeed(seed: number | undefined): number {
  if (seed === undefined) return crypto.getRandomValues(new Uint32Array(1))[0]!;
  if (!Number.isSafeInteger(seed) || seed < 0)
    throw new InvalidArgumentError(`seed: expected a whole number from 0 to 2^53-1 but found ${seed}`);
  return seed;
}
