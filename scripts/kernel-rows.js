/**
 * `npm run rows`: writes what the addons list to src/kernels/native/known-rows.ts, and the tables of docs/kernels.md.
 * Run it when a kernel row was added, changed or removed. The rows of arm64 are read from its addon under emulation;
 * `npm run rows -- --here` reads this machine's addon only.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { emulated, installNode, installPackages } from "./arm/toolchain.js";
import { docsFile, renderDocs } from "./kernel-docs.js";
import { root } from "./native-sources.js";

/** @typedef {import("../src/kernels/native/interface.ts").NativeRow} NativeRow */

const file = join(root, "src", "kernels", "native", "known-rows.ts");

/** @param {string[]} command */
function run([program, ...args], options = {}) {
  return execFileSync(program, args, { cwd: root, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"], ...options });
}

/** @param {string[]} options @param {NodeJS.ProcessEnv} env */
function buildAddon(options = [], env = process.env) {
  run([process.execPath, join(root, "scripts", "build-native.js"), "--strict", ...options], { env });
}

/** @returns {NativeRow[]} */
function rowsHere() {
  buildAddon();
  return createRequire(import.meta.url)(join(root, "build", "lowbit.node")).kernels();
}

/** @returns {NativeRow[]} */
function rowsOfArm() {
  installPackages({ "qemu-aarch64-static": "qemu-user-static", "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu" });
  // CXX, where it is set, is this machine's compiler.
  buildAddon(["--target=linux-arm64"], { ...process.env, CXX: "" });
  const addon = join(root, "build", "lowbit-linux-arm64.node");
  const show = `console.log(JSON.stringify(require(${JSON.stringify(addon)}).kernels()))`;
  return JSON.parse(run(["qemu-aarch64-static", "-cpu", "max", installNode(), "-e", show], { env: emulated }));
}

/** The lines of an architecture as they are in the file. @param {string} architecture */
function linesOf(architecture) {
  const text = existsSync(file) ? readFileSync(file, "utf8") : "";
  return new RegExp(`\\n  ${architecture}: \\[\\n(.*?)\\n  \\],`, "s").exec(text)?.[1] ?? "";
}

/** Rows of operators, not those that measure the machine, quantize or sample. @param {NativeRow[]} rows */
function linesFor(rows) {
  const listed = rows.filter(({ family }) => !/^(measure|quantize|vocabulary)_/.test(family));
  const hex = (/** @type {number} */ value) => `0x${value.toString(16)}`;
  return listed
    .map(({ name, family, layout, bits, needs, mStep, nStep, groups }) => {
      const texts = [name, family, layout].map((text) => JSON.stringify(text));
      const limits = groups ? [`[${groups.map(({ m, longest }) => `[${m}, ${longest}]`).join(", ")}]`] : [];
      return `    [${[...texts, hex(bits), hex(needs), mStep, nStep, ...limits].join(", ")}],`;
    })
    .join("\n");
}

/** @param {Record<string, string>} lines */
function render(lines) {
  const architectures = Object.entries(lines).map(([name, rows]) => `  ${name}: [\n${rows}\n  ],`);
  return `// biome-ignore-all format: one row a line
/** The rows of the addons of all architectures, best first, as native/kernel.h declares them. Written by \`npm run rows\`. */
import type { NativeRow } from "./interface.ts";

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

const lines = { x64: linesOf("x64"), arm64: linesOf("arm64") };
lines[process.arch] = linesFor(rowsHere());
if (process.arch !== "arm64" && !process.argv.includes("--here")) lines.arm64 = linesFor(rowsOfArm());
writeFileSync(file, render(lines));

run([process.execPath, join(root, "node_modules", "typescript", "bin", "tsc"), "-p", "tsconfig.build.json"]);
const { cpuWith } = await import("../dist/index.js");
const { kernelTable, knownCpus } = await import("../dist/tools/index.js");
writeFileSync(docsFile, renderDocs({ kernelTable, cpuWith, knownCpus }));
