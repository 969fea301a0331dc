/** `lowbit kernels`: lists the kernels, and which of them serves which call. */
import { type Command, Option } from "commander";
import { cpuWith, hostCpu, InvalidArgumentError } from "../index.ts";
import { type KernelChoice, kernelTable, wasmKernelText } from "../tools/index.ts";
import { formatRanges, formatTable } from "./table.ts";
import type { Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

interface KernelsOptions {
  readonly cpu?: string;
  readonly json?: boolean;
  readonly text?: string;
}

export function addKernels(program: Command, terminal: Terminal): void {
  program
    .command("kernels")
    .summary("list the kernels and which of them run here")
    .description("Lists all kernels, why some cannot run on a CPU, and which of them serves which call.")
    .option(
      "--cpu <cpu>",
      'another CPU than this one: a name, or features, for example "neoverse-v2" or "neon,dotprod"',
    )
    .option("--json", "print the table as JSON")
    .addOption(
      new Option("--text <kernel>", "print the code of a WebAssembly kernel for a small call, as text").conflicts([
        "cpu",
        "json",
      ]),
    )
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit kernels
  $ lowbit kernels --cpu neoverse-v2
  $ lowbit kernels --cpu avx2,avx_vnni
  $ lowbit kernels --json
  $ lowbit kernels --text rms_norm_f32_1x1x4_wasm_simd`,
    )
    .action((options: KernelsOptions) => kernels(options, terminal));
}

async function kernels({ cpu, json, text }: KernelsOptions, terminal: Terminal): Promise<void> {
  if (text !== undefined) {
    await terminal.writeLine(textOf(text));
    return;
  }
  const table = kernelTable(cpu === undefined ? hostCpu() : cpuWith(cpu));
  if (json) {
    await terminal.writeJson(table);
    return;
  }
  const rows = table.rows.map((row) => [
    row.operator,
    row.kernel,
    row.layouts?.join(", ") ?? "",
    row.bits ? formatRanges(row.bits) : "",
    row.needs.join(", ") || "any CPU",
    `${row.mStep}x${row.nStep}`,
    row.refusal ?? "yes",
  ]);
  await terminal.writeLine(`CPU ${table.features.join(", ") || "scalar"}`);
  if (cpu === undefined && table.unserved.length > 0)
    await terminal.writeLine(
      `The native addon was built for a CPU without ${table.unserved.join(", ")}, which this one has: ` +
        "node scripts/native/build.js adds their kernels.",
    );
  await terminal.writeLine();
  await terminal.writeLine(
    formatTable([["operator", "kernel", "layouts", "bits", "needs", "tile", "available"], ...rows]),
  );
  await terminal.writeLine();
  await terminal.writeLine(choiceTable(table.choices));
}

function textOf(kernel: string): string {
  try {
    return wasmKernelText(kernel).trimEnd();
  } catch (error) {
    if (error instanceof InvalidArgumentError) throw new UsageError(error.message);
    throw error;
  }
}

/** A table of the kernel for each number of tokens and group size, and whether this CPU packs such weights. */
function choiceTable(choices: readonly KernelChoice[]): string {
  const rows = choices.flatMap(({ operator, layout, bits, groupSizes, packed, serving }) => {
    const groups = groupSizes?.join(", ") ?? "";
    const call = [
      operator,
      layout ?? "",
      bits ? formatRanges(bits) : "",
      groups,
      packed === null ? "" : packed ? "yes" : "no",
    ];
    return serving.map(({ m, kernel }, i) => {
      const next = serving[i + 1]?.m;
      const rows = next === undefined ? `${m}+` : `${m}${next - m > 1 ? `-${next - 1}` : ""}`;
      return [...call, rows, kernel ?? "not joined: one kernel after the other"];
    });
  });
  return formatTable([["call", "layout", "bits", "groups of", "packed here", "m", "kernel"], ...rows]);
}
