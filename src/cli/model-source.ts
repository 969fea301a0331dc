/** The model argument of a command: a .pte program, or a checkpoint folder that is compiled in memory. */
import { type Command, Option } from "commander";
import {
  type CompileModelOptions,
  type ExportOptions,
  exportProgram,
  type KvCacheType,
  type LanguageModel,
  loadCheckpoint,
  loadCompiled,
  loadProgram,
  type Model,
} from "../index.ts";
import {
  type CalibrationText,
  checkCompiles,
  type DownloadPlan,
  type Draft,
  type HubProgramOptions,
  hubProgram,
  isCheckpoint,
  isHubName,
  keepingRefusal,
  kvCacheTypes,
  type LoadOptions,
  type PrefixCache,
  withFileProgram,
} from "../tools/index.ts";
import { applyQuantization, type EncodeHooks } from "./apply-quantization.ts";
import { type Limit, parseLimit, setLimits } from "./limits.ts";
import {
  addQuantizationOptions,
  describeQuantization,
  type QuantizationOptions,
  wantsQuantization,
} from "./quantization-options.ts";
import { describeWritten } from "./self-calibration.ts";
import { formatBytes } from "./table.ts";
import type { Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";
import { byteCount, collect, wholeNumber } from "./values.ts";

/** Options of every command that takes a program or a checkpoint. */
export interface SourceOptions extends QuantizationOptions {
  readonly data?: readonly string[];
}

/** Options of every command that runs a model. */
export interface ModelOptions extends SourceOptions {
  readonly threads?: number;
  readonly context?: number;
  readonly kvCache?: KvCacheType;
  readonly cacheBytes?: number;
  readonly sequences?: number;
  readonly limit?: readonly Limit[];
}

export function addSourceOptions(command: Command): Command {
  command.option("--data <file.ptd>", "tensors that the program leaves outside; repeatable", collect(String));
  return addQuantizationOptions(command);
}

export function addModelOptions(command: Command): Command {
  command
    .option("--threads <n>", "threads of native kernels (default: fast cores)", wholeNumber)
    .option("--context <n>", "most tokens of a sequence (default: the model's, as far as memory allows)", wholeNumber)
    .addOption(
      new Option(
        "--kv-cache <type>",
        "what keys and values are kept in (default: f32 while a context takes at most 32 MiB, else f16)",
      ).choices(kvCacheTypes),
    )
    .option("--cache-bytes <n>", "most memory for keys and values, such as 2g (default: by free memory)", byteCount)
    .option("--sequences <n>", "most sequences of a step (default: 32)", wholeNumber)
    .option(
      "--limit <name=number>",
      "what the model's chat template or tokenizer may cost, such as template.milliseconds=500; repeatable",
      collect(parseLimit),
    );
  return addSourceOptions(command);
}

export const CHECKPOINT_HELP =
  "folder with config.json and model.safetensors (or its shards), a .gguf file, or hf:org/name";
export const MODEL_HELP =
  "a .pte program, or a checkpoint folder, .gguf file or hf:org/name, which is compiled in memory";

interface CheckpointHooks extends EncodeHooks {
  /** Path of a separate checkpoint with a draft head for the model. */
  readonly draftHead?: string | undefined;
  /** Called with the model after it was opened: throws for what could not be done with it. */
  readonly onOpen?: (model: Model) => Promise<void>;
}

/** Opens a checkpoint (downloaded where it is on the hub), sets its quantization, and closes it after `work`. */
export async function withCheckpoint<R>(
  path: string,
  options: QuantizationOptions,
  terminal: Terminal,
  work: (model: Model) => Promise<R>,
  hooks: CheckpointHooks = {},
): Promise<R> {
  const { signal, onWait } = terminal;
  const progress = terminal.progress("downloading");
  const pull = { signal, onWait, onProgress: progress.update, draftHead: hooks.draftHead };
  const model = await loadCheckpoint(path, pull).finally(() => progress.stop());
  noteUnread(model, terminal);
  try {
    await hooks.onOpen?.(model);
    const writing = terminal.progress("writing a text");
    const onWritten = (written: CalibrationText) => {
      writing.stop();
      terminal.note(`lowbit: ${describeWritten(written)}`);
    };
    await applyQuantization(model, options, { ...hooks, onWrite: writing.update, onWritten }).finally(() =>
      writing.stop(),
    );
    return await work(model);
  } finally {
    await model.close();
  }
}

function noteUnread(model: Model, terminal: Terminal): void {
  if (model.unreadTensors.length > 0) terminal.note(`lowbit: ${describeUnread(model)}`);
  for (const note of model.checkpoint.notes) terminal.note(`lowbit: ${note}`);
}

/** Most names of tensors in a note. */
const NAMES_MAX = 3;

function describeUnread({ unreadTensors: names, network, checkpoint }: Model): string {
  const shown = names.slice(0, NAMES_MAX).join(", ");
  const more = names.length > NAMES_MAX ? ` and ${names.length - NAMES_MAX} more` : "";
  return `${checkpoint.configFile}: ${network.architecture} has no place for ${shown}${more} by this config: ignored`;
}

/** Options of compiling and loading a model. */
interface OpenOptions extends Omit<CompileModelOptions, "signal">, Pick<LoadOptions, "profile"> {
  /** Whether a hub model is quantized once (to 4 bits unless options say otherwise) and kept as a program. */
  readonly isKept?: boolean;
  /** Prefix cache on disk; null for none. */
  readonly prefixes?: PrefixCache | null;
  /** Gives the source of drafts; the model's default without. */
  readonly draft?: () => Promise<Draft>;
  /** Called with a checkpoint's model after quantization, before it is compiled. */
  readonly onQuantized?: (model: Model) => void;
}

/** Loads a model to run. UsageError for quantization options with a program, which is quantized already. */
export async function openModel(
  path: string,
  options: ModelOptions,
  terminal: Terminal,
  open: OpenOptions = {},
): Promise<LanguageModel> {
  const { prefixes, draft, ...how } = open;
  const model = await openRunnable(path, options, terminal, how);
  try {
    if (draft && model.hasTokenizer && model.makes === "text") model.draft = await draft();
    await prefixes?.keepFor(model);
    setLimits(model, options.limit ?? []);
  } catch (error) {
    await model.dispose();
    throw error;
  }
  const { ignoredSettings } = model;
  if (ignoredSettings.length > 0)
    terminal.note(`lowbit: ${model.name}, generation_config.json: ${ignoredSettings.join(", ")}: ignored`);
  return model;
}

async function openRunnable(
  path: string,
  options: ModelOptions,
  terminal: Terminal,
  { onQuantized, isKept, ...compile }: Omit<OpenOptions, "prefixes" | "draft">,
): Promise<LanguageModel> {
  const kept = isKept && isHubName(path) ? await keptProgram(path, options, terminal) : path;
  const progress = terminal.progress("loading");
  const { threads, kvCache, cacheBytes, sequences } = options;
  const store = { contextLength: options.context, kvCache, cacheBytes, sequences };
  const hooks = { threads, ...store, signal: terminal.signal, onProgress: progress.update };
  const { profile, ...how } = compile;
  const load = (program: string) => loadProgram(program, { ...hooks, profile, data: options.data });
  try {
    if (kept !== path || !(await takesCheckpoint(path, options))) return await load(kept);
    const isUsual = !onQuantized && Object.keys(how).length === 0;
    if (isKept && isUsual && (await canKeep(path, options, terminal)))
      return await withKeptFile(path, options, terminal, hooks, load);
    return await withCheckpoint(
      path,
      options,
      terminal,
      (model) => {
        onQuantized?.(model);
        return loadCompiled(model, { ...compile, ...hooks });
      },
      { ...hooks, check: (model) => checkCompiles(model, { ...how, contextLength: options.context }) },
    );
  } finally {
    progress.stop();
  }
}

/**
 * Whether the program of a GGUF file is kept: the checkpoint must be one file, and no option may write another. Notes the
 * reason where the cache cannot keep it.
 */
async function canKeep(path: string, options: QuantizationOptions, terminal: Terminal): Promise<boolean> {
  const isOneFile = /\.gguf$/i.test(path) && !/-\d{5}-of-\d{5}\.gguf$/i.test(path);
  if (!isOneFile || options.saveRecipe !== undefined || options.saveCalibration !== undefined) return false;
  const refusal = await keepingRefusal(path);
  if (refusal !== null) terminal.note(`lowbit: ${path} is compiled in memory at each start: ${refusal}`);
  return refusal === null;
}

/** Calls `load` with the cached program of a file, which is compiled first where the cache has none. */
async function withKeptFile<R>(
  path: string,
  options: ModelOptions,
  terminal: Terminal,
  hooks: Required<Pick<ExportOptions, "signal" | "onProgress">>,
  load: (program: string) => Promise<R>,
): Promise<R> {
  const quantization = (await describeQuantization(options)) || "as in the file";
  const { signal, onProgress } = hooks;
  return withFileProgram(
    path,
    {
      quantization,
      signal,
      onWait: terminal.onWait,
      make: async (program) => {
        await withCheckpoint(
          path,
          options,
          terminal,
          (model) => exportProgram(model, program, { signal, onProgress }),
          {
            ...hooks,
            check: checkCompiles,
          },
        );
        terminal.note(`lowbit: ${path} is kept compiled for the next start (lowbit list)`);
      },
    },
    load,
  );
}

/** Progress and abort signal of making a program. */
type MakingHooks = Pick<HubProgramOptions, "signal" | "onProgress">;

/** Path of the cached program of a hub model, which is made first where the cache has none. */
export async function keptProgram(
  name: string,
  options: ModelOptions,
  terminal: Terminal,
  { signal = terminal.signal, onProgress }: MakingHooks = {},
): Promise<string> {
  const { onWait } = terminal;
  const shown = { downloading: terminal.progress("downloading"), quantizing: terminal.progress("quantizing") };
  try {
    return await hubProgram(name, {
      signal,
      onWait,
      ...(wantsQuantization(options) && {
        quantization: {
          name: await describeQuantization(options),
          apply: (model) => applyQuantization(model, options, { signal }),
        },
      }),
      onPlan: (plan) => terminal.note(`lowbit: ${describePlan(plan)}`),
      onOpen: (model) => noteUnread(model, terminal),
      onProgress(what, done, total) {
        shown[what].update(done, total);
        onProgress?.(what, done, total);
      },
    });
  } finally {
    for (const progress of Object.values(shown)) progress.stop();
  }
}

/** "hf:org/name: downloads 988 MB, takes about 280 MB on disk (12.1 GB free) and 600 MB of memory (8.3 GB)". */
function describePlan(plan: DownloadPlan): string {
  const { model, downloadBytes, programBytes, freeDiskBytes, memoryBytes, totalMemoryBytes } = plan;
  const free = Number.isFinite(freeDiskBytes) ? ` (${formatBytes(freeDiskBytes)} free)` : "";
  const fits = memoryBytes < totalMemoryBytes ? "" : ": more than there is, so that it will be slow or fail";
  return (
    `${model}: downloads ${formatBytes(downloadBytes)}, then takes about ${formatBytes(programBytes)} more on disk${free} ` +
    `and ${formatBytes(memoryBytes)} of ${formatBytes(totalMemoryBytes)} memory${fits}`
  );
}

/**
 * Whether a path is a checkpoint rather than a program. UsageError for quantization options with a program, and for files
 * of tensors (`--data`) with a checkpoint.
 */
export async function takesCheckpoint(path: string, options: SourceOptions): Promise<boolean> {
  const found = await isCheckpoint(path);
  if (!found) checkProgramOptions(path, options);
  else if (options.data !== undefined)
    throw new UsageError(`--data needs a program, which leaves tensors outside; ${path} is a checkpoint`);
  return found;
}

/** UsageError for options that only apply when a program is exported. */
export function checkProgramOptions(path: string, options: QuantizationOptions): void {
  if (wantsQuantization(options))
    throw new UsageError(
      `${path} is a program, quantized when it was exported; quantization options need a checkpoint folder`,
    );
}
