/** `lowbit quantize`: checkpoint folder → .pte program. */
import { rm } from "node:fs/promises";
import { type Command, Option } from "commander";
import { type Cpu, cpuWith, exportProgram, inspectProgram, type Model, saveGguf, saveTorchao } from "../index.ts";
import {
  checkCompiles,
  checkOutput,
  checkOutputFolder,
  claimPath,
  describeOrigins,
  type FittedSize,
  isQuantizedApart,
  type Target,
  targets,
  type WeightOrigin,
  weightOrigins,
} from "../tools/index.ts";
import { encodingFor } from "./encoding-options.ts";
import { CHECKPOINT_HELP, withCheckpoint } from "./model-source.ts";
import { addQuantizationOptions, type QuantizationOptions, wantsQuantization } from "./quantization-options.ts";
import { describeFitted } from "./size-option.ts";
import { formatBytes } from "./table.ts";
import type { Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";
import { wholeNumber } from "./values.ts";

interface QuantizeCommandOptions extends QuantizationOptions {
  readonly output: string;
  readonly format: "pte" | "torchao" | "gguf";
  readonly maxSeqLen?: number;
  readonly maxContextLen?: number;
  readonly cpu?: string;
  readonly target: Target;
  readonly ggufType?: "Q4_K" | "Q5_K" | "Q6_K";
  readonly draftHead?: string;
  readonly json?: boolean;
}

export function addQuantize(program: Command, terminal: Terminal): void {
  const command = program
    .command("quantize")
    .summary("quantize a checkpoint and write it as a .pte program")
    .description(
      "Quantizes a Hugging Face checkpoint folder and writes it as a .pte program with its tokenizer and chat template.\n" +
        "Interrupted, it keeps what it has done beside the output (.parts, .partial): the same command goes on from there.\n" +
        "Without --qmode, --embedding, --shared-embedding or --recipe, the weights stay as they are stored.",
    )
    .argument("<checkpoint>", CHECKPOINT_HELP)
    .requiredOption("-o, --output <path>", "program to write, or the folder or file of another --format")
    .option("--max-seq-len <n>", "most rows of a step (default: 512)", wholeNumber)
    .option(
      "--max-context-len <n>",
      "with --target executorch: positions of the KV cache (default: the model's, at most 2048)",
      wholeNumber,
    )
    .addOption(
      new Option(
        "--cpu <cpu>",
        'CPU to pack weights for, when it is not this one: a name, or features, for example "neoverse-v2" or "neon,dotprod"',
      ).conflicts("layout"),
    )
    .addOption(
      new Option("--format <name>", "what to write: a program, a folder for transformers with torchao, or a GGUF file")
        .choices(["pte", "torchao", "gguf"])
        .default("pte"),
    )
    .addOption(
      new Option(
        "--gguf-type <type>",
        "with --format gguf: quantize all matrices to this type of llama.cpp's K-quants (the head becomes Q6_K)",
      ).choices(["Q4_K", "Q5_K", "Q6_K"]),
    )
    .addOption(
      new Option("--target <runtime>", "who runs the program: operators and layout of ExecuTorch, or our own")
        .choices(targets)
        .default("lowbit"),
    )
    .option(
      "--draft-head <checkpoint>",
      "a checkpoint of its own that drafts for the model: an assistant of Gemma 4, or Qwen3.5's tensors mtp.*; run it with --draft mtp",
    )
    .option("--json", "print the result as JSON");
  addQuantizationOptions(command)
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit quantize ./Llama-3.2-1B-Instruct --qmode 8da4w --group-size 32 --shared-embedding -o llama.pte
  $ lowbit quantize ./model --qmode 8da2w --embedding 4,32 -o model.pte
  $ lowbit quantize ./model --qmode aqlm-2x8 --calibrate text.txt --head 8da4w --embedding 4,32 -o model.pte
  $ lowbit quantize ./model --qmode 8da2w --algorithm gptq --calibrate text.txt -o model.pte
  $ lowbit quantize ./model --qmode 8da3w --algorithm gptq --size 3.6bpw --calibrate text.txt -o model.pte
  $ lowbit quantize ./model --recipe recipe.json -o model.pte
  $ lowbit quantize ./model --qmode 8da4w --cpu apple-m2 -o model.pte
  $ lowbit quantize ./model -o model-float.pte
  $ lowbit quantize model-Q4_0.gguf --qmode 8da4w -o model.pte
  $ lowbit quantize ./model --qmode wo8w --group-size 32 --format gguf -o model-Q8_0.gguf
  $ lowbit quantize ./model --format gguf --gguf-type Q4_K -o model-Q4_K.gguf`,
    )
    .action((checkpoint: string, options: QuantizeCommandOptions) => quantizeCheckpoint(checkpoint, options, terminal));
}

/** Writes a checkpoint for other runtimes: a folder for transformers with torchao, or a GGUF file. */
async function writeCheckpoint(path: string, options: QuantizeCommandOptions, terminal: Terminal): Promise<void> {
  const { output, format, json, ggufType: blockType } = options;
  checkCheckpointOptions(options);
  if (encodingFor(options))
    throw new UsageError(
      `--format ${format} does not go with --qmode ${options.qmode}, whose weights only a program holds: expected --format pte`,
    );
  const inputs = [path, options.recipe, options.calibrate];
  await (format === "gguf" ? checkOutput(output, inputs) : checkOutputFolder(output, inputs));
  const { signal } = terminal;
  const start = performance.now();
  const progress = terminal.progress("quantizing");
  let origins: readonly WeightOrigin[] = [];
  const write = async (model: Model) => {
    const lost = format === "torchao" && model.network.slots.find((slot) => isQuantizedApart(model, slot));
    if (lost)
      terminal.note(
        `lowbit: ${lost.name} stays what ${lost.tiedTo} is, one tensor in TorchAO's files; --shared-embedding quantizes both`,
      );
    origins = originsIn(model, options);
    if (format === "gguf") await saveGguf(model, output, { signal, blockType, onProgress: progress.update });
    else await saveTorchao(model, output, { signal, onWait: terminal.onWait });
  };
  try {
    // GGUF's blocks have float16 scales.
    const scaleDtype = options.scaleDtype ?? (format === "gguf" && wantsScales(options) ? "f16" : undefined);
    const check = (model: Model) => checkApart(model, options);
    await withCheckpoint(path, { ...options, ...(scaleDtype && { scaleDtype }) }, terminal, write, {
      signal,
      onOpen: check,
    });
  } finally {
    progress.stop();
  }
  const seconds = (performance.now() - start) / 1000;
  const place = format === "gguf" ? { file: output } : { folder: output };
  if (json) await terminal.writeJson({ ...place, seconds, weights: origins });
  else await terminal.writeLine(`wrote ${output}: weights ${describeOrigins(origins)}, in ${seconds.toFixed(1)} s`);
}

