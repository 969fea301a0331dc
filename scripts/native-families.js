/**
 * `npm run families`: writes the names that TypeScript gives to the arguments of native calls to C++ headers, and the
 * fingerprint of what the two sides share to src/kernels/native/abi.ts. `npm run check` fails for files that are not up to
 * date.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import { contractFingerprint, root } from "./native-sources.js";

/** @typedef {import("../src/kernels/native/families.ts").ArgumentNames} ArgumentNames */

/** What a source file exports. @param {string} file */
async function exportsOf(file) {
  const { outputFiles } = buildSync({ entryPoints: [join(root, file)], bundle: true, format: "esm", write: false });
  return await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

const snake = (/** @type {string} */ name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const constant = (/** @type {string} */ name) => `k${name[0].toUpperCase()}${name.slice(1)}`;

/** Constants of a line, with whose names it is no longer than clang-format allows. */
const PER_LINE = 3;

/** Lines of constants of a type, numbered from 0. @param {string} type @param {readonly string[]} names */
function places(type, names) {
  const places = names.map((name, i) => `${constant(name)}{${i}}`);
  const lines = places.flatMap((_, i) => (i % PER_LINE === 0 ? [places.slice(i, i + PER_LINE).join(", ")] : []));
  return lines.map((line) => `constexpr ${type} ${line};`);
}

/** The namespace of a call's arguments. @param {string} namespace @param {ArgumentNames} names */
function namespaceOf(namespace, { scalars, buffers }) {
  const all = [...scalars, ...buffers, "scratch", "scalars", "buffers"];
  const twice = all.find((name, i) => all.indexOf(name) !== i);
  if (twice) throw new Error(`${namespace}: two arguments are called ${twice}`);
  return [
    `namespace ${namespace} {`,
    ...places("ScalarIndex", scalars),
    ...places("BufferIndex", [...buffers, "scratch"]),
    `constexpr uint32_t kScalars = ${scalars.length}, kBuffers = ${buffers.length};`,
    `}  // namespace ${namespace}`,
  ];
}

/** A header of namespaces within `outer`. @param {string} source @param {string} include @param {string[][]} namespaces */
function header(source, include, outer, namespaces) {
  return [
    `// Where the arguments of native calls are. Written by \`npm run families\` from ${source}.`,
    "#pragma once",
    "",
    `#include "${include}"`,
    "",
    ...outer.map((name) => `namespace ${name} {`),
    "",
    ...namespaces.flatMap((lines) => [...lines, ""]),
    ...outer.toReversed().map((name) => `}  // namespace ${name}`),
    "",
  ].join("\n");
}

/** The files as they should be, by their names. @returns {Promise<Map<string, string>>} */
export async function generatedFiles() {
  const families = "src/kernels/native/families.ts";
  const aqlm = "src/aqlm/arguments.ts";
  const { argumentNames } = await exportsOf(families);
  const { aqlmNames } = await exportsOf(aqlm);
  const namespaces = Object.entries(argumentNames).map(([name, names]) => namespaceOf(snake(name), names));
  return new Map([
    ["native/families.h", header(families, "kernel.h", ["lowbit"], namespaces)],
    ["native/aqlm/arguments.h", header(aqlm, "../kernel.h", ["lowbit", "aqlm"], [namespaceOf("arguments", aqlmNames)])],
    [
      "src/kernels/native/abi.ts",
      "/** The fingerprint of interface.ts and families.ts, which an addon is built with. Written by `npm run families`. */\n" +
        `export const NATIVE_ABI = "${contractFingerprint()}";\n`,
    ],
  ]);
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const [file, text] of await generatedFiles()) writeFileSync(join(root, file), text);
