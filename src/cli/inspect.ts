/** `lowbit inspect`: what a .pte program holds. */
import { type Command, Option } from "commander";
import { InvalidFileError, inspectProgram, type ProgramReport } from "../index.ts";
import { type MethodReport, modelGraphs, programGraphs, type WeightReport } from "../tools/index.ts";
import {
  addSourceOptions,
  checkProgramOptions,
  type SourceOptions,
  takesCheckpoint,
  withCheckpoint,
} from "./model-source.ts";
import { formatBytes, formatTable } from "./table.ts";
import type { Terminal } from "./terminal.ts";

interface InspectOptions extends SourceOptions {
  readonly verify?: boolean;
  readonly json?: boolean;
  readonly graph?: boolean;
}

export function addInspect(program: Command, terminal: Terminal): void {
  const command = program
    .command("inspect")
    .summary("show what a .pte program holds")
    .description(
      "Shows the methods, operators, memory, weights and sizes of a .pte program, without loading the weights.",
    )
    .argument("<program>", "a .pte file; with --graph a checkpoint too")
    .addOption(new Option("--verify", "read all weights and check their checksums").conflicts("graph"))
    .option("--json", "print the report as JSON")
    .option(
      "--graph",
      "print the operator calls instead: of a checkpoint before and after the passes of the compiler, with the " +
        "quantization options below; of a .pte file, which is compiled already, as they are stored",
    );
  addSourceOptions(command)
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit inspect llama.pte
  $ lowbit inspect llama.pte --verify
  $ lowbit inspect ./checkpoint --graph --qmode 8da4w
  $ lowbit inspect llama.pte --json | jq '.weights[] | [.name, .bitsPerWeight]'`,
    )
    .action((path: string, options: InspectOptions) => inspect(path, options, terminal));
}

/** Graphs of a checkpoint before and after the passes, or of a program as stored. */
async function inspectGraphs(path: string, options: InspectOptions, terminal: Terminal): Promise<void> {
  const { signal } = terminal;
  const graphs = (await takesCheckpoint(path, options))
    ? await withCheckpoint(path, options, terminal, async (model) => modelGraphs(model), { signal })
    : await programGraphs(path, options);
  if (options.json) return terminal.writeJson(graphs);
  const texts = graphs.map(({ before, after }) =>
    before === null ? after : `before the passes:\n${before}\n\nafter:\n${after}`,
  );
  await terminal.writeLine(texts.join("\n\n"));
}

async function inspect(path: string, options: InspectOptions, terminal: Terminal): Promise<void> {
  if (options.graph) return inspectGraphs(path, options, terminal);
  checkProgramOptions(path, options);
  const progress = terminal.progress("verifying");
  const { signal } = terminal;
  const report = await inspectProgram(path, {
    verify: options.verify,
    data: options.data,
    signal,
    onProgress: progress.update,
  }).finally(() => progress.stop());
  if (options.json) await terminal.writeJson(report);
  else await terminal.writeLine(sections(report, options.verify === true).join("\n\n"));
  const damaged = report.weights.filter(({ intact }) => intact === false).map(({ name }) => name);
  if (damaged.length > 0)
    throw new InvalidFileError(path, `the checksum does not match for ${damaged.join(", ")}; export the program again`);
}

function sections(report: ProgramReport, verified: boolean): string[] {
  const { weights, metadata, namedData } = report;
  const parts = [partTable(report)];
  for (const method of report.methods) parts.push(...methodSections(method));
  const values = Object.entries(metadata).map(([name, value]) => [name, JSON.stringify(value)]);
  if (values.length > 0) parts.push(formatTable([["metadata", "value"], ...values]));
  if (weights.length > 0) parts.push(weightTable(weights, verified), weightSummary(report));
  if (namedData.length > 0)
    parts.push(formatTable([["named data", "size"], ...namedData.map((d) => [d.key, formatBytes(d.byteLength)])]));
  return parts;
}

function partTable({ file, parts }: ProgramReport): string {
  const rows: [string, number][] = [
    ["program (header and tables)", parts.program],
    ["constants", parts.constants],
    ["named data", parts.namedData],
    ["other segments", parts.otherSegments],
    ["padding", parts.padding],
    ["total", parts.total],
  ];
  return `${file}\n${formatTable([["part", "bytes"], ...rows.filter(([, bytes]) => bytes > 0)])}`;
}

function methodSections(method: MethodReport): string[] {
  const { name, inputs, outputs, operators, delegates, largest } = method;
  const show = (values: MethodReport["inputs"]) =>
    values.map(({ kind, dtype, sizes, dynamic }) => {
      if (!dtype || !sizes) return kind;
      return `${dtype} [${sizes.join(", ")}]${dynamic ? " at most" : ""}`;
    });
  const signature = `method ${name}(${show(inputs).join(", ")}) → ${show(outputs).join(", ")}`;
  const types = Object.entries(method.stateTypes).map(([dtype, bytes]) => `${formatBytes(bytes)} of ${dtype}`);
  const state = `state ${formatBytes(method.stateBytes)} a session${types.length > 0 ? ` (${types.join(", ")})` : ""}`;
  const memory = `memory: scratch ${formatBytes(method.scratchBytes)}, ${state}`;
  const calls = operators.map(({ name, calls, known }) => [name, calls, known ? "" : "unknown here"]);
  const planned = largest.map((tensor) => [
    tensor.name,
    tensor.memory,
    tensor.offset,
    formatBytes(tensor.byteLength),
    `${tensor.dtype} [${tensor.sizes.join(", ")}]`,
  ]);
  return [
    `${signature}\n${memory}${delegates.length > 0 ? `\ndelegates: ${delegates.join(", ")}` : ""}`,
    ...(calls.length > 0 ? [formatTable([["operator", "calls", ""], ...calls])] : []),
    ...(planned.length > 0 ? [formatTable([["largest tensors", "memory", "offset", "size", "type"], ...planned])] : []),
  ];
}

function weightTable(weights: readonly WeightReport[], verified: boolean): string {
  const heading = ["weight", "layout", "bits", "shape", "group", "scales", "size", "bits/weight"];
  const rows = weights.map((weight) => {
    const { layout, dtype, form, bits, shape, groupSize, scaleType, byteLength } = weight;
    const parts = {
      ...{ codebook: weight.levels, "shift where odd": weight.oddZero !== null },
      ...{ zeros: weight.hasZeros, minima: weight.hasMinima },
    };
    const had = Object.entries(parts).map(([name, has]) => (has ? ` + ${name}` : ""));
    const isAxis = groupSize !== null && groupSize >= (shape[1] ?? 0);
    const row = [
      weight.name,
      layout ?? dtype,
      form ?? bits,
      `[${shape.join(", ")}]`,
      form ? "" : isAxis ? "axis" : (groupSize ?? ""),
      `${scaleType ?? ""}${had.join("")}`,
      formatBytes(byteLength),
      weight.bitsPerWeight.toFixed(2),
    ];
    const check = weight.intact === null ? "no checksum" : weight.intact ? "intact" : "DAMAGED";
    return verified ? [...row, check] : row;
  });
  return formatTable([verified ? [...heading, "check"] : heading, ...rows]);
}

function weightSummary({ weights, bitsPerWeight }: ProgramReport): string {
  const bytes = weights.reduce((sum, { byteLength }) => sum + byteLength, 0);
  return `${weights.length} weights, ${formatBytes(bytes)}, ${bitsPerWeight.toFixed(2)} bits per weight`;
}