/** What becomes of each weight; with `--gguf-type`, all matrices are quantized. */
function originsIn(model: Model, { format, ggufType }: QuantizeCommandOptions): readonly WeightOrigin[] {
  if (format === "torchao") return weightOrigins(model, "torchao");
  const origins = weightOrigins(model, "gguf");
  if (ggufType === undefined) return origins;
  const matrices = new Set(model.network.slots.filter(({ role }) => role !== "vector").map(({ name }) => name));
  return origins.map((origin) => (matrices.has(origin.name) ? { ...origin, treatment: "quantized" } : origin));
}

/** Checks, before calibrating and encoding, which take long, that the output is no file of the checkpoint itself. */
function checkApart({ checkpoint }: Model, { output, format }: QuantizeCommandOptions): Promise<void> {
  const files = [checkpoint.folder, ...(checkpoint.parts ?? [])];
  return (format === "torchao" ? checkOutputFolder : checkOutput)(output, files);
}

/** UsageError for options that apply to programs only. */
function checkCheckpointOptions(options: QuantizeCommandOptions): void {
  const { format, maxSeqLen, maxContextLen, layout, cpu, target, ggufType, draftHead } = options;
  if (ggufType !== undefined && format !== "gguf")
    throw new UsageError(`--gguf-type does not go with --format ${format}: expected --format gguf`);
  if (ggufType !== undefined && wantsQuantization(options))
    throw new UsageError("--gguf-type quantizes all matrices: leave out --qmode and the other options of quantization");
  const ofPrograms = {
    "--max-seq-len": maxSeqLen,
    "--max-context-len": maxContextLen,
    "--layout": layout,
    "--cpu": cpu,
    "--draft-head": draftHead,
    "--target executorch": target === "executorch" ? target : undefined,
  };
  for (const [flag, value] of Object.entries(ofPrograms))
    if (value !== undefined)
      throw new UsageError(
        `${flag} does not go with --format ${format}, which writes no program: expected --format pte`,
      );
}

