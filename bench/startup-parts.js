/** Where the processor time of a start goes: medians of V8's profiles, by the outermost function of a list that was running. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { median } from "./report.js";

/** Parts by names of functions in dist/cli; the last that is met on the way to a sample counts. @type {[part: string, names: string[]][]} */
const parts = [
  ["garbage of V8", ["(garbage collector)"]],
  ["compiled code, read", ["CompiledScript"]],
  ["modules, run once", ["run@main.js"]],
  ["options of the command", ["createProgram", "addRun", "parseAsync"]],
  ["the program's tables", ["readProgram", "mapFile", "withProgramFile"]],
  ["tokenizer and template", ["storedTokenizer", "readAssets"]],
  ["memory, threads, constants", ["load"]],
  ["kernels for the first sizes", ["#ofSizes"]],
  ["first step", ["runPlan", "#runPlan", "#run"]],
];

/** @param {{ functionName: string, url: string }} frame */
function partOf({ functionName, url }) {
  const names = [functionName, `${functionName}@${url.slice(url.lastIndexOf("/") + 1)}`];
  if (url !== "" && !url.includes("/dist/")) return undefined;
  return parts.find(([, known]) => known.some((name) => names.includes(name)))?.[0];
}

/** Milliseconds of each part in a profile. @param {any} profile @returns {Map<string, number>} */
function timesOf({ nodes, samples, timeDeltas }) {
  const known = new Map([[nodes[0].id, "Node itself, and the rest"]]);
  const visit = (/** @type {any} */ node) => {
    for (const id of node.children ?? []) {
      const child = byId.get(id);
      known.set(id, partOf(child.callFrame) ?? known.get(node.id));
      visit(child);
    }
  };
  const byId = new Map(nodes.map((/** @type {any} */ node) => [node.id, node]));
  visit(nodes[0]);
  const times = new Map();
  for (const [i, id] of samples.entries())
    times.set(known.get(id), (times.get(known.get(id)) ?? 0) + timeDeltas[i] / 1000);
  return times;
}

/** Rows of a table: part, milliseconds. @param {string[]} argv of Node @param {NodeJS.ProcessEnv} env @param {number} rounds */
export function startParts(argv, env, rounds) {
  const folder = mkdtempSync(join(tmpdir(), "lowbit-startup-"));
  try {
    for (let round = 0; round < rounds; round++)
      spawnSync(process.execPath, ["--cpu-prof", "--cpu-prof-interval", "200", "--cpu-prof-dir", folder, ...argv], {
        env,
      });
    const all = readdirSync(folder).map((name) => timesOf(JSON.parse(readFileSync(join(folder, name), "utf8"))));
    const names = ["Node itself, and the rest", ...parts.map(([part]) => part)];
    return names.map((name) => [name, median(all.map((times) => times.get(name) ?? 0)).toFixed(0)]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
