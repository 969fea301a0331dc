/**
 * Writes docs/arm-kernels.md: instructions that the Arm kernels execute for 1000 multiply-adds, counted under qemu, and
 * multiply-adds in a cycle by llvm-mca's models, beside other projects' kernels. Installs what is missing.
 *
 *     node scripts/arm/figures.js [part of a case's title]
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../native/sources.js";
import { installZig } from "../release/zig.js";
import { allStretches, cores, cyclesOf, steadyLoop } from "./cycles.js";
import { buildEmulated, countInstructions } from "./emulator.js";
import { peers } from "./peers.js";
import { installPackages } from "./toolchain.js";
import { checkWords } from "./words.js";

const N = 256;
const K = 1024;
const M = 64;
const only = process.argv[2];

const matrix = "linear_a8_wx_16x32x8_neon_i8mm";
const dot = "linear_a8_wx_16x32x4_neon_dotprod";
const row = "linear_a8_wx_1x32x4_neon_dotprod";
const mixedRow = "linear_a8_wx_1x32x4_neon_i8mm";
const fewMatrix = "linear_a8_wx_4x32x8_neon_i8mm";

const groups = [
  ["group 32", 32],
  ["group 128", 128],
  ["per channel", K],
];

/** Cases of some rows for a bit width and all group sizes, under the titles that scripts/arm/peers.js has. */
const sized = (title, bits, m, names) =>
  groups.map(([name, group]) => ({
    title: `${title} ${bits}-bit, ${name}`,
    cases: names.map((kernel) => ({ row: kernel, m, n: N, k: K, bits, group })),
  }));

/** 4-bit weights, then AQLM's 2x8, as large as the layers of models: tables of sums are made once for all outputs. */
const ofTables = ["lut12_c8_1x64x128_neon", "f32_c8_1x64x128_neon_bf16"].map((kernel) => `aqlm_${kernel}`);
const tall = [
  [4096, 4096],
  [14336, 4096],
  [4096, 14336],
].map(([n, k]) => ({
  title: `1 row, n = ${n}, k = ${k}`,
  cases: [row, ...ofTables].map((kernel) => ({ row: kernel, m: 1, n, k, bits: 4, group: 32, inAll: true })),
}));

/** Cases with 8 rows, and with 80, which blocks of 8, 10 and 16 rows divide without a remainder. */
const prompts = [
  [8, [dot, matrix, "aqlm_lut16_c8_3x64x48_neon"]],
  [80, [dot, matrix, "aqlm_lut16_c8_3x64x48_neon", "aqlm_bf16_c8_64x32x8_neon_bf16"]],
].map(([m, names]) => ({
  title: `${m} rows, n = 4096, k = ${K}`,
  cases: names.map((kernel) => ({ row: kernel, m, n: 4096, k: K, bits: 4, group: 32, inAll: true })),
}));

/** The rows that serve m rows of activations, without i8mm and with it. */
const rowsFor = (m, bits) => [row, ...(m >= 4 ? [fewMatrix] : bits % 2 === 1 ? [mixedRow] : [])];

/** Rows that weights are read once for, of sequences that are decoded together and of drafts. */
const few = [1, 2, 3, 4, 5, 6, 7, 8].map((bits) => ({
  title: `${bits}-bit, group 32`,
  cases: [1, 2, 4, 8].flatMap((m) =>
    rowsFor(m, bits).map((name) => ({
      label: `m = ${m}`,
      row: name,
      ...{ m, n: N, k: K, bits, group: 32, inAll: true },
    })),
  ),
}));

const sections = [
  {
    title: "One row of activations",
    tables: [1, 2, 3, 4, 5, 6, 7, 8].flatMap((bits) => sized("1 row,", bits, 1, bits % 2 ? [row, mixedRow] : [row])),
  },
  { title: "A few rows of activations", tables: few },
  { title: "AQLM 2x8 beside 4-bit group 32, one row of activations", tables: tall },
  { title: "AQLM 2x8 beside 4-bit group 32, several rows of activations", tables: prompts },
  { title: "64 rows, i8mm", tables: [2, 4, 8].flatMap((bits) => sized("i8mm,", bits, M, [matrix])) },
  { title: "64 rows, dotprod", tables: [2, 4, 8].flatMap((bits) => sized("dotprod,", bits, M, [dot])) },
];

