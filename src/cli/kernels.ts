/** `lowbit kernels`: the kernel rows, and which of them serves which call. */
import type { Command } from "commander";
import { cpuWith, hostCpu, type KernelChoice, kernelTable } from "../index.ts";
import { formatRanges, formatTable } from "./table.ts";
import type { Terminal } from "./terminal.ts";

interface KernelsOptions {
  readonly cpu?: string;
  readonly json?: boolean;
}

export function addKernels(program: Command, terminal: Terminal): void {
  program
    .command("kernels")
    .summary("list the kernels and which of them run here")
    .description("Lists all kernels, why some cannot run on a CPU, and which of them serves which call.")
    .option("--cpu <features>", 'a CPU with these features instead of this one, for example "neon,dotprod" or "scalar"')
    .option("--json", "print the table as JSON")
    .addHelpText(
      "after",
      `
Examples:
  $ lowbit kernels
  $ lowbit kernels --cpu avx2,avx_vnni
  $ lowbit kernels --json`,
    )
    .action((options: KernelsOptions) => kernels(options, terminal));
}

async function kernels({ cpu, json }: KernelsOptions, terminal: Terminal): Promise<void> {
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
  await terminal.writeLine(`CPU ${table.features.join(", ") || table.cpu}\n`);
  await terminal.writeLine(
    formatTable([["operator", "kernel", "layouts", "bits", "needs", "tile", "available"], ...rows]),
  );
  await terminal.writeLine();
  await terminal.writeLine(choiceTable(table.choices));
}

/** Which kernel serves calls with m rows of activations. */
function choiceTable(choices: readonly KernelChoice[]): string {
  const counts = Object.keys(choices[0]?.byRows ?? {}).map(Number);
  const rows = choices.map(({ operator, layout, bits, byRows }) => [
    operator,
    layout ?? "",
    bits ? formatRanges(bits) : "",
    ...counts.map((m) => byRows[m] ?? "none"),
  ]);
  return formatTable([["call", "layout", "bits", ...counts.map((m) => `m = ${m}`)], ...rows]);
}
