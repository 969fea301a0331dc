/** `lowbit eval`: perplexity of a text file under a model. */
import type { Command } from "commander";
import { evaluatePerplexity, type LanguageModel, type Perplexity, type PerplexityOptions } from "../index.ts";
import { type Comparison, compareModels, isCheckpoint } from "../tools/index.ts";
import { addModelOptions, MODEL_HELP, type ModelOptions, openModel } from "./model-source.ts";
import { bytesAt } from "./served-models.ts";
import { formatBytes } from "./table.ts";
import type { Terminal } from "./terminal.ts";
import { readTextFile } from "./text-file.ts";
import { collect, wholeNumber } from "./values.ts";

/** Options of commands that score texts. */
export interface ScoringOptions extends ModelOptions {
  readonly text: readonly string[];
  readonly window?: number;
  readonly stride?: number;
  readonly maxTokens?: number;
  readonly json?: boolean;
}

interface EvalOptions extends ScoringOptions {
  readonly against?: string;
}

/** Adds options of commands that score texts. */
export function addScoringOptions(command: Command): Command {
  return command
    .requiredOption("--text <file>", "text to score, UTF-8; repeatable", collect(String))
    .option("--window <n>", "tokens of a window (default: the context, at most 2048)", wholeNumber)
    .option("--stride <n>", "tokens from window to window (default: half of a window)", wholeNumber)
    .option("--max-tokens <n>", "use only the first tokens of each text", wholeNumber)
    .option("--json", "print the result as JSON");
}

