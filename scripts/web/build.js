/**
 * Bundles what browsers cannot load file by file: dist/web/worker-bundle.js, which `lowbit/web` starts as its worker; the
 * page of `lowbit serve` in dist/page; and the page with the worker in build/web: static files for any host. `npm run
 * build` comes before.
 */
import { copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build, NOTICES } from "../licences/licensed-build.js";
import { root } from "../native/sources.js";
import { writeModels } from "./page-models.js";

export const pageFolder = join(root, "build", "web");

// Modules of Node are left out with the unused ones that import them.
const common = {
  ...{ bundle: true, minify: true, format: "esm", target: "es2022", logLevel: "warning" },
  external: ["node:*"],
  // A release may be written outside of this folder.
  nodePaths: [join(root, "node_modules")],
};

/** Options for compiled modules: this package's name leads to compiled modules there, not to sources as in tsconfig.json. */
const ofModules = { ...common, tsconfigRaw: "{}" };

/** Modules that the worker loads late, from where the page says they are: bundles of their own. */
const late = {
  "answers-bundle.js": "text/answer/index.js",
  "constraints-bundle.js": "text/constraints/index.js",
  "gguf-bundle.js": "web/gguf.js",
};

/**
 * Leaves out what only other CPUs than a browser's have, and caches off the graph, as bundles do.
 * @type {import("esbuild").Plugin}
 */
const withoutNative = {
  name: "without-native",
  setup({ onResolve }) {
    onResolve({ filter: /\/(native\/(rows|addon)|known-cpus|operators\/kvcache)\.js$/ }, ({ path, resolveDir }) => {
      const [before, module] = join(resolveDir, path).split(/[\\/](?=(?:kernels|executorch)[\\/])/);
      return module && !before.endsWith("stand-ins") ? { path: join(before, "bundle/stand-ins", module) } : undefined;
    });
  },
};

/**
 * Bundles the worker of a compiled package, and what it loads late, and returns its file.
 * @param {string} dist folder of the package's modules
 */
export async function buildWorker(dist) {
  const worker = join(dist, "web", "worker-bundle.js");
  await build({
    ...ofModules,
    entryPoints: [join(dist, "web", "worker.js")],
    outfile: worker,
    plugins: [withoutNative],
  });
  // Errors say their class to the page by its name.
  for (const [name, entry] of Object.entries(late))
    await build({
      ...ofModules,
      external: ["node:*", "module", "url"],
      keepNames: true,
      entryPoints: [join(dist, entry)],
      outfile: join(dist, "web", name),
      plugins: [withoutNative],
    });
  const text = readFileSync(worker, "utf8");
  // Bundlers that make a program of the worker look for files that it names by its own address.
  const needed = text.match(/(?:from|import)\s*"(node:[^"]+)"|new URL\("([^"]+)",\s*import\.meta\.url/);
  if (needed) throw new Error(`${worker}: pages have no ${needed[1] ?? needed[2]}`);
  return worker;
}

const web = join(root, "web");
const statics = [
  "style.css",
  "messages.css",
  "panels.css",
  "icon.svg",
  "icon-192.png",
  "icon-512.png",
  "manifest.webmanifest",
];

/** Names of the parts that the page imports when they are of use. */
const PART = /-[A-Z0-9]{8}\.js$/;

/** What a visit needs before there is an answer; other parts come when they are first of use. */
const FIRST = ["web/main.ts", "web/start.ts", "web/browser-engine.ts"];

/** Removes the parts of earlier builds. @param {string} folder */
function removeParts(folder) {
  for (const name of readdirSync(folder)) if (PART.test(name)) rmSync(join(folder, name));
}

/**
 * Bundles the page that `lowbit serve` sends into dist/page.
 * @param {string} dist folder of the package's modules
 * @returns {Promise<{ scripts: string[], first: string[] }>} names of its scripts, and of those that a visit begins with
 */
export async function buildServedPage(dist) {
  const folder = join(dist, "page");
  mkdirSync(folder, { recursive: true });
  removeParts(folder);
  const { metafile } = await build({
    ...{ ...common, splitting: true, metafile: true, chunkNames: "[name]-[hash]", absWorkingDir: root },
    entryPoints: [join(web, "main.ts")],
    outdir: folder,
  });
  for (const name of statics) cpSync(join(web, name), join(folder, name));
  const html = readFileSync(join(web, "index.html"), "utf8");
  writeFileSync(join(folder, "index.html"), html.replace('data-engine="browser"', 'data-engine="server"'));
  const { outputs } = metafile;
  const first = new Set(Object.keys(outputs).filter((name) => FIRST.includes(outputs[name].entryPoint)));
  for (const name of first)
    for (const { path, kind } of outputs[name].imports) if (kind === "import-statement") first.add(path);
  const namesOf = (/** @type {Iterable<string>} */ paths) => Array.from(paths, (path) => basename(path));
  return { scripts: namesOf(Object.keys(outputs)), first: namesOf(first) };
}

/** Bundles the worker and the pages; gives the gzipped size of all JavaScript that the page begins with. */
export async function buildWeb() {
  const worker = await buildWorker(join(root, "dist"));
  const { scripts, first } = await buildServedPage(join(root, "dist"));
  mkdirSync(pageFolder, { recursive: true });
  removeParts(pageFolder);
  for (const name of [...scripts, ...statics]) cpSync(join(root, "dist", "page", name), join(pageFolder, name));
  cpSync(join(web, "index.html"), join(pageFolder, "index.html"));
  cpSync(join(root, "dist", "page", NOTICES), join(pageFolder, NOTICES));
  for (const name of readdirSync(dirname(worker)).filter((file) => /-bundle\.js(\.LICENSE\.txt)?$/.test(file)))
    copyFileSync(join(dirname(worker), name), join(pageFolder, name));
  // Constraints are large, and answers of this page have none.
  const late = ["answers-bundle.js", "gguf-bundle.js"];
  // Servers of tools are nothing without a network.
  const offline = scripts.filter((name) => !name.startsWith("mcp-"));
  const kept = ["./", ...offline, "worker-bundle.js", ...late, "models.json", ...statics];
  const serviceWorker = readFileSync(join(web, "service-worker.js"), "utf8");
  writeFileSync(
    join(pageFolder, "service-worker.js"),
    serviceWorker.replace("globalThis.PAGE_FILES", JSON.stringify(kept)),
  );
  await writeModels(pageFolder);
  const all = [...first, "worker-bundle.js", "service-worker.js"];
  return all.reduce((sum, name) => sum + gzipSync(readFileSync(join(pageFolder, name))).length, 0);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const bytes = await buildWeb();
  console.log(`built the worker and the pages: ${(bytes / 1e3).toFixed(1)} kB of JavaScript at the start, gzipped`);
}
