/**
 * Checks what ARCHITECTURE.md promises: imports follow its table; folders with "Nothing of Node" import none of Node's modules,
 * not even indirectly; C++ of packages includes only what it may; no files import each other in a ring; files are small; names
 * say something; files written by `npm run families` and `worker-texts` are up to date; no machine is mentioned.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { isBuiltin } from "node:module";
import { dirname, join, normalize } from "node:path";
import { generatedFiles } from "../native/families.js";
import { workerTexts } from "../web/worker-texts.js";

const LINES_MAX = 500;
const problems = [];

/** @param {string} folder @returns {string[]} */
function filesUnder(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    if (name === "node_modules" || name === "build" || name === "dist") return [];
    return statSync(path).isDirectory() ? filesUnder(path) : [path];
  });
}

const table = [...readFileSync("ARCHITECTURE.md", "utf8").matchAll(/^\| `([\w/-]+)` \|(.*)\| ([^|]*) \|$/gm)];
const mayImport = new Map(table.map(([, room, , list]) => [room, new Set(list.match(/[\w/-]+/g) ?? [])]));
const withoutNode = new Set(
  table.filter(([, , purpose]) => purpose.includes("Nothing of Node.")).map(([, room]) => room),
);
if (mayImport.size < 5) problems.push("ARCHITECTURE.md: the table of rooms was not found");

/** The innermost folder of a file that is a room, else the outermost. @param {string} path */
function roomOf(path) {
  const folders = path.split("/").slice(1, -1);
  if (folders.length === 0) return path === "src/index.ts" ? "index" : "vocabulary";
  const paths = folders.map((_, i) => folders.slice(0, i + 1).join("/"));
  return paths.findLast((folder) => mayImport.has(folder)) ?? folders[0];
}

/** Files of modules that are imported by this package's name. @type {Record<string, string[]>} */
const ownPaths = JSON.parse(readFileSync("tsconfig.json", "utf8")).compilerOptions.paths;

/**
 * Value and type imports of a source file: paths of files, names of packages.
 * @param {string} file @returns {{ target: string, isFile: boolean, typeOnly: boolean }[]}
 */
