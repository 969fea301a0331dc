/** `lowbit eval`: perplexity of a text file under a model. */
import type { Command } from "commander";
import { evaluatePerplexity, type LanguageModel, type Perplexity, type PerplexityOptions } from "../index.ts";
import { type Comparison, compareModels, isCheckpoint } from "../tools/index.ts";
import { addModelOptions, MODEL_HELP, type ModelOptions, openModel } from "./model-source.ts";
import type { Terminal } from "./terminal.ts";
import { readTextFile } from "./text-file.ts";
import { wholeNumber } from "./values.ts";

interface EvalOptions extends ModelOptions {
  readonly text: string;
  readonly against?: string;
  readonly window?: number;
  readonly stride?: number;
  readonly maxTokens?: number;
  readonly json?: boolean;
}

export function addEval(program: Command, terminal: Terminal): void {
  const command = program
    .command("eval")
    .summary("perplexity of a text file, or how far a model is from another on it")
    .description(
      "Perplexity of a text file by sliding windows: each token but the first is scored once, in the first window that\n" +
        "holds it, so with at least window - stride tokens before it (past the start of the text).\n" +
        "With --against: how far the model's probabilities are from those of a reference with the same tokens, such as the\n" +
        "checkpoint that it was quantized from, which runs with float activations and as it is stored.",
    )
    .argument("<model>", MODEL_HELP)
    .requiredOption("--text <file>", "text to score, UTF-8")
    .option(
      "--against <reference>",
      "compare with this model: a program, a checkpoint folder, a .gguf file or hf:org/name",
    )
    .option("--window <n>", "tokens of a window (default: the context, at most 2048)", wholeNumber)
    .option("--stride <n>", "tokens from window to window (default: half of a window)", wholeNumber)
    .option("--max-tokens <n>", "use only the first tokens of the text", wholeNumber)
    .option("--json", "print the result as JSON");
  addModelOptions(command)
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
  const { window, stride, maxTokens, against } = options;
  const text = await readTextFile(options.text);
  const model = await openForScoring(path, options, terminal);
  const reference = against === undefined ? null : await openReference(against, options, terminal);
  const progress = terminal.progress("scoring");
  const settings = { window, stride, maxTokens, signal: terminal.signal, onProgress: progress.update };
  const { result, lines } = await scored(options.text, text, { model, reference }, settings).finally(() =>
    progress.stop(),
  );
  if (options.json)
    await terminal.writeJson({ model: path, ...(reference && { against }), text: options.text, ...result });
  else await terminal.writeLine(lines);
}

/** Figures of a text, and lines that tell them. */
async function scored(
  file: string,
  text: string,
  { model, reference }: { readonly model: LanguageModel; readonly reference: LanguageModel | null },
  settings: PerplexityOptions,
): Promise<{ readonly result: Perplexity | Comparison; readonly lines: string }> {
  if (reference) {
    const result = await compareModels(model, reference, text, settings);
    return { result, lines: describeComparison(file, result) };
  }
  const result = await evaluatePerplexity(model, text, settings);
  return { result, lines: describe(file, result) };
}

/** The model that another is compared with, as it is stored: options of quantization are about the other. */
async function openReference(path: string, options: EvalOptions, terminal: Terminal): Promise<LanguageModel> {
  const { threads, context, limit } = options;
  const run = { ...(threads && { threads }), ...(context && { context }), ...(limit && { limit }) };
  const activations = (await isCheckpoint(path)) ? ({ activations: "float" } as const) : {};
  return openForScoring(path, { ...run, ...activations, quantizeHead: true }, terminal);
}

/** Programs for ExecuTorch have logits of the last position, as a rule. */
async function openForScoring(path: string, options: ModelOptions, terminal: Terminal): Promise<LanguageModel> {
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
  const { tokens, window, stride, divergence, topAgreement, perplexity, referencePerplexity } = result;
  const { mean, median, percentile99, largest } = divergence;
  return [
    `compared ${tokens} tokens of ${file} in windows of ${window} tokens, stride ${stride}`,
    `KL divergence, nats/token: mean ${mean.toFixed(5)}, median ${median.toFixed(5)}, 99 % under ${percentile99.toFixed(4)}, largest ${largest.toFixed(3)}`,
    `same likeliest token: ${(100 * topAgreement).toFixed(2)} %`,
    `perplexity ${perplexity.toFixed(3)}, reference ${referencePerplexity.toFixed(3)}`,
  ].join("\n");
}
