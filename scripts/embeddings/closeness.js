/**
 * How close embeddings of a checkpoint are to those of sentence-transformers, in float, 8 and 4 bits:
 *
 *     node scripts/embeddings/closeness.js <model folder> <vectors.json> [--calibrate text.txt]
 *
 * `vectors.py` writes the vectors, with their texts. Calibrated ways need a text.
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import {
  calibrate,
  embedding,
  int8DynamicActivationIntxWeight,
  intxWeightOnly,
  loadCheckpoint,
  loadCompiled,
  makeRecipe,
  quantize,
  quantizeByRecipe,
} from "../../dist/index.js";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { calibrate: { type: "string" }, only: { type: "string" } },
});
const [folder, vectorsPath] = positionals;
if (folder === undefined || vectorsPath === undefined)
  throw new Error("usage: node scripts/embeddings/closeness.js <model folder> <vectors.json> [--calibrate text.txt]");
const { texts, vectors } = JSON.parse(readFileSync(vectorsPath, "utf8"));
const text = options.calibrate && readFileSync(options.calibrate, "utf8");

const rows = embedding({ bits: 8, groupSize: 32 });
const common = /** @type {const} */ ({ groupSize: 32, mappingType: "asymmetric", scaleDType: "f16" });
/** @param {number} bits */
const dynamic = (bits) => int8DynamicActivationIntxWeight({ bits, ...common });
/** What a mode is without the layers that keep 8 bits, and without zero points. @param {number} bits */
const alike = (bits) =>
  makeRecipe([
    ["re:.*word_embeddings", rows],
    ["_default", int8DynamicActivationIntxWeight({ bits, groupSize: 32, scaleDType: "f16" })],
  ]);
/** Configurations by name, or a recipe; those of `gptq` look at a text. */
const ways = {
  float: null,
  ...Object.fromEntries([8, 6, 4, 3].map((bits) => [`${bits} bits`, [dynamic(bits), rows]])),
  "8 bits, float activations": [intxWeightOnly({ bits: 8, ...common }), rows],
  "4 bits, float activations": [intxWeightOnly({ bits: 4, ...common }), rows],
  "8 bits, all matrices alike": alike(8),
  "4 bits, all matrices alike": alike(4),
  "4 bits, gptq": [int8DynamicActivationIntxWeight({ bits: 4, algorithm: "gptq", ...common }), rows],
};

/** @param {readonly number[]} a @param {Float32Array} b */
const cosine = (a, b) => a.reduce((sum, value, c) => sum + value * b[c], 0) / (Math.hypot(...a) * Math.hypot(...b));

for (const [name, configs] of Object.entries(ways)) {
  if ((options.only && !name.includes(options.only)) || (name.includes("gptq") && !text)) continue;
  const model = await loadCheckpoint(folder);
  if (name.includes("alike")) quantizeByRecipe(model, configs);
  else if (configs) quantize(model, configs);
  if (name.includes("gptq")) await calibrate(model, text);
  const loaded = await loadCompiled(model);
  await model.close();
  const found = (await loaded.embed(texts)).map((vector, i) => cosine(vectors[i], vector));
  await loaded.dispose();
  const mean = found.reduce((sum, one) => sum + one, 0) / found.length;
  console.log(`${name.padEnd(34)} least ${Math.min(...found).toFixed(5)}, mean ${mean.toFixed(5)}`);
}