/** How often the steady loop of a kernel runs: once a group, or once 32 k where groups are longer than 128. */
function turnsOf({ m, n, k, group }) {
  const step = group <= 128 ? group : 32;
  if (m === 1) return (n / 32) * (k / step);
  return (m / 8) * (n / (group < 64 ? 4 : 8)) * (k / step);
}

/** Cores that have the instructions of a row. */
const runsOn = (name, core) => !/i8mm|bf16$/.test(name) || !["A55", "N1"].includes(core);

/** @param {import("./emulator.js").RowCase} item */
function measure(item, llvm) {
  const counts = countInstructions(item);
  const macs = item.m * item.n * item.k;
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const file = join(root, "build", "arm-figures", "loop.s");
  const stretches = item.inAll ? allStretches(counts, llvm) : [steadyLoop(counts, turnsOf(item), llvm)];
  const cycles = (model) =>
    stretches.reduce((sum, { instructions, count }) => sum + count * cyclesOf(instructions, model, llvm, file), 0);
  const perCycle = Object.entries(cores)
    .filter(([core]) => runsOn(item.row, core))
    .map(([core, model]) => [core, macs / cycles(model)]);
  const name = `${item.label ? `${item.label}, ` : ""}**\`${item.row.replace("linear_a8_wx_", "")}\`**`;
  return { name, instructions: (1000 * total) / macs, perCycle: Object.fromEntries(perCycle) };
}

function line({ name, instructions, perCycle }) {
  const cells = Object.keys(cores).map((core) => perCycle[core]?.toFixed(1) ?? "–");
  return `| ${name} | ${instructions.toFixed(1)} | ${cells.join(" | ")} |`;
}

function table({ title, cases }, llvm) {
  const names = Object.keys(cores);
  const head = `| ${title} | instructions | ${names.join(" | ")} |\n|---|${"---|".repeat(names.length + 1)}`;
  const lines = [...cases.map((item) => measure(item, llvm)), ...(peers[title] ?? [])].map(line);
  console.log([head, ...lines, ""].join("\n"));
  return [head, ...lines].join("\n");
}

