/** How fast a loaded model computes a prompt (prefill) and generates (decode), on random tokens. */
import { checkOptions, checkWhole } from "../arguments.ts";
import { ContextLengthError } from "../errors.ts";
import { createRandom } from "../text/random.ts";
import { checkLanguageModel, type LanguageModel } from "./language-model.ts";

/** What `benchmark` runs: tokens of the prompt, tokens that are generated, and repetitions. */
export interface BenchmarkOptions {
  /** Tokens of the prompt. Default 128. */
  readonly promptTokens?: number | undefined;
  /** Tokens that each run generates. Default 32. */
  readonly decodeTokens?: number | undefined;
  /** Repetitions, whose median is reported. Default 3. */
  readonly runs?: number | undefined;
  /** Seed of the random token ids. Default 0. */
  readonly seed?: number | undefined;
  /** Called after each run, with runs done and runs in all. */
  readonly onProgress?: ((doneRuns: number, runs: number) => void) | undefined;
  /** Ends the benchmark; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** What `benchmark` measures: tokens a second of prefill and of decode, and the number of tokens of each. */
export interface Benchmark {
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Tokens that each run generated. */
  readonly decodeTokens: number;
  /** Prefill speed of each run, in tokens a second. */
  readonly prefillRuns: readonly number[];
  /** Decode speed of each run, in tokens a second. */
  readonly decodeRuns: readonly number[];
  /** Median of `prefillRuns`. */
  readonly prefillTokensPerSecond: number;
  /** Median of `decodeRuns`. */
  readonly decodeTokensPerSecond: number;
}

/**
 * Measures prefill and decode. Each run computes a prompt in an empty context, then generates tokens one by one.
 * ContextLengthError when they do not fit, InvalidArgumentError for counts that are not whole numbers from 1.
 */
export async function benchmark(model: LanguageModel, options: BenchmarkOptions = {}): Promise<Benchmark> {
  checkLanguageModel(model);
  checkOptions(options);
  const { promptTokens = 128, decodeTokens = 32, runs = 3, seed = 0, signal, onProgress } = options;
  for (const [name, value] of Object.entries({ promptTokens, decodeTokens, runs })) checkWhole(name, value, 1);
  checkWhole("seed", seed, 0, Number.MAX_SAFE_INTEGER);
  const decoder = model.createDecoder();
  if (promptTokens + decodeTokens > decoder.contextLength)
    throw new ContextLengthError(
      `benchmark: ${promptTokens} + ${decodeTokens} tokens do not fit the context length of ${decoder.contextLength}`,
    );
  const random = createRandom(seed);
  const prefillRuns: number[] = [];
  const decodeRuns: number[] = [];
  for (let run = 0; run < runs; run++) {
    // New ids in each run, since a prompt that the prefix cache holds would not be computed again.
    const ids = Array.from({ length: promptTokens + decodeTokens }, () =>
      Math.floor(random.uniform() * decoder.vocabularySize),
    );
    decoder.rewind(0);
    const start = performance.now();
    await decoder.prefill(ids.slice(0, promptTokens), { signal });
    const middle = performance.now();
    for (const id of ids.slice(promptTokens)) await decoder.step(id, { signal });
    const end = performance.now();
    prefillRuns.push((1000 * promptTokens) / (middle - start));
    decodeRuns.push((1000 * decodeTokens) / (end - middle));
    onProgress?.(run + 1, runs);
  }
  return {
    promptTokens,
    decodeTokens,
    prefillRuns,
    decodeRuns,
    prefillTokensPerSecond: median(prefillRuns),
    decodeTokensPerSecond: median(decodeRuns),
  };
}

/** The middle value, or the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