function importsOf(file) {
  const text = readFileSync(file, "utf8");
  const found = text.matchAll(
    /(?:^|\n)\s*(?:import|export)( type)?\b[^;"]*?from "([^"]+)"|(typeof )?import\("([^"]+)"\)|(?:^|\n)import "([^"]+)"/g,
  );
  return [...found].map(([, type, from, typeOf, called, bare]) => {
    const name = from ?? called ?? bare;
    const ownName = ownPaths[name]?.[0];
    const isFile = name.startsWith(".") || ownName !== undefined;
    const target = isFile ? normalize(ownName ?? join(dirname(file), name)) : name;
    return { target, isFile, typeOnly: (type ?? typeOf) !== undefined };
  });
}

const sources = filesUnder("src").filter((file) => file.endsWith(".ts"));
/** Files that a file imports: all, types among them, and those of values alone. */
const graph = new Map();
const valueGraph = new Map();
/** Names of Node's modules that a file imports. */
const nodeModules = new Map();
/** Adds a file to the graphs. @param {string} file @param {ReturnType<typeof importsOf>} found */
function addToGraphs(file, found) {
  const values = found.filter(({ typeOnly }) => !typeOnly);
  const filesOf = (/** @type {typeof found} */ imports) =>
    imports.filter(({ isFile }) => isFile).map(({ target }) => target);
  graph.set(file, filesOf(found));
  valueGraph.set(file, filesOf(values));
  nodeModules.set(
    file,
    values.filter(({ target }) => isBuiltin(target)).map(({ target }) => target),
  );
}

for (const file of sources) {
  const room = roomOf(file);
  if (room !== "vocabulary" && !mayImport.has(room)) problems.push(`${file}: room "${room}" is not in ARCHITECTURE.md`);
  const isTest = file.endsWith(".test.ts");
  const found = importsOf(file);
  if (!isTest) addToGraphs(file, found);
  for (const { target, isFile } of found) {
    // Packages beside the core are imported by name, as those of others.
    if (!isFile || target.startsWith("packages/")) continue;
    const other = roomOf(target);
    const vocabulary = other === "vocabulary" && room !== "index" && room !== "cli";
    const allowed = other === room || vocabulary || mayImport.get(room)?.has(other);
    if (!allowed && !(room === "index" && other === "vocabulary") && !isTest)
      problems.push(`${file}: "${room}" may not import "${other}" (${target})`);
  }
}

/** What packages beside the core import: their own files, and what lowbit offers to everyone, by its name. */
const offered = ["lowbit/extension", "lowbit/extension/checkpoint", "lowbit/wasm"];
for (const file of filesUnder("packages").filter((path) => /\/src\/.*\.ts$/.test(path) && !path.endsWith(".test.ts"))) {
  const found = importsOf(file);
  addToGraphs(file, found);
  const folder = file.split("/").slice(0, 3).join("/");
  const entries = offered.map((name) => normalize(ownPaths[name][0]));
  for (const { target, isFile } of found)
    if (isFile ? !target.startsWith(`${folder}/`) && !entries.includes(target) : !isBuiltin(target))
      problems.push(`${file}: may import its own files and ${offered.join(", ")}, not ${target}`);
}

/** What C++ of packages takes from native/: the contract that lowbit ships, and helpers by name. */
const offeredIncludes = new Set([
  "native/call_arguments.h",
  "native/executorch/packed_weights.h",
  "native/kernel.h",
  "native/half.h",
  "native/generic/floats.h",
  "native/families/linear/float_panels.h",
  "native/x86/floats_avx2.h",
  "native/x86/floats_avx512.h",
  "native/x86/split_bf16.h",
  "native/x86/tiles_amx.h",
]);
for (const file of filesUnder("packages").filter((path) => /\.(cc|h)$/.test(path)))
  for (const [, path] of readFileSync(file, "utf8").matchAll(/^\s*#\s*include\s+"([^"]+)"/gm)) {
    const own = normalize(join(dirname(file), path));
    const isOwn = own.startsWith(file.split("/").slice(0, 3).join("/")) && statSync(own, { throwIfNoEntry: false });
    if (!isOwn && !offeredIncludes.has(`native/${path}`))
      problems.push(`${file}: may include its package's files and ${[...offeredIncludes].join(", ")}, not ${path}`);
  }

/** Import rings, those through types among them: a depth-first walk that meets a file on its own path. @param {string} file @param {string[]} path */
function walk(file, path, done) {
  if (path.includes(file)) problems.push(`import ring: ${[...path.slice(path.indexOf(file)), file].join(" → ")}`);
  if (done.has(file) || path.includes(file)) return;
  for (const next of graph.get(file) ?? []) walk(next, [...path, file], done);
  done.add(file);
}
const done = new Set();
for (const file of graph.keys()) walk(file, [], done);

/** How Node's modules are reached from a file: depth first, each file once. @param {string} file @param {string[]} path @param {Set<string>} met */
function findNode(file, path, met) {
  if (met.has(file)) return;
  met.add(file);
  for (const name of nodeModules.get(file) ?? [])
    problems.push(`${path[0] ?? file}: its room has nothing of Node, but imports ${[...path, file, name].join(" → ")}`);
  for (const next of valueGraph.get(file) ?? []) findNode(next, [...path, file], met);
}
const met = new Set();
for (const file of graph.keys()) if (withoutNode.has(roomOf(file))) findNode(file, [], met);

const roots = ["src", "packages", "test", "scripts", "bench", "examples", "native", "web"].filter((folder) =>
  statSync(folder, { throwIfNoEntry: false }),
);
for (const file of roots.flatMap(filesUnder)) {
  if (!/\.(ts|js|py|c|cc|cpp|h|hpp|mjs|html|css|inc)$/.test(file)) continue;
  const text = readFileSync(file, "utf8");
  const lines = text.split("\n").length;
  if (lines > LINES_MAX && !file.endsWith(".test.ts")) problems.push(`${file}: ${lines} lines, at most ${LINES_MAX}`);
  if (/(^|\/)(utils?|helpers?|common|misc|core)(\.|\/)/.test(file)) problems.push(`${file}: the name says nothing`);
  if (/\/(work|farm)\/|\/tmp\/bash_jobs|registry\.npmjs/.test(text) && file !== "scripts/check/structure.js")
    problems.push(`${file}: names a machine path or a package registry`);
  if (/^\s*throw new Error\(/m.test(text) && file.startsWith("src/") && !file.endsWith(".test.ts"))
    problems.push(`${file}: throws a bare Error; use a class of src/errors.ts`);
  if (/\bnew Function\(/.test(text) && file.startsWith("src/") && !file.endsWith(".test.ts"))
    problems.push(`${file}: makes a function of text, which pages with a content security policy refuse`);
}

/**
 * Names that scripts and benchmarks import from each other and, as built, from src/ must be there: no compiler looks at them.
 */
for (const file of ["bench", "scripts"].flatMap(filesUnder).filter((path) => path.endsWith(".js")))
  for (const [, names, path] of readFileSync(file, "utf8").matchAll(/^import \{([^}]*)\} from "(\.[^"]*\.js)";$/gm)) {
    const target = normalize(join(dirname(file), path))
      .replace(/^dist\/aqlm\/(.*)\.js$/, "packages/aqlm/src/$1.ts")
      .replace(/^dist\/(.*)\.js$/, "src/$1.ts");
    const source = readFileSync(target, "utf8");
    for (const name of names.split(",").flatMap((part) => part.match(/[\w$]+/)?.[0] ?? []))
      if (!new RegExp(`^export [^;]*?\\b${name.replace("$", "\\$")}\\b`, "m").test(source))
        problems.push(`${file}: imports ${name}, which ${target} does not export`);
  }

const generated = { families: await generatedFiles(), "worker-texts": workerTexts() };
for (const [script, files] of Object.entries(generated))
  for (const [file, text] of files)
    if (readFileSync(file, "utf8").replaceAll("\r\n", "\n") !== text)
      problems.push(`${file}: is not what the sources say; run npm run ${script}`);

for (const problem of problems) console.error(problem);
console.log(`structure: ${sources.length} files of src checked, ${problems.length} problems`);
process.exit(problems.length > 0 ? 1 : 0);