/** Whether options that use `--scale-dtype` are given. */
function wantsScales({ qmode, head, embedding, sharedEmbedding }: QuantizeCommandOptions): boolean {
  return [qmode, head, embedding, sharedEmbedding].some((option) => option !== undefined);
}

function otherCpu({ cpu, target }: QuantizeCommandOptions): Cpu | undefined {
  if (cpu === undefined) return undefined;
  if (target === "executorch")
    throw new UsageError("--cpu does not go with --target executorch, whose layout is the same for every CPU");
  return cpuWith(cpu);
}

/**
 * UsageError for options of a contiguous KV cache where the target is not ExecuTorch: other programs take them when loaded.
 */
function checkStateOptions({ target, maxContextLen }: QuantizeCommandOptions): void {
  if (maxContextLen !== undefined && target !== "executorch")
    throw new UsageError(
      "--max-context-len goes with --target executorch; other programs take --context when they are run",
    );
}

async function quantizeCheckpoint(path: string, given: QuantizeCommandOptions, terminal: Terminal): Promise<void> {
  const reader = given.format === "gguf" ? "gguf" : given.target === "executorch" ? "torchao" : given.format;
  const options: QuantizeCommandOptions = reader === "pte" ? given : { ...given, reader };
  if (options.format !== "pte") return writeCheckpoint(path, options, terminal);
  if (options.ggufType !== undefined)
    throw new UsageError("--gguf-type goes with --format gguf, and this writes a program");
  checkStateOptions(options);
  const { output, maxSeqLen, maxContextLen, target, json } = options;
  const cpu = otherCpu(options);
  await checkOutput(output, [path, options.recipe, options.calibrate]);
  if (options.saveRecipe !== undefined) await checkOutput(options.saveRecipe, [path, output, options.calibrate]);
  const wanted = { maxSeqLen, maxContextLen, target, ...(cpu && { cpu }) };
  const { signal } = terminal;
  const start = performance.now();
  const isEncoded = encodingFor(options) !== null;
  const encoding = terminal.progress(isEncoded ? "encoding" : "calibrating");
  let origins: readonly WeightOrigin[] = [];
  const work = async (model: Model) => {
    encoding.stop();
    origins = weightOrigins(model, target);
    const progress = terminal.progress("quantizing");
    const options = { ...wanted, signal, resume: true, onWait: terminal.onWait, onProgress: progress.update };
    await exportProgram(model, output, options).finally(() => progress.stop());
  };
  // Folder of finished layers until the program is written, from which an interrupted run resumes.
  const folder = `${output}.parts`;
  const isLong = isEncoded || options.calibrate !== undefined;
  const claim = isLong ? await claimPath(folder, { signal, onWait: terminal.onWait }) : null;
  const onDamagedPart = (notice: string) => {
    encoding.stop();
    terminal.note(`lowbit: ${notice}`);
  };
  let isWritten = false;
  try {
    const check = (model: Model) => checkCompiles(model, wanted);
    const onOpen = (model: Model) => checkApart(model, options);
    const onFitted = (fitted: FittedSize) => {
      encoding.stop();
      terminal.note(`lowbit: ${describeFitted(fitted)}`);
    };
    const compile = { maxSeqLen, target, ...(cpu && { cpu }) };
    const told = { onProgress: encoding.update, onDamagedPart, onFitted };
    const hooks = { onOpen, folder, signal, check, compile, draftHead: options.draftHead, ...told };
    await withCheckpoint(path, options, terminal, work, hooks);
    isWritten = true;
  } finally {
    encoding.stop();
    if (isWritten && claim) await rm(folder, { recursive: true, force: true });
    await claim?.release();
  }
  const seconds = (performance.now() - start) / 1000;
  const { parts, bitsPerWeight } = await inspectProgram(output);
  if (json) {
    await terminal.writeJson({ file: output, bytes: parts.total, bitsPerWeight, seconds, weights: origins });
  } else {
    await terminal.writeLine(
      `wrote ${output}: ${formatBytes(parts.total)}, ${bitsPerWeight.toFixed(2)} bits per weight, in ${seconds.toFixed(1)} s`,
    );
    // Told where weights were encoded, or were low-bit in the checkpoint already.
    if (
      isEncoded ||
      origins.some(({ treatment, stored }) => treatment === "kept as stored" || !/^b?f\d+$/i.test(stored))
    )
      await terminal.writeLine(`weights ${describeOrigins(origins)}`);
  }
}
