/**
 * Speed of WebAssembly: in headless Chromium compared with wllama, in two versions of Node compared with our native code.
 * Engines take turns; the table has the medians of all rounds. Build first.
 *
 *     node bench/wasm.js [--parts wllama-1b-2,native-2,…] [--rounds 3]
 *
 * Parts can be measured one at a time: rounds of the same commit are added to those before, and results/wasm.md keeps what was
 * found of the other parts; `--parts ""` only writes it again.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { calm } from "./calm.js";
import { folder } from "./make-model.js";
import { commit, table, writeReport } from "./report.js";
import { withBrowser } from "./wasm-browser.js";
import { parts } from "./wasm-parts.js";

const { values: options } = parseArgs({
  options: {
    parts: { type: "string", default: Object.keys(parts).join(",") },
    rounds: { type: "string", default: "3" },
  },
});
/** Longest wait for a calm moment. */
const CALM_SECONDS = 5;
const statePath = join(folder, "wasm.json");
/** What was found of each part, by engine, on a commit or "… and …". @type {Record<string, { commit: string, day: string, found: Record<string, any[]> }>} */
const state = existsSync(statePath) ? JSON.parse(readFileSync(statePath, "utf8")) : {};

function recordOf(name) {
  const here = commit();
  if (state[name]?.commit !== here) state[name] = { commit: here, day: "", found: {} };
  state[name].day = new Date().toISOString().slice(0, 10);
  return state[name].found;
}

/** @param {string} name @param {any} browser */
async function measurePart(name, browser) {
  const engines = await parts[name].engines(browser);
  for (let round = 0; round < Number(options.rounds); round++) {
    const results = [];
    for (const [engine, run] of Object.entries(engines)) {
      await calm(CALM_SECONDS);
      results.push([engine, await run()]);
      console.error(`${name}, round ${round + 1}: ${engine}: ${JSON.stringify(results.at(-1)[1])}`);
    }
    const found = recordOf(name);
    for (const [engine, result] of results) found[engine] = [...(found[engine] ?? []), result];
    writeFileSync(statePath, JSON.stringify(state));
  }
}

/** The commits that parts were measured on, of one day together. @param {readonly string[]} names */
function originOf(names) {
  const days = [...new Set(names.map((name) => state[name].day))];
  const origins = days.map((day) => {
    const ofDay = names.filter((name) => state[name].day === day);
    const commits = new Set(ofDay.flatMap((name) => state[name].commit.split(" and ")));
    return `on commit${commits.size > 1 ? "s" : ""} ${[...commits].join(" and ")}, ${day}`;
  });
  return origins.join("; ");
}

/** A table for each title, with where its rows come from. */
function sections() {
  const measured = Object.keys(parts).filter((name) => state[name]);
  const titles = [...new Set(measured.map((name) => parts[name].title))];
  return titles.map((title) => {
    const names = measured.filter((name) => parts[name].title === title);
    const rows = names.flatMap((name) => parts[name].rows(state[name].found));
    return `## ${title}\n\n${table(parts[names[0]].head, rows)}\n\nMeasured ${originOf(names)}.`;
  });
}

const wanted = options.parts.split(",").filter(Boolean);
const unknown = wanted.find((name) => !parts[name]);
if (unknown !== undefined) throw new RangeError(`part "${unknown}": expected some of ${Object.keys(parts).join(", ")}`);
await withBrowser(join(folder, ".."), async (browser) => {
  for (const name of wanted) await measurePart(name, browser);
});
writeReport("wasm", {
  title: "WebAssembly",
  command: "node bench/wasm.js",
  isPartial: true,
  sections: [
    "Tokens a second, medians of rounds in turn. Random weights; ours with 8-bit dynamic activations and every matrix in the bits named, scales in f16; wllama 3.8.1 with Q4_0. On a shared machine single rounds differ up to twofold.",
    ...sections(),
  ],
});
