/**
 * Measures candidates for the default quantization: KL divergence by file size of schemes that need no calibration text, on
 * twins of real models, with prose and code.
 * `node bench/defaults.js [--models smollm2,gemma,qwen] [--tokens 2045] [--texts prose,code] [--only g16]` →
 * results/defaults.md
 */
import { parseArgs } from "node:util";
import { modelFiles, models, texts } from "./accuracy-files.js";
import { divergenceHead, divergenceRows, quantizeTwin } from "./accuracy-measure.js";
import { table, writeReport } from "./report.js";

const { values: options } = parseArgs({
  options: {
    models: { type: "string", default: "smollm2,gemma,qwen" },
    texts: { type: "string", default: "prose,code" },
    tokens: { type: "string", default: "2045" },
    /** Choices whose names have one of these in them. */
    only: { type: "string", default: "" },
  },
});

/** Options of linear layers, and bits and groups of the table and of a head that it is. */
const CHOICES = {
  "4 bits f16 g32, table 4": [["--scale-dtype", "f16"], "4,32"],
  "4 bits i8 g32, table 4": [["--scale-dtype", "i8"], "4,32"],
  "4 bits i8 g16, table 4": [["--scale-dtype", "i8", "--group-size", "16"], "4,16"],
  "4 bits i8 g32, table 6": [["--scale-dtype", "i8"], "6,32"],
  "4 bits i8 g16, table 6": [["--scale-dtype", "i8", "--group-size", "16"], "6,16"],
  "5 bits i8 g32, table 5": [["--qmode", "8da5w", "--scale-dtype", "i8"], "5,32"],
};

/** The head has the bits and groups of the table. */
function argumentsFor(isTied, [linear, rows]) {
  const mode = linear.includes("--qmode") ? linear : ["--qmode", "8da4w", ...linear];
  if (isTied) return [...mode, "--shared-embedding", rows];
  return [...mode, "--embedding", rows, "--head", `8da${rows[0]}w`];
}

const names = Object.keys(CHOICES).filter((name) => options.only.split(",").some((part) => name.includes(part)));
const all = texts();
const chosen = options.texts.split(",").map((name) => all[name].test);
const sections = [];
for (const name of options.models.split(",")) {
  const { twin } = await modelFiles(name);
  const { isTied } = models[name];
  const made = names.map((choice) => quantizeTwin(twin, choice, argumentsFor(isTied, CHOICES[choice])));
  const rows = divergenceRows(
    made.map(({ output }) => output),
    twin,
    chosen,
    options.tokens,
  );
  sections.push(`## ${name}\n\n${table(divergenceHead, rows)}`);
  writeReport("defaults", {
    title: "Choices without a text, by bytes",
    command: "node bench/defaults.js",
    sections: [
      `Twins of real models (the same function, weights off every grid). Activations are quantized to 8 bits in blocks. ${options.tokens} tokens of each text.`,
      ...sections,
    ],
    isPartial: true,
  });
}
