/** `lowbit run`: prompt to streamed text, with statistics at the end. */
import { existsSync } from "node:fs";
import { text as readAll } from "node:stream/consumers";
import type { Command } from "commander";
import { type GenerationResult, InvalidArgumentError, type LanguageModel, Profile } from "../index.ts";
import { checkOutput, restorePrefix, savePrefix } from "../tools/index.ts";
import { addDraftOption, type DraftOption, draftOf } from "./draft-option.ts";
import { addModelOptions, MODEL_HELP, type ModelOptions, openModel } from "./model-source.ts";
import { addPrefixOptions, openPrefixes, type PrefixOptions } from "./prefix-options.ts";
import { describeProfile, profileReport, writeTrace } from "./profile.ts";
import { addSamplingOptions, generateOptions, type SamplingOptions } from "./sampling-options.ts";
import type { Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

interface RunOptions extends ModelOptions, SamplingOptions, PrefixOptions, DraftOption {
  readonly prompt?: string;
  readonly json?: boolean;
  readonly profile?: boolean;
  readonly trace?: string;
  readonly prefix?: string;
}

export function addRun(program: Command, terminal: Terminal): void {
  const command = program
    .command("run")
    .summary("continue a prompt")
    .description("Continues a prompt. The text goes to stdout as it is made, statistics go to stderr.")
    .argument("<model>", MODEL_HELP)
    .argument("[prompt]", "text to continue; without one, and as -, it is read from stdin, less one newline at its end")
    .option("-p, --prompt <text>", "the same as the argument")
    .option("--json", "print one JSON object with text and statistics at the end")
    .option("--profile", "show where the time went, operator by operator (to stderr, or in the JSON)")
    .option(
      "--prefix <file>",
      "keys and values of earlier prompts: read from the file when it is there, written to it at the end",
    )
    .option("--trace <file.json>", "write every operator call for Perfetto (ui.perfetto.dev) or chrome://tracing");
  addModelOptions(addPrefixOptions(addDraftOption(addSamplingOptions(command))))
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit run llama.pte -p "Once upon a time" -n 64
  $ lowbit run llama.pte "The answer is" --temperature 0.7 --top-p 0.9 --seed 1
  $ cat prompt.txt | lowbit run llama.pte --stop "END" --json
  $ lowbit run ./checkpoint --qmode 8da4w -p "Once"
  $ lowbit run llama.pte "Once" --profile --trace trace.json`,
    )
    .action((model: string, prompt: string | undefined, options: RunOptions) => run(model, prompt, options, terminal));
}

async function run(path: string, argument: string | undefined, options: RunOptions, terminal: Terminal): Promise<void> {
  const prompt = await readPrompt(argument, options, terminal);
  const { trace, prefix, data = [], recipe, calibrate } = options;
  const inputs = [path, ...data, recipe, calibrate];
  for (const output of [trace, prefix]) if (output !== undefined) await checkOutput(output, inputs);
  const loadStart = Date.now();
  const wantsProfile = options.profile || options.trace !== undefined;
  const profile = wantsProfile ? new Profile({ trace: options.trace !== undefined }) : undefined;
  const asked = options.cacheDir === undefined ? null : await openPrefixes(options, terminal);
  const draft = draftOf(options, options, terminal);
  const model = await openModel(path, options, terminal, { profile, isKept: true, prefixes: asked, draft });
  if (!asked && isLong(prompt, model)) await (await openPrefixes(options, terminal))?.keepFor(model);
  // Loading may have run the program to warm it up.
  profile?.reset();
  if (prefix !== undefined && existsSync(prefix)) await restorePrefix(model, prefix);
  const loadEnd = Date.now();
  const generation = model.generate(prompt, { ...generateOptions(options), signal: terminal.signal });
  const inferenceStart = Date.now();
  let text = "";
  for await (const piece of generation) {
    text += piece;
    if (!options.json) await terminal.write(piece);
  }
  const result = await generation.result;
  const times = { loadStart, loadEnd, inferenceStart, inferenceEnd: Date.now() };
  if (options.json) {
    const { finishReason, stopString } = result;
    const stats = observerStatistics(result, times);
    const found = options.profile ? { profile: profileReport(profile!) } : {};
    await terminal.writeJson({ text, finish_reason: finishReason, stop_string: stopString, stats, ...found });
  } else {
    await terminal.writeLine();
    if (result.message !== null) terminal.note(`(${result.message})`);
    terminal.note(describeSpeed(result));
    if (options.profile) terminal.note(describeProfile(profile!));
  }
  if (prefix !== undefined) await keepPrefix(model, prompt, prefix, terminal);
  if (options.trace !== undefined) await writeTrace(profile!, options.trace);
}

/** Prompts of fewer tokens are computed sooner than the prefix cache on disk is opened and searched. */
const SHORT_TOKENS = 256;

function isLong(prompt: string, model: LanguageModel): boolean {
  // Each token has at least one byte.
  const canBe = Buffer.byteLength(prompt) >= SHORT_TOKENS;
  return canBe && model.hasTokenizer && model.tokenizer.encode(prompt).length >= SHORT_TOKENS;
}

/** Writes the prefix of a prompt, or notes that the model holds none of it, as for a prompt shorter than a page. */
async function keepPrefix(model: LanguageModel, prompt: string, path: string, terminal: Terminal): Promise<void> {
  try {
    await savePrefix(model, prompt, path);
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    terminal.note(`(${path} is not written: ${error.message})`);
  }
}

async function readPrompt(
  argument: string | undefined,
  options: RunOptions,
  { stdin, signal }: Terminal,
): Promise<string> {
  if (argument !== undefined && options.prompt !== undefined)
    throw new UsageError("give the prompt as an argument or with --prompt, not both");
  const prompt = options.prompt ?? argument ?? (stdin.isTTY ? undefined : "-");
  if (prompt === undefined) throw new UsageError('give a prompt: -p "text", an argument, or text on stdin');
  if (prompt !== "-") return prompt;
  signal.addEventListener("abort", () => stdin.destroy(signal.reason), { once: true });
  const text = (await readAll(stdin)).replace(/\r?\n$/, "");
  if (text === "" && argument === undefined && options.prompt === undefined)
    throw new UsageError('give a prompt: -p "text", an argument, or text on stdin, which is empty');
  return text;
}

/** One line with number and speed of tokens in prefill and decode. */
export function describeSpeed(result: GenerationResult): string {
  const { promptTokens, generatedTokens, draftedTokens, acceptedTokens } = result;
  const { prefillSeconds, firstTokenSeconds } = result;
  const { prefill, decode } = speeds(result);
  const drafts = draftedTokens > 0 ? ` (${acceptedTokens} of ${draftedTokens} drafted)` : "";
  return (
    `prompt: ${promptTokens} tokens, ${prefill.toFixed(1)} tok/s (${prefillSeconds.toFixed(2)} s); ` +
    `generated: ${generatedTokens} tokens${drafts}, ${decode.toFixed(1)} tok/s; first token after ${firstTokenSeconds.toFixed(2)} s`
  );
}

/** Tokens a second; the first token's time counts as prefill. 0 where nothing was measured. */
function speeds(result: GenerationResult): { prefill: number; decode: number } {
  const rate = (tokens: number, seconds: number) => (tokens > 0 && seconds > 0 ? tokens / seconds : 0);
  return {
    prefill: rate(result.promptTokens, result.prefillSeconds),
    decode: rate(result.generatedTokens - 1, result.decodeSeconds),
  };
}

interface Times {
  readonly loadStart: number;
  readonly loadEnd: number;
  readonly inferenceStart: number;
  readonly inferenceEnd: number;
}

/** Fields of the PyTorchObserver line that ExecuTorch's runners print, so that results can be compared; times in ms. */
function observerStatistics(result: GenerationResult, times: Times): Record<string, number> {
  const { prefill, decode } = speeds(result);
  return {
    prefill_token_per_sec: prefill,
    decode_token_per_sec: decode,
    prompt_tokens: result.promptTokens,
    generated_tokens: result.generatedTokens,
    drafted_tokens: result.draftedTokens,
    accepted_tokens: result.acceptedTokens,
    model_load_start_ms: times.loadStart,
    model_load_end_ms: times.loadEnd,
    inference_start_ms: times.inferenceStart,
    inference_end_ms: times.inferenceEnd,
    prompt_eval_end_ms: times.inferenceStart + Math.round(1000 * result.prefillSeconds),
    first_token_ms: times.inferenceStart + Math.round(1000 * result.firstTokenSeconds),
    SCALING_FACTOR_UNITS_PER_SECOND: 1000,
  };
}
