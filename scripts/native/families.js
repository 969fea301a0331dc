/**
 * `npm run families`: generates files from src/kernels/families/: the lists of all families and their cases; for C++, structs
 * of the arguments of native calls, functions that read them and the list of kernels; and the fingerprint of the interface
 * between TypeScript and C++. `npm run check` fails for files that are not up to date.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { argumentsHeader, declaredHeaders } from "./declared-headers.js";
import { contractFingerprint, root } from "./sources.js";

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

/** Exports of a module. @param {string} contents @returns {Promise<any>} */
async function exportsOf(contents) {
  const { outputFiles } = await build({
    ...{ bundle: true, format: "esm", write: false, platform: "node", logLevel: "error" },
    stdin: { contents, resolveDir: root, loader: "ts" },
    plugins: [withoutAddon],
  });
  return await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

/** Sort key of a file. @param {{ folder: string, name: string }} file */
const key = ({ folder, name }) => `${folder}/${name.replace(".ts", "")}`;

/** What the modules of families' folders have that fits an expression. @param {RegExp} expression */
function found(expression) {
  const files = readdirSync(join(root, FOLDER), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .flatMap(({ name: folder }) => readdirSync(join(root, FOLDER, folder)).map((name) => ({ folder, name })))
    .filter(({ name }) => name.endsWith(".ts") && !name.endsWith(".test.ts"));
  return files
    .sort((a, b) => key(a).localeCompare(key(b), "en"))
    .flatMap((file) => {
      const text = readFileSync(join(root, FOLDER, file.folder, file.name), "utf8");
      return [...text.matchAll(expression)].map((match) => ({ ...file, match }));
    });
}

/** Files that declare families, and the names of these and of what they are declared by. */
function declarations() {
  return found(/^export const (\w+)\b[^=]* = (family|nativeFamily|plainFamily)\(/gm).map(
    ({ match: [, name, kind], ...file }) => ({ ...file, export: name, kind }),
  );
}

/** The list of all families, and that of their cases. @param {ReturnType<typeof declarations>} files */
function lists(files) {
  const path = ({ folder, name }) => `"./${folder}/${name}"`;
  const others = files.filter(({ kind }) => kind !== "nativeFamily");
  const cases = found(/^export const (\w+) = casesOf\((\w+),/gm).map(({ match: [, name, family], ...file }) => ({
    ...file,
    export: `${name} as ${family}`,
  }));
  /** @param {{ folder: string, name: string, export: string }[]} exported */
  const byModule = (exported) =>
    [...new Set(exported.map(path))].map((module) =>
      exportLine(exported.flatMap((file) => (path(file) === module ? [file.export] : [])).sort(), module),
    );
  return [
    [
      `${FOLDER}/index.ts`,
      [
        "/** All families of kernels: lists, best first. Written by `npm run families`. */",
        ...byModule(others),
        "",
      ].join("\n"),
    ],
    [
      `${FOLDER}/cases.ts`,
      ["/** The cases of the families that have some. Written by `npm run families`. */", ...byModule(cases), ""].join(
        "\n",
      ),
    ],
  ];
}

/** As it is formatted. Those of the sampler, which no operator calls, are listed for tests and tables. @param {string[]} exported @param {string} module */
function exportLine(exported, module) {
  const names = module.includes("/sampling/") ? exported.map((name) => `/** @public */ ${name}`) : exported;
  const line = `export { ${names.join(", ")} } from ${module};`;
  return line.length <= 120 ? line : `export {\n${names.map((name) => `  ${name},\n`).join("")}} from ${module};`;
}

/** The files as they should be, by their names. @returns {Promise<Map<string, string>>} */
export async function generatedFiles() {
  const all = declarations();
  const files = all.filter(({ kind }) => kind !== "plainFamily");
  const aqlm = "packages/aqlm/src/arguments.ts";
  const imports = files.map(
    (file, i) => `import { ${file.export} as f${i} } from "./${FOLDER}/${file.folder}/${file.name}";`,
  );
  const { plainFields, sizeNames, aqlmFields, declared } = await exportsOf(
    [
      'export { plainFields, sizeNames } from "./src/kernels/declaration.ts";',
      `export { aqlmFields } from "./${aqlm}";`,
      ...imports,
      `export const declared = [${files.map((_, i) => `f${i}`).join(", ")}];`,
    ].join("\n"),
  );
  /** @param {string} folder @param {any} family @returns {Declared} */
  const describe = (folder, { family, args = family, fields, by }) => {
    const plain = plainFields(fields);
    return { folder, family, args, fields: plain, sizes: sizeNames(plain), by };
  };
  const headers = new Map([
    ...declaredHeaders(files.map((file, i) => describe(file.folder, declared[i]))),
    [
      "packages/aqlm/native/arguments.h",
      argumentsHeader(
        aqlm,
        "call_arguments.h",
        ["lowbit", "aqlm"],
        [describe("aqlm", { family: "aqlm", fields: aqlmFields })],
      ),
    ],
  ]);
  return new Map([
    ...lists(all),
    ...headers,
    [
      "src/kernels/native/abi.ts",
      "/** The fingerprint of interface.ts and of the order of arguments, which an addon is built with. Written by `npm run families`. */\n" +
        `export const NATIVE_ABI = "${contractFingerprint([...headers.values()])}";\n`,
    ],
  ]);
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const [file, text] of await generatedFiles()) {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), text);
  }
