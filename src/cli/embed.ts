/** `lowbit embed`: embeddings of texts, a JSON line each. */
import { text as readAll } from "node:stream/consumers";
import type { Command } from "commander";
import { UnsupportedError } from "../index.ts";
import { addModelOptions, MODEL_HELP, type ModelOptions, openModel } from "./model-source.ts";
import type { Terminal } from "./terminal.ts";
import { readTextFile } from "./text-file.ts";
import { UsageError } from "./usage-error.ts";
import { wholeNumber } from "./values.ts";

interface EmbedCommandOptions extends ModelOptions {
  readonly file?: string;
  readonly prompt?: string;
  readonly dimensions?: number;
  readonly truncate?: boolean;
}

export function addEmbed(program: Command, terminal: Terminal): void {
  const command = program
    .command("embed")
    .summary("print embeddings of texts")
    .description('Prints a line of JSON for each text: {"index": 0, "tokens": 7, "embedding": [...]}.')
    .argument("<model>", MODEL_HELP)
    .argument("[texts...]", "texts; without any, and without --file, the lines of stdin")
    .option("--file <path>", "file of texts, one a line; - reads them from stdin")
    .option("--prompt <name>", "one of the model's prompts, such as query, stands in front of each text")
    .option("--dimensions <n>", "numbers of a vector, for models trained for fewer (default: all)", wholeNumber)
    .option("--truncate", "cut texts that are longer than the model takes; otherwise they are refused");
  addModelOptions(command)
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit embed minilm.pte "What is the capital of France?" "Paris"
  $ lowbit embed hf:sentence-transformers/all-MiniLM-L6-v2 --file texts.txt > vectors.jsonl
  $ lowbit embed ./Qwen3-Embedding-0.6B --qmode 8da4w --prompt query --dimensions 256 "capital of France"`,
    )
    .action((model: string, texts: readonly string[], options: EmbedCommandOptions) =>
      embed(model, texts, options, terminal),
    );
}

/** Number of texts that are computed and printed together. */
const TEXTS_AT_ONCE = 256;

async function embed(
  path: string,
  given: readonly string[],
  options: EmbedCommandOptions,
  terminal: Terminal,
): Promise<void> {
  const { prompt, dimensions, truncate } = options;
  const isPiped = given.length === 0 && !terminal.stdin.isTTY;
  const file = options.file ?? (isPiped ? "-" : undefined);
  const texts = file === undefined ? given : [...given, ...(await readLines(file, terminal))];
  if (texts.length === 0) throw new UsageError("give texts as arguments, or one a line with --file or on stdin");
  const model = await openModel(path, options, terminal, { isKept: true });
  const { embedding } = model;
  if (!embedding) throw new UnsupportedError(`${path}: the model gives no embeddings`);
  for (let start = 0; start < texts.length; start += TEXTS_AT_ONCE) {
    const some = texts.slice(start, start + TEXTS_AT_ONCE);
    const ids = some.map((text) => embedding.encode(text, { ...(prompt !== undefined && { prompt }), truncate }));
    const vectors = await embedding.embed(ids, { dimensions, signal: terminal.signal });
    for (const [i, vector] of vectors.entries())
      await terminal.writeJson({ index: start + i, tokens: ids[i]!.length, embedding: [...vector] });
  }
}

/** The lines of a file, or of stdin, without empty ones. */
async function readLines(file: string, { stdin, signal }: Terminal): Promise<string[]> {
  signal.addEventListener("abort", () => stdin.destroy(signal.reason), { once: true });
  const text = file === "-" ? await readAll(stdin) : await readTextFile(file);
  return text.split(/\r?\n/).filter((line) => line.trim() !== "");
}
