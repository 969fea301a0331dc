/**
 * Compares our speed with node-llama-cpp's on a model of the same shape; also load time, memory, long contexts, and a busy
 * core. Engines are loaded together and take turns. Writes bench/results/peers.md after each part; `--parts` measures some
 * parts again and keeps the last results of the others.
 */
import { parseArgs } from "node:util";
import { defaultParts, parts } from "./compare-parts.js";
import { sectionOf } from "./compare-tables.js";
import { requireAddon } from "./peak.js";
import { commit, writeReport } from "./report.js";

const { values: options } = parseArgs({
  options: {
    shape: { type: "string", default: "1b" },
    parts: { type: "string", default: defaultParts.join(",") },
    /** Folder in which ik_llama.cpp was built, with its llama-bench: the part `ik` is measured, too. */
    ik: { type: "string" },
    rounds: { type: "string", default: "3" },
    /** Seconds to wait for a calm moment before each measurement. */
    patience: { type: "string", default: "2" },
    decode: { type: "string", default: "128" },
    prefill: { type: "string", default: "512,32" },
    threads: { type: "string", default: "2,1" },
    schemes: { type: "string", default: "4-bit g32;4-bit g128;3-bit g32;2-bit g32" },
    help: { type: "boolean", default: false },
  },
});
if (options.help) {
  console.log(
    `options: --shape 1b --parts ${Object.keys(parts).join(",")} --ik <folder> --rounds 3 --patience 2 --decode 128 --prefill 512,32 --threads 2,1 --schemes '4-bit g32;2-bit g32'`,
  );
  process.exit(0);
}
requireAddon();
const numbers = (text) => text.split(",").map(Number);
const plan = {
  shape: options.shape,
  rounds: Number(options.rounds),
  patience: Number(options.patience),
  decode: Number(options.decode),
  prefill: numbers(options.prefill),
  threads: numbers(options.threads),
  schemes: options.schemes.split(";"),
  ik: options.ik,
};

const narrowed = process.argv.slice(2).join(" ");
const command = `npm run bench:peers${narrowed ? ` -- ${narrowed}` : ""}`;

/** @param {string} section */
function report(section) {
  writeReport(plan.shape === "1b" ? "peers" : `peers-${plan.shape}`, {
    title: "Speed beside node-llama-cpp",
    command: "npm run bench:peers",
    isPartial: true,
    sections: [
      `Shape ${plan.shape}, random weights; ours with 8-bit dynamic activations and every matrix in the bits named, scales in f16; llama.cpp with every matrix in Q4_0. Engines are asked in turn; medians of the calmer half of the rounds.`,
      section,
    ],
  });
}

const names = options.parts.split(",");
if (options.ik !== undefined && !names.includes("ik")) names.push("ik");
for (const name of names) {
  const part = parts[name];
  if (!part) throw new RangeError(`part "${name}": expected some of ${Object.keys(parts).join(", ")}`);
  const start = performance.now();
  const found = await part(plan);
  const origin = `on commit ${commit()}, ${new Date().toISOString().slice(0, 10)}, by \`${command}\``;
  console.error(`${name}: ${((performance.now() - start) / 1000).toFixed(0)} s`);
  report(`${sectionOf(name, found)}\n\nMeasured ${origin}.`);
}
