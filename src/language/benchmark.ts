/** How fast a loaded model reads a prompt and generates, on random tokens. Measures only; compares with nothing. */
import { checkOptions, checkWhole } from "../arguments.ts";
import { ContextLengthError } from "../errors.ts";
import { createRandom } from "../text/random.ts";
import { checkLanguageModel, type LanguageModel } from "./language-model.ts";

/** What `benchmark` runs: tokens of the prompt, tokens that are generated, and repetitions. */
export interface BenchmarkOptions {
  /** Tokens of the prompt. Default 128. */
  readonly promptTokens?: number | undefined;
  /** Tokens that each run writes. Default 32. */
  readonly decodeTokens?: number | undefined;
  /** Repetitions, of which the median counts. Default 3. */
  readonly runs?: number | undefined;
  /** Seed of the random token ids. Default 0. */
  readonly seed?: number | undefined;
  /** Called after each run, with runs done and runs in all. */
  readonly onProgress?: ((doneRuns: number, runs: number) => void) | undefined;
  /** Ends the benchmark; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** What `benchmark` measures: tokens a second of prompts and of generation, with the number of tokens of each. */
export interface Benchmark {
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Tokens that each run wrote. */
  readonly decodeTokens: number;
  /** Tokens a second of each run that read the prompt. */
  readonly prefillRuns: readonly number[];
  /** Tokens a second of each run that wrote. */
  readonly decodeRuns: readonly number[];
  /** Median of `prefillRuns`. */
  readonly prefillTokensPerSecond: number;
  /** Median of `decodeRuns`. */
  readonly decodeTokensPerSecond: number;
}

/**
 * Each run: a prompt into an empty context, then tokens one by one. ContextLengthError when they do not fit,
 * InvalidArgumentError for counts that are not whole numbers from 1.
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
    // Others each time: what is in the model's store is not read again.
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

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
