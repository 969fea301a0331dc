/** How much faster a loaded model continues a text with drafts than without. */
import { checkOptions, checkString, checkWhole } from "../arguments.ts";
import { ContextLengthError } from "../errors.ts";
import type { Draft } from "../text/draft-source.ts";
import type { GenerationResult } from "../text/generate.ts";
import { median } from "./benchmark.ts";
import type { LanguageModel } from "./language-model.ts";

/** What `benchmarkDrafts` runs: the draft, the tokens that are generated, and repetitions. */
export interface DraftBenchmarkOptions {
  /** What drafts. Default: the model's `draft`. */
  readonly draft?: Draft | undefined;
  /** Tokens that each run generates. Default 128. */
  readonly decodeTokens?: number | undefined;
  /** Repetitions with drafts and without, in turn, whose medians are reported. Default 3. */
  readonly runs?: number | undefined;
  /** Called after each run, with runs done and runs in all. */
  readonly onProgress?: ((doneRuns: number, runs: number) => void) | undefined;
  /** Ends the benchmark; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** What `benchmarkDrafts` measures: tokens a second with drafts and without, and how many drafted tokens came true. */
export interface DraftBenchmark {
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Tokens that each run generated. */
  readonly decodeTokens: number;
  /** Drafted tokens of the first run. */
  readonly draftedTokens: number;
  /** Drafted tokens of the first run that were accepted, each of which saved a step. */
  readonly acceptedTokens: number;
  /** Decode speed of each run with drafts, in tokens a second. */
  readonly draftedRuns: readonly number[];
  /** Decode speed of each run without drafts, in tokens a second. */
  readonly plainRuns: readonly number[];
  /** Median of `draftedRuns`. */
  readonly draftedTokensPerSecond: number;
  /** Median of `plainRuns`. */
  readonly plainTokensPerSecond: number;
}

/**
 * Continues a prompt greedily, past end tokens, with drafts and without them in turn. The texts are the same.
 * ContextLengthError when prompt and tokens do not fit, InvalidArgumentError for counts that are not whole numbers from 1, for
 * fewer than 2 tokens and for a draft that does not fit the model.
 */
export async function benchmarkDrafts(
  model: LanguageModel,
  prompt: string,
  options: DraftBenchmarkOptions = {},
): Promise<DraftBenchmark> {
  checkString("prompt", prompt);
  checkOptions(options);
  const { draft = model.draft, decodeTokens = 128, runs = 3, signal, onProgress } = options;
  checkWhole("decodeTokens", decodeTokens, 2);
  checkWhole("runs", runs, 1);
  const results: Record<"drafted" | "plain", GenerationResult[]> = { drafted: [], plain: [] };
  for (let run = 0; run < runs; run++) {
    for (const way of ["plain", "drafted"] as const) {
      const settings = { temperature: 0, maxTokens: decodeTokens, ignoreEos: true, signal };
      const text = model.generate(prompt, { ...settings, draft: way === "plain" ? "off" : draft });
      results[way].push(await text.result);
    }
    onProgress?.(run + 1, runs);
  }
  const { promptTokens, generatedTokens, draftedTokens, acceptedTokens } = results.drafted[0]!;
  if (generatedTokens < decodeTokens)
    throw new ContextLengthError(
      `benchmark of drafts: ${promptTokens} + ${decodeTokens} tokens do not fit the context, which was full after ${generatedTokens}`,
    );
  const speeds = (of: readonly GenerationResult[]) => of.map(({ decodeSeconds }) => (decodeTokens - 1) / decodeSeconds);
  const [draftedRuns, plainRuns] = [speeds(results.drafted), speeds(results.plain)];
  return {
    promptTokens,
    decodeTokens,
    draftedTokens,
    acceptedTokens,
    draftedRuns,
    plainRuns,
    draftedTokensPerSecond: median(draftedRuns),
    plainTokensPerSecond: median(plainRuns),
  };
}
