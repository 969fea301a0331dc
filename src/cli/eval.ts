/** `lowbit eval`: perplexity of a text file under a model. */
import type { Command } from "commander";
import { evaluatePerplexity, type LanguageModel, type Perplexity } from "../index.ts";
import { addModelOptions, MODEL_HELP, type ModelOptions, openModel } from "./model-source.ts";
import type { Terminal } from "./terminal.ts";
import { readTextFile } from "./text-file.ts";
import { wholeNumber } from "./values.ts";

interface EvalOptions extends ModelOptions {
  readonly text: string;
  readonly window?: number;
  readonly stride?: number;
  readonly maxTokens?: number;
  readonly json?: boolean;
}

export function addEval(program: Command, terminal: Terminal): void {
  const command = program
    .command("eval")
    .summary("perplexity of a text file")
    .description(
      "Perplexity of a text file by sliding windows: each token but the first is scored once, in the first window that\n" +
        "holds it, so with at least window - stride tokens before it (past the start of the text).",
    )
    .argument("<model>", MODEL_HELP)
    .requiredOption("--text <file>", "text to score, UTF-8")
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
  $ lowbit eval model.pte --text heldout.txt --max-tokens 1000`,
    )
    .action((model: string, options: EvalOptions) => evaluate(model, options, terminal));
}

async function evaluate(path: string, options: EvalOptions, terminal: Terminal): Promise<void> {
  const { window, stride, maxTokens } = options;
  const text = await readTextFile(options.text);
  const model = await openForScoring(path, options, terminal);
  const progress = terminal.progress("scoring");
  const hooks = { signal: terminal.signal, onProgress: progress.update };
  const result = await evaluatePerplexity(model, text, { window, stride, maxTokens, ...hooks }).finally(() =>
    progress.stop(),
  );
  if (options.json) await terminal.writeJson({ model: path, text: options.text, ...result });
  else await terminal.writeLine(describe(options.text, result));
}

/** Programs for ExecuTorch have logits of the last position, as a rule. */
async function openForScoring(path: string, options: EvalOptions, terminal: Terminal): Promise<LanguageModel> {
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
