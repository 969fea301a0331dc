/** `lowbit list`, `rm` and `show`: cached programs of models. */
import type { Command } from "commander";
import { inspectProgram, type LanguageModel, loadCheckpoint, loadProgram } from "../index.ts";
import {
  type CachedProgram,
  describeOrigins,
  isCheckpoint,
  isHubName,
  listCachedPrograms,
  parameterCount,
  programCache,
  removeCachedPrograms,
  samplingDefaults,
  takesTools,
  weightOrigins,
} from "../tools/index.ts";
import { bytesAt } from "./served-models.ts";
import { formatBytes, formatTable } from "./table.ts";
import type { Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

export function addList(program: Command, terminal: Terminal): void {
  program
    .command("list")
    .summary("list the models that are kept as programs")
    .description(
      "Lists the programs that `lowbit chat`, `run` and `serve` made of models of the hub and GGUF files, the last used first.\n" +
        "They are in LOWBIT_CACHE, or in `lowbit` within XDG_CACHE_HOME or ~/.cache.",
    )
    .option("--json", "print the list as JSON")
    .action((options: { json?: boolean }) => list(options, terminal));
}

async function list({ json }: { json?: boolean }, terminal: Terminal): Promise<void> {
  const programs = await listCachedPrograms();
  if (json) return terminal.writeJson(programs);
  if (programs.length === 0) return terminal.writeLine(`no programs in ${programCache()}`);
  const rows = programs.map(({ model, quantization, bytes, usedAt, path }) => [
    model,
    quantization,
    formatBytes(bytes),
    usedAt.toISOString().slice(0, 16).replace("T", " "),
    path,
  ]);
  await terminal.writeLine(formatTable([["model", "weights", "size", "last used (UTC)", "program"], ...rows]));
}

export function addRm(program: Command, terminal: Terminal): void {
  program
    .command("rm")
    .summary("remove a model that is kept as a program")
    .description(
      "Removes the programs of a model from the cache, or one by the name of its file. What was downloaded for them stays\n" +
        "in the cache that Python's huggingface_hub uses too, and can be removed there.",
    )
    .argument("<model>", "hf:org/name as `lowbit list` shows it, or the file of a program in the cache")
    .addHelpText("after", "\nExample:\n  $ lowbit rm hf:HuggingFaceTB/SmolLM2-135M-Instruct")
    .action((model: string) => remove(model, terminal));
}

async function remove(model: string, terminal: Terminal): Promise<void> {
  for (const { path, bytes } of await removeCachedPrograms(model))
    await terminal.writeLine(`removed ${path} (${formatBytes(bytes)})`);
}

/** Facts about a model, for people who choose one. */
interface ModelFacts {
  readonly model: string;
  readonly path: string;
  readonly parameters: number;
  /** Mean bits of a program's weight, scales included. */
  readonly bitsPerWeight?: number;
  /** How a checkpoint's weights are stored, and what they become by default. */
  readonly stored?: string;
  readonly bytes: number;
  readonly contextLength: number;
  readonly vocabulary: number;
  readonly chat: boolean;
  readonly tools: boolean;
  readonly sampling: LanguageModel["samplingDefaults"];
}

export function addShow(program: Command, terminal: Terminal): void {
  program
    .command("show")
    .summary("show what a model is")
    .description(
      "Shows parameters, bits, context and abilities of a model that is kept as a program, of a .pte file, or of a checkpoint.",
    )
    .argument("<model>", "hf:org/name as `lowbit list` shows it, a .pte or .gguf file, or a checkpoint folder")
    .option("--json", "print the facts as JSON")
    .addHelpText(
      "after",
      "\nExamples:\n  $ lowbit show hf:HuggingFaceTB/SmolLM2-135M-Instruct\n  $ lowbit show llama.pte --json",
    )
    .action((model: string, options: { json?: boolean }) => show(model, options, terminal));
}

async function show(model: string, { json }: { json?: boolean }, terminal: Terminal): Promise<void> {
  const found = isHubName(model) ? await newestOf(model) : null;
  const isFile = found === null && (await isCheckpoint(model));
  const facts = isFile ? await checkpointFacts(model) : await programFacts(model, found?.path ?? model);
  if (json)
    return terminal.writeJson({ ...facts, ...(found && { quantization: found.quantization, commit: found.commit }) });
  const { temperature = 0, topK, topP } = facts.sampling;
  const sampling = [`temperature ${temperature}`, topK && `top-k ${topK}`, topP && `top-p ${topP}`].filter(Boolean);
  const bits = facts.bitsPerWeight === undefined ? "" : `${facts.bitsPerWeight.toFixed(2)} bits each, `;
  const rows: [string, string][] = [
    [isFile ? "checkpoint" : "program", facts.path],
    ["weights", `${describeCount(facts.parameters)}, ${bits}${formatBytes(facts.bytes)}`],
    ...(facts.stored === undefined ? [] : [["stored", facts.stored] as [string, string]]),
    ...(found
      ? [["quantization", found.quantization] as [string, string], ["commit", found.commit] as [string, string]]
      : []),
    ["context", `${facts.contextLength} tokens`],
    ["vocabulary", `${facts.vocabulary} tokens`],
    ["chat", facts.chat ? `yes${facts.tools ? ", with tools" : ""}` : "no chat template"],
    ["sampling", sampling.join(", ")],
  ];
  await terminal.writeLine(formatTable([[model, ""], ...rows]));
}

/** The last used program of a model. */
async function newestOf(name: string): Promise<CachedProgram> {
  const programs = await listCachedPrograms();
  const found = programs.find(({ model }) => model === name);
  if (found) return found;
  throw new UsageError(
    `${name}: is not kept as a program; \`lowbit list\` shows those that are, \`lowbit chat ${name}\` makes one`,
  );
}

async function checkpointFacts(path: string): Promise<ModelFacts> {
  const model = await loadCheckpoint(path);
  try {
    const { network, checkpoint } = model;
    const { chatTemplate, generationConfig } = checkpoint;
    return {
      model: path,
      path,
      parameters: parameterCount(network.slots.filter(({ tiedTo }) => tiedTo === null)),
      stored: describeOrigins(weightOrigins(model)),
      bytes: bytesAt(path),
      contextLength: network.contextLength,
      vocabulary: network.vocabularySize,
      chat: chatTemplate !== null,
      tools: chatTemplate !== null && takesTools(chatTemplate),
      sampling: samplingDefaults(generationConfig?.value ?? {}, `${path}, generation_config.json`),
    };
  } finally {
    await model.close();
  }
}

async function programFacts(model: string, path: string): Promise<ModelFacts> {
  const { weights, bitsPerWeight, parts } = await inspectProgram(path);
  const llm = await loadProgram(path, { threads: 1 });
  try {
    const { program, template, samplingDefaults } = llm;
    const decoder = llm.createDecoder();
    const { contextLength, vocabularySize } = decoder;
    await decoder.dispose();
    return {
      model,
      path,
      parameters: parameterCount(weights),
      bitsPerWeight,
      bytes: parts.total,
      contextLength: Number(program.metadata.get("get_max_context_len") ?? contextLength),
      vocabulary: vocabularySize,
      chat: template !== null,
      tools: template !== null && takesTools(template.source),
      sampling: samplingDefaults,
    };
  } finally {
    await llm.dispose();
  }
}

function describeCount(count: number): string {
  return count >= 1e9 ? `${(count / 1e9).toPrecision(3)} billion` : `${(count / 1e6).toPrecision(3)} million`;
}
