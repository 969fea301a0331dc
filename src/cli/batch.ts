/** `lowbit batch`: answers a file of requests, here or on several machines. */
import type { Command } from "commander";
import type { BatchResult, ModelSource } from "../server/index.ts";
import { checkOutput } from "../tools/index.ts";
import { addDraftOption, type DraftOption } from "./draft-option.ts";
import { addModelOptions, type ModelOptions } from "./model-source.ts";
import { addPrefixOptions, type PrefixOptions } from "./prefix-options.ts";
import { calledModels, loadingWith, parseModel, servedModels } from "./served-models.ts";
import { SIGTERM_EXIT_CODE, type Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";
import { byteCount, collect, wholeNumber } from "./values.ts";

interface BatchOptions extends ModelOptions, PrefixOptions, DraftOption {
  readonly output?: string;
  readonly model?: readonly string[];
  readonly memory?: number;
  readonly running?: number;
  readonly queue?: string;
  readonly worker?: boolean;
}

const QUEUE_VARIABLE = "LOWBIT_QUEUE";

export function addBatch(program: Command, terminal: Terminal): void {
  const command = program
    .command("batch")
    .summary("answer a file of requests")
    .description(
      "Answers the requests of a file in OpenAI's batch format, a JSON object a line, and writes a line for each. A run\n" +
        "that was ended goes on where it was: requests that have an answer in the output are left out.",
    )
    .argument("[input.jsonl]", "requests: custom_id, method, url such as /v1/chat/completions, body")
    .option("-o, --output <file.jsonl>", "where the answers go; they are appended to those of an earlier run")
    .option(
      "-m, --model <model>",
      "a .pte program, checkpoint folder, .gguf file or hf:org/name, as path or name=path; repeatable (default: what the requests call)",
      collect(String),
    )
    .option("--memory <n>", "most memory of all loaded models, such as 8g (default: what is free)", byteCount)
    .option("--running <n>", "texts that are generated at once (default: as many as --sequences)", wholeNumber)
    .option(
      "--queue <redis://host:port>",
      `share the requests with workers by a queue in Redis (needs bullmq and ioredis); also in ${QUEUE_VARIABLE}`,
    )
    .option("--worker", "answer requests of the queue until the process is ended");
  addModelOptions(addPrefixOptions(addDraftOption(command)))
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit batch requests.jsonl -o answers.jsonl --model llama=llama.pte
  $ lowbit batch --worker --queue redis://host:6379 --model llama=llama.pte
  $ lowbit batch requests.jsonl -o answers.jsonl --queue redis://host:6379`,
    )
    .action((input: string | undefined, options: BatchOptions) =>
      options.worker ? work(input, options, terminal) : batch(input, options, terminal),
    );
}

function queueOf(options: BatchOptions): string | undefined {
  return options.queue ?? process.env[QUEUE_VARIABLE];
}

/** Answers requests with models that this process loads. */
async function answererHere(models: readonly ModelSource[], options: BatchOptions, terminal: Terminal) {
  const { localAnswerer } = await import("../server/index.ts");
  const running = options.running ?? options.sequences;
  return localAnswerer({
    models,
    memoryBytes: options.memory,
    limits: running === undefined ? {} : { running },
    onFault: (error, id) => terminal.note(`lowbit: request ${id}: ${(error as Error)?.stack ?? String(error)}`),
    signal: terminal.signal,
  });
}

async function batch(input: string | undefined, options: BatchOptions, terminal: Terminal): Promise<void> {
  const { output } = options;
  if (input === undefined || output === undefined)
    throw new UsageError("give a file of requests and -o for the answers; or --worker");
  await checkOutput(output, [input, ...(options.model ?? []).map((model) => parseModel(model).path)]);
  const { queueAnswerer, runBatch } = await import("../server/index.ts");
  const url = queueOf(options);
  if (url !== undefined && options.model !== undefined)
    throw new UsageError("--model is for workers where there is a --queue");
  const onTrouble = (error: Error) => terminal.note(`lowbit: queue: ${error.message}`);
  const progress = terminal.progress("answering");
  const loading = loadingWith(options, terminal);
  const sources = (called: readonly string[]) =>
    options.model ? servedModels(options.model, options, loading) : calledModels(called, options, loading);
  let close = async () => {};
  try {
    const result = await runBatch({
      input,
      output,
      onProgress: progress.update,
      signal: terminal.signal,
      answerer: async ({ digest, models }) => {
        const answerer = await (url === undefined
          ? sources(models).then((found) => answererHere(found, options, terminal))
          : queueAnswerer({ url, onTrouble }, digest));
        close = () => answerer.close();
        return answerer;
      },
    });
    progress.stop();
    terminal.note(describe(result, output));
  } finally {
    progress.stop();
    await close();
  }
}

function describe({ requests, earlier, failed }: BatchResult, output: string): string {
  const before = earlier > 0 ? `, ${earlier} of them by an earlier run` : "";
  const errors = failed > 0 ? `, ${failed} with an error` : "";
  return `${requests} requests answered in ${output}${before}${errors}`;
}

async function work(input: string | undefined, options: BatchOptions, terminal: Terminal): Promise<void> {
  const url = queueOf(options);
  if (url === undefined) throw new UsageError(`--worker needs --queue, or ${QUEUE_VARIABLE}`);
  if (input !== undefined || options.output !== undefined)
    throw new UsageError("--worker takes its requests from the queue, and gives it the answers: no files");
  if (options.model === undefined) throw new UsageError("--worker needs --model, at least one");
  const { startWorker } = await import("../server/index.ts");
  const answerer = await answererHere(
    await servedModels(options.model, options, loadingWith(options, terminal)),
    options,
    terminal,
  );
  let answered = 0;
  const onTrouble = (error: Error) => terminal.note(`lowbit: queue: ${error.message}`);
  const worker = await startWorker({ url, onTrouble }, answerer, () => {
    answered++;
  });
  terminal.note(`takes requests for ${options.model.join(", ")}; Ctrl-C ends`);
  await new Promise<void>((resolve) => {
    let isEnding = false;
    terminal.onTermination(() => {
      if (isEnding) process.exit(SIGTERM_EXIT_CODE);
      isEnding = true;
      terminal.note("ending when the requests under way have been answered; again to leave them to others");
      resolve();
    });
  });
  await worker.close();
  await answerer.close();
  terminal.note(`${answered} requests answered`);
}