export function addEval(program: Command, terminal: Terminal): void {
  const command = program
    .command("eval")
    .summary("perplexity of a text file, or how far a model is from another on it")
    .description(
      "Perplexity of a text file by sliding windows: each token but the first is scored once, in the first window that\n" +
        "holds it, so with at least window - stride tokens before it (past the start of the text).\n" +
        "With --against: how far the model's probabilities are from those of a reference with the same tokens, such as the\n" +
        "checkpoint that it was quantized from, which runs with float activations and as it is stored. Figures have standard\n" +
        "errors, as if tokens did not depend on each other.",
    )
    .argument("<model>", MODEL_HELP)
    .option(
      "--against <reference>",
      "compare with this model: a program, a checkpoint folder, a .gguf file or hf:org/name",
    );
  addModelOptions(addScoringOptions(command))
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit eval ./checkpoint --text heldout.txt
  $ lowbit eval ./checkpoint --text heldout.txt --qmode 8da4w --window 512 --stride 256 --json
  $ lowbit eval model.pte --text heldout.txt --max-tokens 1000
  $ lowbit eval ./checkpoint --qmode 8da4w --against ./checkpoint --text heldout.txt --max-tokens 4000`,
    )
    .action((model: string, options: EvalOptions) => evaluate(model, options, terminal));
}

async function evaluate(path: string, options: EvalOptions, terminal: Terminal): Promise<void> {
  const { against } = options;
  const texts = await readTexts(options);
  const model = await openForScoring(path, options, terminal);
  const reference = against === undefined ? null : await openReference(against, options, terminal);
  const results: (Perplexity | Comparison)[] = [];
  const lines: string[] = [];
  for (const [file, text] of texts) {
    const found = await scored(file, text, { model, reference }, options, terminal);
    results.push(found.result);
    lines.push(found.lines);
  }
  const bytes = bytesOf(path, model, options);
  const referenceBytes = reference && bytesOf(against!, reference, {});
  if (reference) lines.push(`${path}: ${formatBytes(bytes)}; ${against}: ${formatBytes(referenceBytes!)}`);
  if (!options.json) return terminal.writeLine(lines.join("\n"));
  const all = results.map((result, i) => ({ text: texts[i]![0], ...result }));
  await terminal.writeJson({
    model: path,
    ...(reference && { against, modelBytes: bytes, againstBytes: referenceBytes }),
    ...(all.length === 1 ? all[0] : { texts: all }),
  });
}

/** The texts of `--text` with the names of their files. */
export function readTexts({ text }: ScoringOptions): Promise<(readonly [file: string, text: string])[]> {
  return Promise.all(text.map(async (file) => [file, await readTextFile(file)] as const));
}

/**
 * Bytes of a model's file or folder; of a model that is quantized in memory or comes from the hub, those of its weights.
 */
export function bytesOf(path: string, { program }: LanguageModel, options: Partial<ScoringOptions>): number {
  const { qmode, recipe, embedding, sharedEmbedding, head } = options;
  const isQuantizedHere = [qmode, recipe, embedding, sharedEmbedding, head].some((option) => option !== undefined);
  return (!isQuantizedHere && bytesAt(path)) || program.memoryUse.constants;
}

/** Measurements of a text, and lines that show them. */
async function scored(
  file: string,
  text: string,
  { model, reference }: { readonly model: LanguageModel; readonly reference: LanguageModel | null },
  options: ScoringOptions,
  terminal: Terminal,
): Promise<{ readonly result: Perplexity | Comparison; readonly lines: string }> {
  return withProgress(options, terminal, async (settings) => {
    if (reference) {
      const result = await compareModels(model, reference, text, settings);
      return { result, lines: describeComparison(file, result) };
    }
    const result = await evaluatePerplexity(model, text, settings);
    return { result, lines: describe(file, result) };
  });
}

/** Scores a text with the options' windows, and shows progress. */
export async function withProgress<R>(
  { window, stride, maxTokens }: ScoringOptions,
  terminal: Terminal,
  score: (settings: PerplexityOptions) => Promise<R>,
): Promise<R> {
  const progress = terminal.progress("scoring");
  const settings = { window, stride, maxTokens, signal: terminal.signal, onProgress: progress.update };
  return score(settings).finally(() => progress.stop());
}

/** Opens the reference model as it is stored: quantization options apply to the other model only. */
export async function openReference(path: string, options: ScoringOptions, terminal: Terminal): Promise<LanguageModel> {
  const { threads, context, limit } = options;
  const run = { ...(threads && { threads }), ...(context && { context }), ...(limit && { limit }) };
  const activations = (await isCheckpoint(path)) ? ({ activations: "float" } as const) : {};
  return openForScoring(path, { ...run, ...activations, quantizeHead: true }, terminal);
}

/** Opens a model; notes that programs with logits of the last token only, as for ExecuTorch, are scored token by token. */
export async function openForScoring(path: string, options: ModelOptions, terminal: Terminal): Promise<LanguageModel> {
  const model = await openModel(path, options, terminal);
  const decoder = model.createDecoder();
  if (decoder.logitRows === 0)
    terminal.note(`${path} gives logits of the last position only: scoring token by token, which takes longer`);
  await decoder.dispose();
  return model;
}

function describe(file: string, result: Perplexity): string {
  const { tokens, bytes, windows, window, stride, natsPerToken, perplexity, bitsPerByte } = result;
  return [
    `scored ${tokens} tokens (${bytes} bytes) of ${file} in ${windows} windows of ${window} tokens, stride ${stride}`,
    `${natsPerToken.toFixed(4)} nats/token, perplexity ${perplexity.toFixed(3)}, ${bitsPerByte!.toFixed(4)} bits/byte`,
  ].join("\n");
}

function describeComparison(file: string, result: Comparison): string {
  const { tokens, window, stride, divergence, topAgreement, topAgreementError } = result;
  const { perplexity, referencePerplexity, perplexityRatio, perplexityRatioError } = result;
  const { mean, standardError, median, percentile99, largest } = divergence;
  return [
    `compared ${tokens} tokens of ${file} in windows of ${window} tokens, stride ${stride}`,
    `KL divergence, nats/token: mean ${mean.toFixed(5)} ± ${standardError.toFixed(5)}, median ${median.toFixed(5)}, 99 % under ${percentile99.toFixed(4)}, largest ${largest.toFixed(3)}`,
    `same likeliest token: ${(100 * topAgreement).toFixed(2)} ± ${(100 * topAgreementError).toFixed(2)} %`,
    `perplexity ${perplexity.toFixed(3)}, reference ${referencePerplexity.toFixed(3)}, ratio ${perplexityRatio.toFixed(4)} ± ${perplexityRatioError.toFixed(4)}`,
  ].join("\n");
}
