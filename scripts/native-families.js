/**
 * `npm run families`: writes what follows from src/kernels/families/. The lists of all families and their cases; for C++,
 * structs of the arguments of native calls, functions that read them and the list of rows; and the fingerprint of what the
 * two sides share. `npm run check` fails for files that are not up to date.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { declaredHeaders } from "./declared-headers.js";
import { contractFingerprint, root } from "./native-sources.js";

/** @typedef {import("../src/kernels/native/families.ts").ArgumentNames} ArgumentNames */
/** @typedef {import("./declared-headers.js").Declared} Declared */

const FOLDER = "src/kernels/families";

/** The addon is not needed to read declarations. @type {import("esbuild").Plugin} */
const withoutAddon = {
  name: "without the addon",
  setup: ({ onResolve }) =>
    onResolve({ filter: /native\/rows\.ts$/ }, () => ({
      path: join(root, "src/bundle/stand-ins/kernels/native/rows.ts"),
    })),
};

/** What a module exports. @param {string} contents @returns {Promise<any>} */
async function exportsOf(contents) {
  const { outputFiles } = await build({
    ...{ bundle: true, format: "esm", write: false, platform: "node", logLevel: "error" },
    stdin: { contents, resolveDir: root, loader: "ts" },
    plugins: [withoutAddon],
  });
  return await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

/** What files are sorted by. @param {{ folder: string, name: string }} file */
const key = ({ folder, name }) => `${folder}/${name.replace(".ts", "")}`;

/** Files that declare a family each, and the names of what they export. */
function declarations() {
  const files = readdirSync(join(root, FOLDER), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .flatMap(({ name: folder }) => readdirSync(join(root, FOLDER, folder)).map((name) => ({ folder, name })))
    .filter(({ name }) => name.endsWith(".ts") && !name.endsWith(".test.ts"));
  return files
    .sort((a, b) => key(a).localeCompare(key(b), "en"))
    .flatMap((file) => {
      const text = readFileSync(join(root, FOLDER, file.folder, file.name), "utf8");
      const declared = /^export const (\w+)\b[^=]* = family\(/m.exec(text);
      return declared ? [{ ...file, export: declared[1] }] : [];
    });
}

/** The list of all families, and that of their cases. @param {ReturnType<typeof declarations>} files */
function lists(files) {
  const path = ({ folder, name }) => `"./${folder}/${name}"`;
  const folders = readdirSync(join(root, FOLDER)).filter((name) => existsSync(join(root, FOLDER, name, "kernels.ts")));
  const listed = folders.map((folder) => ({ folder, name: "kernels.ts", export: null }));
  return [
    [
      `${FOLDER}/index.ts`,
      [
        "/** All families of kernels: lists, best first. Written by `npm run families`. */",
        ...[...listed, ...files]
          .sort((a, b) => key(a).localeCompare(key(b), "en"))
          .map((file) => `export ${file.export ? `{ ${file.export} }` : "*"} from ${path(file)};`),
        "",
      ].join("\n"),
    ],
    [
      `${FOLDER}/cases.ts`,
      [
        "/** The cases of the families that are declared. Written by `npm run families`. */",
        ...files.map((file) => `export { cases as ${file.export} } from ${path(file)};`),
        "",
      ].join("\n"),
    ],
  ];
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
  const files = declarations();
  const imports = files.map(
    (file, i) => `import { ${file.export} as f${i} } from "./${FOLDER}/${file.folder}/${file.name}";`,
  );
  const { argumentNames, aqlmNames, declared } = await exportsOf(
    [
      `export { argumentNames } from "./${families}";`,
      `export { aqlmNames } from "./${aqlm}";`,
      ...imports,
      `export const declared = [${files.map((_, i) => `f${i}`).join(", ")}];`,
    ].join("\n"),
  );
  const namespaces = Object.entries(argumentNames).map(([name, names]) => namespaceOf(snake(name), names));
  const headers = declaredHeaders(files.map(({ folder }, i) => ({ folder, ...describe(declared[i]) })));
  const native = new Map([
    ["native/families.h", header(families, "kernel.h", ["lowbit"], namespaces)],
    ["native/aqlm/arguments.h", header(aqlm, "../kernel.h", ["lowbit", "aqlm"], [namespaceOf("arguments", aqlmNames)])],
    ...headers,
  ]);
  return new Map([
    ...lists(files),
    ...native,
    [
      "src/kernels/native/abi.ts",
      "/** The fingerprint of interface.ts and of the order of arguments, which an addon is built with. Written by `npm run families`. */\n" +
        `export const NATIVE_ABI = "${contractFingerprint([...native.values()])}";\n`,
    ],
  ]);
}

/** @param {any} family @returns {Omit<Declared, "folder">} */
function describe({ family, fields, by }) {
  return { family, fields, by };
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const [file, text] of await generatedFiles()) writeFileSync(join(root, file), text);
