/**
 * Bundles what browsers cannot load file by file: dist/web/worker-bundle.js, which `lowbit/web` starts as its worker, and
 * the page with it in build/web: static files for any host. `npm run build` comes before.
 */
import { copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "./licensed-build.js";
import { root } from "./native-sources.js";

export const pageFolder = join(root, "build", "web");

// Modules of Node are left out with the unused ones that import them.
const common = {
  ...{ bundle: true, minify: true, format: "esm", target: "es2022", logLevel: "warning" },
  external: ["node:*"],
  // A release may be written outside of this folder.
  nodePaths: [join(root, "node_modules")],
};

/** Modules that the worker loads late, from where the page says they are: bundles of their own. */
const late = { "answers-bundle.js": "text/answer/index.js", "constraints-bundle.js": "text/constraints/index.js" };

/** Puts the worker's way to load modules late in the place of Node's. @type {import("esbuild").Plugin} */
const lateModules = {
  name: "late-modules",
  setup({ onResolve, resolve }) {
    onResolve({ filter: /\/lazy-modules\.js$/ }, ({ path, pluginData, ...rest }) => {
      if (pluginData === "resolved") return undefined;
      const name = path.replace(/^\.\/lazy-modules/, "../web/lazy-modules");
      return resolve(name, { ...rest, pluginData: "resolved" });
    });
  },
};

/**
 * Bundles the worker of a compiled package, and what it loads late, and returns its file.
 * @param {string} dist folder of the package's modules
 */
export async function buildWorker(dist) {
  const worker = join(dist, "web", "worker-bundle.js");
  await build({ ...common, entryPoints: [join(dist, "web", "worker.js")], outfile: worker, plugins: [lateModules] });
  // Errors say their class to the page by its name.
  for (const [name, entry] of Object.entries(late))
    await build({
      ...common,
      external: ["node:*", "module", "url"],
      keepNames: true,
      entryPoints: [join(dist, entry)],
      outfile: join(dist, "web", name),
    });
  const text = readFileSync(worker, "utf8");
  // Bundlers that make a program of the worker look for files that it names by its own address.
  const needed = text.match(/(?:from|import)\s*"(node:[^"]+)"|new URL\("([^"]+)",\s*import\.meta\.url/);
  if (needed) throw new Error(`${worker}: pages have no ${needed[1] ?? needed[2]}`);
  return worker;
}

/** Bundles the worker and the page; gives the gzipped size of all JavaScript that the page begins with. */
export async function buildWeb() {
  const worker = await buildWorker(join(root, "dist"));
  const page = join(pageFolder, "main.js");
  mkdirSync(pageFolder, { recursive: true });
  await build({ ...common, entryPoints: [join(root, "web", "main.ts")], outfile: page });
  const files = ["index.html", "style.css", "icon.svg", "icon-192.png", "icon-512.png"];
  for (const name of [...files, "manifest.webmanifest", "service-worker.js"])
    cpSync(join(root, "web", name), join(pageFolder, name));
  for (const name of readdirSync(dirname(worker)).filter((file) => /-bundle\.js(\.LICENSE\.txt)?$/.test(file)))
    copyFileSync(join(dirname(worker), name), join(pageFolder, name));
  const scripts = [page, worker, join(pageFolder, "service-worker.js")];
  return scripts.reduce((sum, file) => sum + gzipSync(readFileSync(file)).length, 0);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const bytes = await buildWeb();
  console.log(`built dist/web/worker-bundle.js and build/web: ${(bytes / 1e3).toFixed(1)} kB of JavaScript, gzipped`);
}
