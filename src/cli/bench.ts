/** `lowbit bench`: speed, load time, size and memory of a model, and what drafts gain on a text. */
import { stat } from "node:fs/promises";
import type { Command } from "commander";
import {
  type Benchmark,
  benchmark,
  benchmarkDrafts,
  type DraftBenchmark,
  inspectProgram,
  type LanguageModel,
  type Model,
} from "../index.ts";
import { bitsPerWeight, compileModel, listWeights } from "../tools/index.ts";
import { addDraftOption, type DraftOption, draftOf } from "./draft-option.ts";
import { addModelOptions, MODEL_HELP, type ModelOptions, openModel } from "./model-source.ts";
import { formatBytes, formatTable } from "./table.ts";
import type { Terminal } from "./terminal.ts";
import { readTextFile } from "./text-file.ts";
import { UsageError } from "./usage-error.ts";
import { wholeNumber } from "./values.ts";

interface BenchOptions extends ModelOptions, DraftOption {
  readonly text?: string;
  readonly promptTokens: number;
  readonly decodeTokens: number;
  readonly runs: number;
  readonly seed: number;
  readonly json?: boolean;
}

interface BenchReport extends Benchmark {
  readonly model: string;
  readonly loadSeconds: number;
  /** Bytes of the program's file; null for a checkpoint, which is compiled in memory. */
  readonly fileBytes: number | null;
  readonly bitsPerWeight: number;
  /** Decode of the text of --text with drafts and without; null without a text. */
  readonly drafts: DraftBenchmark | null;
  /** Peak memory of the process since its start. */
  readonly peakMemoryBytes: number;
}

export function addBench(program: Command, terminal: Terminal): void {
  const command = program
    .command("bench")
    .summary("measure speed, size and memory")
    .description("Measures prefill and decode speed on random tokens, load time, file size and peak memory.")
    .argument("<model>", MODEL_HELP)
    .option("--prompt-tokens <n>", "tokens of the prompt", wholeNumber, 128)
    .option("--decode-tokens <n>", "tokens after the prompt", wholeNumber, 32)
    .option("--runs <n>", "repetitions, of which the median counts", wholeNumber, 3)
    .option("--seed <n>", "of the random tokens", wholeNumber, 0)
    .option("--text <file>", "also continue this text greedily, with drafts and without, in turn")
    .option("--json", "print the result as JSON");
  addModelOptions(addDraftOption(command))
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit bench llama.pte
  $ lowbit bench llama.pte --prompt-tokens 512 --decode-tokens 64 --runs 5 --json
  $ lowbit bench llama.pte --text source.ts --draft lookup --decode-tokens 256
  $ lowbit bench ./checkpoint --qmode 8da4w`,
    )
    .action((model: string, options: BenchOptions) => bench(model, options, terminal));
}

async function bench(path: string, options: BenchOptions, terminal: Terminal): Promise<void> {
  const { promptTokens, decodeTokens, runs, seed } = options;
  const { signal } = terminal;
  if (options.draft !== undefined && options.text === undefined)
    throw new UsageError("--draft: drafts gain nothing on random tokens: expected --text file.txt, which is continued");
  const text = options.text === undefined ? null : await readTextFile(options.text, "--text");
  const openDraft = draftOf(options, options, terminal);
  const start = performance.now();
  let size: Size | null = null;
  let sizeMs = 0;
  const onQuantized = (model: Model) => {
    const sizeStart = performance.now();
    size = { fileBytes: null, bitsPerWeight: bitsPerWeight(listWeights(compileModel(model))) };
    sizeMs = performance.now() - sizeStart;
  };
  const model = await openModel(path, options, terminal, { onQuantized });
  const loadSeconds = (performance.now() - start - sizeMs) / 1000;
  const progress = terminal.progress("measuring");
  const sizes = { promptTokens, decodeTokens, runs, seed };
  const result = await benchmark(model, { ...sizes, signal, onProgress: progress.update }).finally(() =>
    progress.stop(),
  );
  const drafts = text === null ? null : await benchText(model, text, options, openDraft, terminal);
  const report: BenchReport = {
    model: path,
    ...result,
    drafts,
    loadSeconds,
    ...(size ?? (await sizeOfFile(path))),
    peakMemoryBytes: process.resourceUsage().maxRSS * 1024,
  };
  if (options.json) await terminal.writeJson(report);
  else await terminal.writeLine(describe(report));
}

async function benchText(
  model: LanguageModel,
  text: string,
  { decodeTokens, runs }: BenchOptions,
  openDraft: ReturnType<typeof draftOf>,
  terminal: Terminal,
): Promise<DraftBenchmark> {
  const draft = await openDraft();
  const progress = terminal.progress("measuring drafts");
  const options = { draft, decodeTokens, runs, signal: terminal.signal, onProgress: progress.update };
  return await benchmarkDrafts(model, text, options).finally(() => progress.stop());
}

type Size = Pick<BenchReport, "fileBytes" | "bitsPerWeight">;

async function sizeOfFile(path: string): Promise<Size> {
  return { fileBytes: (await stat(path)).size, bitsPerWeight: (await inspectProgram(path)).bitsPerWeight };
}

function describe(report: BenchReport): string {
  const { promptTokens, decodeTokens, prefillRuns, decodeRuns, fileBytes, drafts } = report;
  const speed = (median: number, runs: readonly number[]) =>
    `${median.toFixed(1)} tok/s (${runs.map((value) => value.toFixed(1)).join(", ")})`;
  return formatTable([
    ["model", report.model],
    [`prefill, ${promptTokens} tokens`, speed(report.prefillTokensPerSecond, prefillRuns)],
    [`decode, ${decodeTokens} tokens`, speed(report.decodeTokensPerSecond, decodeRuns)],
    ...(drafts === null ? [] : describeDrafts(drafts, speed)),
    ["load", `${report.loadSeconds.toFixed(2)} s`],
    ["file", fileBytes === null ? "none, compiled in memory" : formatBytes(fileBytes)],
    ["weights", `${report.bitsPerWeight.toFixed(2)} bits per weight`],
    ["peak memory", formatBytes(report.peakMemoryBytes)],
  ]);
}

function describeDrafts(
  drafts: DraftBenchmark,
  speed: (median: number, runs: readonly number[]) => string,
): string[][] {
  const { decodeTokens, draftedTokens, acceptedTokens } = drafts;
  return [
    [`text, ${decodeTokens} tokens`, speed(drafts.plainTokensPerSecond, drafts.plainRuns)],
    ["the same with drafts", speed(drafts.draftedTokensPerSecond, drafts.draftedRuns)],
    ["drafts", `${acceptedTokens} of ${draftedTokens} tokens accepted`],
  ];
}
