/** `lowbit logits`: token ids → logits of the last position. */
import type { Command } from "commander";
import { EagerModel, InvalidFileError, type LanguageModel } from "../index.ts";
import { logitsProblem } from "../tools/index.ts";
import {
  addModelOptions,
  MODEL_HELP,
  type ModelOptions,
  openModel,
  takesCheckpoint,
  withCheckpoint,
} from "./model-source.ts";
import { formatTable } from "./table.ts";
import type { Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";
import { tokenIds, wholeNumber } from "./values.ts";

interface LogitsOptions extends ModelOptions {
  readonly ids: readonly number[];
  readonly top: number;
  readonly eager?: boolean;
  readonly json?: boolean;
}

export function addLogits(program: Command, terminal: Terminal): void {
  const command = program
    .command("logits")
    .summary("print the logits after a list of token ids")
    .description("Prints the logits of the last position after a list of token ids.")
    .argument("<model>", MODEL_HELP)
    .requiredOption("--ids <ids>", "token ids, separated by commas", tokenIds)
    .option("--top <count>", "how many of the largest to print without --json", wholeNumber, 10)
    .option("--eager", "run a checkpoint operator by operator, without compiling it")
    .option("--json", 'print all logits: {"logits": [...]}');
  addModelOptions(command)
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit logits ./checkpoint --ids 1,403,407 --json
  $ lowbit logits ./checkpoint --ids 1,403,407 --qmode 8da4w --no-quantize-head
  $ lowbit logits model.pte --ids 1,403,407 --top 5`,
    )
    .action((model: string, options: LogitsOptions) => logits(model, options, terminal));
}

async function logits(path: string, options: LogitsOptions, terminal: Terminal): Promise<void> {
  const { ids, json, top } = options;
  const { values, textOf } = options.eager
    ? await eagerLogits(path, options, terminal)
    : await compiledLogits(path, options, terminal);
  const problem = logitsProblem(values);
  if (problem !== null) throw new InvalidFileError(path, problem);
  if (json) {
    await terminal.writeJson({ logits: [...values] });
    return;
  }
  const order = Array.from(values, (_, id) => id).sort((a, b) => values[b]! - values[a]! || a - b);
  const rows = order.slice(0, top).map((id) => [id, values[id]!.toFixed(5), textOf(id)]);
  await terminal.writeLine(`after ${ids.length} tokens, ${rows.length} largest of ${values.length} logits:`);
  await terminal.writeLine(formatTable([["id", "logit", "token"], ...rows]));
}

interface LastLogits {
  readonly values: Float32Array;
  textOf(id: number): string;
}

async function compiledLogits(path: string, options: LogitsOptions, terminal: Terminal): Promise<LastLogits> {
  const model = await openModel(path, options, terminal);
  const values = await model.createDecoder().prefill(options.ids, { signal: terminal.signal });
  return { values, textOf: (id) => tokenText(model, id) };
}

async function eagerLogits(path: string, options: LogitsOptions, terminal: Terminal): Promise<LastLogits> {
  if (!(await takesCheckpoint(path, options)))
    throw new UsageError(`--eager needs a checkpoint folder; ${path} is a program, compiled already`);
  const values = await withCheckpoint(path, options, terminal, async (model) => {
    const eager = await EagerModel.load(model, { kvCache: options.kvCache, signal: terminal.signal });
    return eager.forward(options.ids, 0).data as Float32Array;
  });
  return { values, textOf: () => "" };
}

/** Text of a token in quotes; "" without a tokenizer, and for ids that only pad the vocabulary. */
function tokenText(model: LanguageModel, id: number): string {
  const hasText = model.hasTokenizer && id < model.tokenizer.vocabSize;
  return hasText ? JSON.stringify(model.tokenizer.decode([id])) : "";
}