function documentText(llvm) {
  const text = sections.map(({ title, tables }) => {
    const wanted = tables.filter((each) => !only || each.title.includes(only));
    return `## ${title}\n\n${wanted.map((each) => table(each, llvm)).join("\n\n")}`;
  });
  return `# Arm kernels

This page says how much work lowbit's kernels for Arm CPUs do for each multiplication, beside the kernels of KleidiAI and
TorchAO. No Arm hardware was at hand. Instructions were counted in an emulator, and cycles were computed by models of
the cores, so the figures rank kernels and do not say how many tokens a second a phone or server reaches.

The page is written by \`npm run arm:figures\`. Matrices have n = ${N} outputs where a table says nothing else, k = ${K} inputs,
and scales in f16.

- *instructions* are those executed for 1000 multiply-adds, counted under qemu: everything that a call executes but the
  quantization of activations. TorchAO's are those of its loop.
- The other columns are multiply-adds in a cycle of one core by the models of llvm-mca ${llvm}, for the steady loop and with
  front ends as wide as the cores': no caches, no memory, no wrong branches. A dot product has 16 multiply-adds and a matrix
  product 32 (16 of bf16), so that N1 and N2 end at 32 and 64, V1 and V2 at 64 and 128. The model of the A510 is too fast.
- **Bold** rows are lowbit's. KleidiAI's and TorchAO's kernels were compiled and measured by us with the same shapes and
  models (KleidiAI 495f6524, of August 2026).

One row is limited by the units for vectors: two on N1 and N2, four on V1 and V2. 128 weights take eight dot products and
four masks with 4 bits, eight and six with 2, ten and seven with 3 (six with i8mm), before the scales of groups are
applied. That is at most 21.3, 18.3 and 15.1 multiply-adds in a cycle of N1. So 3 bits in groups of 32 and of 128 end below
KleidiAI's fastest kernels for 4 bits on N1 (12.5 to 12.8, 14.3 to 15.0) and on A55, and above them on cores with i8mm. In
groups of 32, scales and sums add 28 to 136 instructions for 1024 weights: 12.5 is the end of two units. Masks by the units
for integers, through memory, were not tried.

Two to 15 rows share what is loaded and masked: tiles of four rows, of two where a width is odd, keep their sums in registers.
Results have the bits of one row's. With 4 bits in groups of 32, 1024 weights take 64 dot products, 8 subtractions and 8
multiply-adds a row, 32 masks a tile and 16 instructions for scales. That is 120 vector instructions for one row, 208 for
two, 368 for four and 728 for eight: N1 cannot do them in less than 1.7, 3.1 and 6.1 times the time of one row, unless memory
is what one row waits for; by the model they take 1.9, 3.2 and 6.3 times. From four rows on, cores with i8mm take matrix
products of two rows, half as many. From 16 rows on, a panel is unpacked to bytes once for all.

Groups of more than 128, and channels, are summed as integers over up to 1024 inputs before they become floats.

Cores with SME2 multiply prompts and batches of 16 rows and more by outer products, 1024 multiply-adds an instruction with
streaming vectors of 512 bits. llvm-mca has no model of such a unit, and qemu with SME2 takes no plugins here. So the loop
for a tile of 16 rows and 32 outputs was counted in its assembly. For 1000 multiply-adds it is 8.1 instructions with scales
of activations in blocks and groups of 32, of which one is an outer product; with one scale a row 5.7 in groups of 32, 2.8
in groups of 128 and 2.7 per channel. Weights are unpacked by NEON before, once for all rows. What is no outer product runs
slower on a unit than on a core, as far as measurements of an Apple M4 are published. So other threads go on with i8mm beside
those that stream. Single rows stay with NEON: masks, shifts and dot products on streaming vectors would be about 45
instructions for 1000 multiply-adds where NEON has 169, but a core starts up to four of these in a cycle, and several cores
share one unit. Table lookups in streaming mode would be fewer, about 15, and need weights packed in another order.

AQLM's tables count all loops of a call, also those that make tables of sums. These are made once for all outputs, so a
taller layer takes fewer cycles. One row of activations takes more than with 4 bits. What AQLM saves is memory: it reads
less than half. TBL looks up bytes, and 12 bits take one and a half times as long. Tables of 8 bits would take two thirds of
the cycles, but put up to 7e-2 of errors into a small model's logits. Cores with bf16 load single floats faster than that,
and exactly.

Several rows share entries that are vectors of 16-bit sums, one for each row (5e-4 of a layer). From 64 rows on, weights are
decoded once for up to 512 rows and multiplied in bf16 where a core has it (2e-3). Forms without tables are decoded from 5
rows on, as sums of two bf16 (4e-6, three products).

${text.join("\n\n")}
`;
}

/** The newest llvm-mca that is installed, or installs. */
function installLlvm() {
  const isThere = (version) => !spawnSync(`llvm-mca-${version}`, ["--version"]).error;
  const found = [22, 19].find(isThere);
  if (found) return found;
  const version = spawnSync("apt-cache", ["show", "llvm-22"]).status === 0 ? 22 : 19;
  installPackages({ [`llvm-mca-${version}`]: `llvm-${version}` });
  return version;
}

installPackages({ "qemu-aarch64": "qemu-user" });
const llvm = installLlvm();
checkWords(llvm);
await installZig();
await buildEmulated();
const text = documentText(llvm);
if (!only) {
  mkdirSync(join(root, "docs"), { recursive: true });
  writeFileSync(join(root, "docs", "arm-kernels.md"), text);
}
