/**
 * `npm run rows`: writes the kernels that the addons list to src/kernels/native/known-rows.ts, those of the libraries beside
 * them to the known-rows.ts of their packages, and the tables of docs/kernels.md. Run it when a native kernel was added,
 * changed or removed. The kernels of arm64 are read from its addon under emulation; `npm run rows -- --here` reads this
 * machine's addon only.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { emulated, installNode, installPackages } from "../arm/toolchain.js";
import { docsFile, renderDocs } from "../docs/kernels.js";
import { libraries, libraryBeside, root } from "./sources.js";

/** @typedef {import("../../src/kernels/native/interface.ts").NativeRow} NativeRow */

/** The files of rows, of the addon and of libraries by name, and where they import from. */
const files = [
  { name: "", path: join("src", "kernels", "native", "known-rows.ts"), from: "./interface.ts", of: "addons" },
  ...libraries.map((name) => ({
    ...{ name, path: join("packages", name, "src", "known-rows.ts"), from: "lowbit/extension", of: "libraries" },
  })),
];

/** Prints the rows of an addon and, behind them, those that each library adds: a list of lists. @param {string} addon */
const showRows = (addon) => `
  const addon = require(${JSON.stringify(addon)});
  const counts = [0, addon.kernels().length];
  for (const library of ${JSON.stringify(libraries.map((name) => libraryBeside(addon, name)))}) {
    const problem = addon.loadKernels(library);
    if (problem) throw new Error(problem);
    counts.push(addon.kernels().length);
  }
  console.log(JSON.stringify(counts.slice(1).map((end, i) => addon.kernels().slice(counts[i], end))));`;

/** @param {string[]} command */
function run([program, ...args], options = {}) {
  return execFileSync(program, args, { cwd: root, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"], ...options });
}

/** @param {string[]} options @param {NodeJS.ProcessEnv} env */
function buildAddon(options = [], env = process.env) {
  run([process.execPath, join(root, "scripts", "native", "build.js"), "--strict", ...options], { env });
}

/** @returns {NativeRow[][]} */
function rowsHere() {
  buildAddon();
  return JSON.parse(run([process.execPath, "-e", showRows(join(root, "build", "lowbit.node"))]));
}

/** @returns {NativeRow[][]} */
function rowsOfArm() {
  installPackages({ "qemu-aarch64-static": "qemu-user-static", "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu" });
  // CXX, where it is set, is this machine's compiler.
  buildAddon(["--target=linux-arm64"], { ...process.env, CXX: "" });
  const addon = join(root, "build", "lowbit-linux-arm64.node");
  const command = ["qemu-aarch64-static", "-cpu", "max", installNode(), "-e", showRows(addon)];
  return JSON.parse(run(command, { env: emulated }));
}

/** The lines of an architecture as they are in a file. @param {string} path @param {string} architecture */
function linesOf(path, architecture) {
  const text = existsSync(path) ? readFileSync(path, "utf8") : "";
  return new RegExp(`\\n  ${architecture}: \\[\\n(.*?)\\n  \\],`, "s").exec(text)?.[1] ?? "";
}

/** Rows of operators, not those that measure the machine, quantize or sample. @param {NativeRow[]} rows */
function linesFor(rows) {
  const listed = rows.filter(({ family }) => !/^(gptq|measure|quantize|vocabulary)_/.test(family));
  const hex = (/** @type {number} */ value) => `0x${value.toString(16)}`;
  return listed
    .map(({ name, family, layout, bits, needs, mStep, nStep, groups }) => {
      const texts = [name, family, layout].map((text) => JSON.stringify(text));
      const limits = groups ? [`[${groups.map(({ m, longest }) => `[${m}, ${longest}]`).join(", ")}]`] : [];
      return `    [${[...texts, hex(bits), hex(needs), mStep, nStep, ...limits].join(", ")}],`;
    })
    .join("\n");
}

/** @param {Record<string, string>} lines @param {{ from: string, of: string }} file */
function render(lines, { from, of }) {
  const architectures = Object.entries(lines).map(([name, rows]) => `  ${name}: [\n${rows}\n  ],`);
  return `// biome-ignore-all format: one row a line
/** The rows of the ${of} of all architectures, best first, as native/kernel.h declares them. Written by \`npm run rows\`. */
import type { NativeRow } from "${from}";

/** name, family, layout, bits, needs, mStep, nStep and, for kernels with limits of groups, those: m, longest */
type Fields = readonly [string, string, string | null, number, number, number, number, (readonly [number, number][])?];

const fields: Readonly<Record<string, readonly Fields[]>> = {
${architectures.join("\n")}
};

/** Rows by architecture, as process.arch names it. */
export const knownRows: Readonly<Record<string, readonly NativeRow[]>> = Object.fromEntries(
  Object.entries(fields).map(([architecture, rows]) => [
    architecture,
    rows.map(([name, family, layout, bits, needs, mStep, nStep, limits]) => {
      const groups = limits?.map(([m, longest]) => ({ m, longest })) ?? null;
      return { name, family, layout, bits, needs, mStep, nStep, groups };
    }),
  ]),
);
`;
}

const rows = { [process.arch]: rowsHere() };
if (process.arch !== "arm64" && !process.argv.includes("--here")) rows.arm64 = rowsOfArm();
for (const [i, file] of files.entries()) {
  const path = join(root, file.path);
  const lines = ["x64", "arm64"].map((name) => [name, rows[name] ? linesFor(rows[name][i]) : linesOf(path, name)]);
  writeFileSync(path, render(Object.fromEntries(lines), file));
}

for (const project of ["tsconfig.build.json", ...libraries.map((name) => `packages/${name}/tsconfig.build.json`)])
  run([process.execPath, join(root, "node_modules", "typescript", "bin", "tsc"), "-p", project]);
const { cpuWith } = await import("../../dist/index.js");
const { kernelTable, knownCpus } = await import("../../dist/tools/index.js");
writeFileSync(docsFile, renderDocs({ kernelTable, cpuWith, knownCpus }));
