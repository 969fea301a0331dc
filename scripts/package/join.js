/**
 * Joins the compiled package for Node: dist/node/ has an entry for each name of package.json's exports, with shared chunks.
 * Node reads some 600 modules in three times the time of these few files. dist/cli/command-line.cjs is the command line with
 * the packages that it needs, a script that dist/cli/main.js runs with compiled code that it keeps. Bundlers of pages and
 * `bundleProgram` take the single modules of dist/, which stay. `npm run build` runs it after the compiler.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { build as buildLicensed } from "../licences/licensed-build.js";
import { root } from "../native/sources.js";

const {
  exports,
  name: packageName,
  dependencies,
  peerDependencies,
} = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

/** @param {string} path */
const slashes = (path) => path.split(sep).join("/");

/** The source of a compiled module. @param {string} module its path in dist/, without extension */
function sourceOf(module) {
  const inPackage = module.startsWith("aqlm/");
  return join(root, inPackage ? "packages/aqlm/src" : "src", `${inPackage ? module.slice(5) : module}.ts`);
}

/** Modules by the names that others import them by. @type {Map<string, string>} */
const modules = new Map();
/** Sources by the joined files that package.json names, paths in dist/ without extension. @type {Record<string, string>} */
const entries = {};
for (const [path, targets] of Object.entries(exports)) {
  if (typeof targets === "string") continue;
  const module = targets.default.slice("./dist/".length, -".js".length);
  modules.set(packageName + path.slice(1), module);
  if (targets.node) entries[targets.node.slice("./dist/".length, -".js".length)] = sourceOf(module);
}

/** Joined modules keep their addresses, by which they find files of the package. @type {import("esbuild").Plugin} */
const ownAddresses = {
  name: "own-addresses",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]src[\\/].*\.ts$/ }, ({ path }) => {
      const text = readFileSync(path, "utf8");
      if (!text.includes("import.meta.url")) return undefined;
      const compiled = slashes(relative(join(root, "src"), path)).replace(/\.ts$/, ".js");
      // Not `new URL`, of which bundlers of applications would make a file; bundles in CommonJS have no such URL.
      const own = `import.meta.url?.replace(/[^/]*$/, "../${compiled}")`;
      return { contents: text.replaceAll("import.meta.url", `(${own})`), loader: "ts" };
    });
  },
};

/** Modules of Node that few commands use, and that take milliseconds to load. */
const late = ["child_process", "readline", "readline/promises", "worker_threads", "zlib"];

/** Loads these when one of their names is first used. @type {import("esbuild").Plugin} */
const lateModules = {
  name: "late-modules",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: new RegExp(`^node:(${late.join("|")})$`) }, ({ path, namespace }) =>
      namespace === "late" ? { path, external: true } : { path, namespace: "late" },
    );
    onLoad({ filter: /./, namespace: "late" }, async ({ path }) => {
      const names = Object.keys(await import(path)).filter((name) => name !== "default");
      const getters = names.map((name) => `get ${name}() { return require("${path}").${name}; }`);
      return { contents: `module.exports = { ${getters.join(", ")} };` };
    });
  },
};

/** @param {string} folder @returns {string[]} */
const scriptsIn = (folder) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => /^(?!node|page)/.test(name) && name.endsWith(".js"))
    .map((name) => join(folder, name));

/** Lets single modules import each other by path: by name, Node would load the joined ones beside them. @param {string} dist */
function importByPath(dist) {
  for (const file of scriptsIn(dist)) {
    const text = readFileSync(file, "utf8");
    const changed = text.replace(/^((?:import|export)\b[^;"]*?)"(lowbit[\w/-]*)";$/gm, (whole, before, name) => {
      const module = modules.get(name);
      if (module === undefined) return whole;
      const path = slashes(relative(dirname(file), join(dist, `${module}.js`)));
      return `${before}"${path.startsWith(".") ? path : `./${path}`}";`;
    });
    if (changed !== text) writeFileSync(file, changed);
  }
}

/** Packages that every command needs; those of the server are loaded when there is one. */
const joined = ["cli-progress", "commander", "flatbuffers", "fzstd"];

/** @type {import("esbuild").BuildOptions} */
const common = { bundle: true, platform: "node", target: "node20", logLevel: "warning", absWorkingDir: root };

/** @param {string} dist folder of the compiled modules */
export async function joinPackage(dist) {
  for (const folder of ["node", "cli"]) rmSync(join(dist, folder), { recursive: true, force: true });
  importByPath(dist);
  await build({
    ...{ ...common, format: "esm", splitting: true, packages: "external", sourcemap: true, sourcesContent: false },
    ...{ entryPoints: entries, outdir: dist, chunkNames: "node/[name]-[hash]", plugins: [ownAddresses] },
  });
  const main = join(dist, "cli", "main.js");
  await build({ ...common, format: "esm", entryPoints: [sourceOf("cli/main")], outfile: main });
  await joinCommandLine(join(dist, "cli", "command-line.cjs"));
}

/** Joins the command line to a script whose value is a function, with a first line by which compiled code is kept. @param {string} file */
async function joinCommandLine(file) {
  await buildLicensed({
    ...{
      ...common,
      format: "cjs",
      entryPoints: [sourceOf("cli/command-line")],
      outfile: file,
      plugins: [ownAddresses, lateModules],
    },
    ...{ minifyWhitespace: true, minifySyntax: true, define: { "import.meta.url": "address" } },
    ...{ external: Object.keys({ ...dependencies, ...peerDependencies }).filter((name) => !joined.includes(name)) },
    banner: { js: '(function (require, address) {"use strict";const module={};' },
    footer: { js: "return module.exports})" },
  });
  const text = readFileSync(file, "utf8");
  const content = createHash("sha256").update(text).digest("hex").slice(0, 16);
  writeFileSync(file, `//${content}\n${text}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await joinPackage(join(root, "dist"));
