/** Makes the tables of docs/kernels.md from the kernels themselves. scripts/native/kernel-rows.js writes the file. */
import { join } from "node:path";
import { root } from "../native/sources.js";

/** @typedef {import("../../src/index.ts").KernelChoice} KernelChoice */
/** @typedef {import("../../src/index.ts").KernelRow} KernelRow */
/** @typedef {Pick<typeof import("../../src/index.ts"), "kernelTable" | "cpuWith" | "knownCpus">} Library */

export const docsFile = join(root, "docs", "kernels.md");

/** CPUs of each architecture that have all its features together: every row runs on one of them. */
const architectures = { "x86-64": "sapphire-rapids", arm64: "apple-m4" };

/** @param {readonly string[]} heading @param {readonly (readonly string[])[]} rows */
function markdown(heading, rows) {
  const rule = heading.map(() => "---");
  return [heading, rule, ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

/** Neighbours as ranges. @param {readonly number[]} numbers */
function ranges(numbers) {
  const whole = numbers.length > 1 && numbers.at(-1) - numbers[0] === numbers.length - 1;
  return whole ? `${numbers[0]}–${numbers.at(-1)}` : numbers.join(", ");
}

/** @param {KernelRow["groups"]} groups */
function groupText(groups) {
  return groups?.map(({ m, longest }) => `at most ${longest} from m = ${m}`).join(", ") ?? "";
}

/** Operators that share a kernel may take some of its bits only: the one with the most says them. @param {readonly KernelRow[]} rows */
function rowTable(rows) {
  const fewestFirst = rows.toSorted((a, b) => (a.bits?.length ?? 0) - (b.bits?.length ?? 0));
  const widest = new Map(fewestFirst.map((row) => [row.kernel, row]));
  const unique = [...new Set(rows.map(({ kernel }) => kernel))].map((kernel) => widest.get(kernel));
  const cells = unique.map(({ kernel, needs, layouts, bits, mStep, groups }) => [
    `\`${kernel}\``,
    needs.join(", ") || "nothing",
    layouts?.join(", ") ?? "",
    bits ? ranges(bits) : "",
    String(mStep),
    groupText(groups),
  ]);
  return markdown(["kernel", "needs", "layouts", "bits", "from m", "groups"], cells);
}

/** Linear layers of 4 bits, of each known CPU; CPUs that are served alike share rows. @param {Library} library */
function linearTable({ kernelTable, cpuWith, knownCpus }) {
  /** @type {Map<string, string[]>} */
  const cpus = new Map();
  for (const name of ["scalar", ...Object.keys(knownCpus)]) {
    const choices = kernelTable(cpuWith(name)).choices.filter(
      ({ operator, bits, packed }) => operator === "lowbit::linear_8bit_block_act.out" && bits?.includes(4) && packed,
    );
    if (choices.length === 0) throw new Error(`no kernel serves 4-bit linear layers on ${name}`);
    for (const { layout, groupSizes, serving } of choices) {
      const kernels = serving.map(({ m, kernel }) => `\`${kernel}\`${m > 1 ? ` from m = ${m}` : ""}`).join(", ");
      const key = `${layout} | ${groupSizes?.join(", ")} | ${kernels}`;
      cpus.set(key, [...(cpus.get(key) ?? []), name]);
    }
  }
  return markdown(
    ["CPU", "layout", "groups of", "kernels"],
    [...cpus].map(([key, names]) => [names.join(", "), key]),
  );
}

/** @param {Library} library */
export function renderDocs(library) {
  const { kernelTable, cpuWith } = library;
  const isNative = (/** @type {KernelRow} */ { target }) => target === "native";
  const portable = kernelTable(cpuWith("scalar")).rows;
  const native = Object.entries(architectures).map(([name, cpu]) => {
    return `## Native, ${name}\n\n${rowTable(kernelTable(cpuWith(cpu)).rows.filter(isNative))}`;
  });
  return `# Kernels

A kernel is the code that does one kind of arithmetic of a model on one kind of CPU. lowbit has many, and takes for each
step of a model the first that this CPU can run. This page lists all of them, so that you can look up what serves on yours.
[CPUs](cpus.md) says what that means for you.

\`lowbit kernels\` shows the choice on this machine, and \`lowbit kernels --cpu neoverse-v2\` on another one.
\`lowbit kernels --text KERNEL\` prints what is assembled for a WebAssembly kernel.
What sampling does with all logits of a row has kernels, too, which are not listed: all give the same bits.

## How to read a name

A kernel is one row of a table, and kernels of one operator stand best first. A row is named
\`<operator>_<types>_<m>x<n>x<k>_<target>\`. The types are those of activations and weights: \`a8\` stands for floats that
are quantized to 8 bits as they come, and \`wx\` for weights of 1 to 8 bits. The tile that the kernel works on at once is
m x n x k.

Selection takes the first row that serves a call. A row serves when the call has at least as many rows of activations as
the column "from m" says, when the CPU has the features that the row needs, and when the row serves groups as long as those
of the weights. Where the tables say nothing of groups, any length does.

The AMX row of \`a8\` layers with tiles of 16 rows, and float activations by vectors, read neither minima nor integer
scales inside groups, as [weights of GGUF files](formats.md#gguf) have them: the next row serves those.

## What is rounded

- AMX rows multiply rounded numbers. Of \`a8\` layers, those with tiles of 32 rows round each weight once, to 15 bits and a
  sign of the largest magnitude that a weight of its row could have: they are off by at most 2^-13 of it. The other \`a8\`
  rows sum integers exactly.
- \`amx_bf16\` layers take each float as the sum of up to three bf16, which is all of it.
- Attention on \`amx\` takes prompts, over pages of f16, int8 and int4, as one bf16 each, and its weights are off by
  0.8 % at most. Divergence from attention in floats over pages of f32 is 0.00014 to 0.00022 on a text of 1,000 to 2,000
  tokens (SmolLM2 135M, Qwen2.5-Coder 0.5B, Gemma 3 270M; float activations). Pages of f32 keep floats.
- Attention on AVX-512 with VNNI, AVX-VNNI and AVX2 takes prompts, over pages of f16, int8 and int4, as
  words of 16 bits: queries and keys are rounded to 1/65534 of their lengths, values to 1/4096 of the largest of their
  row at most, and weights to 1/16382 of the largest weighted row of a block of keys. Divergence of pages of f16 from
  attention in floats over pages of f32 is 0.00001 at most on 900 tokens of the same three models. Pages of f32 keep
  floats.
- AQLM's \`i16\` rows round vectors of codebooks and, row by row, 256 values of activations to 1/32639 of the largest, which
  is 1e-4 of a result. Its \`bf16\` rows round both factors to one bf16.
- Rows of \`a8\` activations without a finite range (a NaN, an infinity, more than the largest float) give NaN with all
  kernels.

This page is written by \`npm run rows\`; a test checks that it is up to date.

## 4-bit linear layers with dynamic 8-bit activations

${linearTable(library)}

${native.join("\n\n")}

## Portable

${rowTable(portable)}
`;
}
