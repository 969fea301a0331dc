/**
 * Compares the speed of embeddings with ONNX Runtime's on the same model in 8 bits, in one run, in turns:
 *
 *     node bench/embeddings.js <checkpoint folder> --onnx model_quantized.onnx [--texts file.json] [--threads 2] [--runs 5]
 *
 * `embedding-onnx.py` writes the peer's file; README.md says how onnxruntime-node is installed, the engine of transformers.js.
 * Both get the same token ids of the same texts, a JSON list of strings (default: sentences of docs/). The peer runs padded
 * batches of 1, 8 and 32 texts, as they come and sorted by length; the fastest of them counts. Mean pooling and length 1, as
 * all-MiniLM's modules say, are part of both. → results/embeddings.md
 */
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { loadavg } from "node:os";
import { basename, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { embedding, int8DynamicActivationIntxWeight, loadCheckpoint, loadCompiled, quantize } from "../dist/index.js";
import { digits, median, table, writeReport } from "./report.js";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    onnx: { type: "string" },
    texts: { type: "string" },
    threads: { type: "string", default: "2" },
    runs: { type: "string", default: "5" },
  },
});
const [folder] = positionals;
if (folder === undefined || values.onnx === undefined)
  throw new Error("usage: node bench/embeddings.js <checkpoint folder> --onnx model_quantized.onnx");
const [threads, runs] = [Number(values.threads), Number(values.runs)];
const require = createRequire(import.meta.url);
const ort = require("onnxruntime-node");

/** Sentences of the project's own pages. */
function ownSentences() {
  const docs = join(import.meta.dirname, "..", "docs");
  const pages = readdirSync(docs).filter((name) => name.endsWith(".md"));
  const text = pages.map((name) => readFileSync(join(docs, name), "utf8").replace(/```.*?```/gs, "")).join("\n\n");
  const sentences = text.split(/\n\n/).flatMap((part) => part.replaceAll("\n", " ").split(/(?<=[.!?])\s+/));
  return sentences.filter((one) => /^[A-Z][^|#`*[]{30,300}[.!?]$/.test(one)).slice(0, 200);
}

/** @param {readonly number[]} ids @returns {(length: number) => BigInt64Array} */
const filled = (ids) => (length) => BigInt64Array.from({ length }, (_, i) => BigInt(ids[i] ?? 0));

/** @param {import("onnxruntime-node").InferenceSession} session @param {readonly (readonly number[])[]} batch */
async function runBatch(session, batch) {
  const length = Math.max(...batch.map((ids) => ids.length));
  const joined = new BigInt64Array(batch.length * length);
  const mask = new BigInt64Array(joined.length);
  for (const [i, ids] of batch.entries()) {
    joined.set(filled(ids)(length), i * length);
    mask.fill(1n, i * length, i * length + ids.length);
  }
  const tensor = (/** @type {BigInt64Array} */ data) => new ort.Tensor("int64", data, [batch.length, length]);
  const feeds = {
    input_ids: tensor(joined),
    attention_mask: tensor(mask),
    token_type_ids: tensor(new BigInt64Array(joined.length)),
  };
  const { last_hidden_state: states } = await session.run(feeds);
  const [, , size] = states.dims;
  return batch.map((ids, i) => {
    const sum = new Float32Array(size);
    for (let t = 0; t < ids.length; t++)
      for (let c = 0; c < size; c++) sum[c] += states.data[(i * length + t) * size + c];
    const norm = Math.hypot(...sum);
    return sum.map((value) => value / norm);
  });
}

/** @param {import("onnxruntime-node").InferenceSession} session @param {readonly (readonly number[])[]} texts */
async function runPeer(session, texts, batchSize, isSorted) {
  const order = texts.map((_, i) => i);
  if (isSorted) order.sort((a, b) => texts[a].length - texts[b].length);
  const vectors = new Array(texts.length);
  for (let start = 0; start < order.length; start += batchSize) {
    const some = order.slice(start, start + batchSize);
    const found = await runBatch(
      session,
      some.map((i) => texts[i]),
    );
    for (const [i, vector] of found.entries()) vectors[some[i]] = vector;
  }
  return vectors;
}

/** Closeness of vectors of length 1. */
const cosines = (a, b) => a.map((vector, i) => vector.reduce((sum, value, c) => sum + value * b[i][c], 0));

async function ours(bits) {
  const model = await loadCheckpoint(folder);
  if (bits !== null)
    quantize(model, [
      int8DynamicActivationIntxWeight({ bits, groupSize: 32, mappingType: "asymmetric", scaleDType: "f16" }),
      embedding({ bits: 8, groupSize: 32 }),
    ]);
  const loaded = await loadCompiled(model, { threads });
  await model.close();
  return loaded;
}

const texts = values.texts ? JSON.parse(readFileSync(values.texts, "utf8")) : ownSentences();
const float = await ours(null);
const ids = texts.map((text) => float.embedding.encode(text));
const tokens = ids.reduce((sum, one) => sum + one.length, 0);
const expected = await float.embed(ids);
await float.dispose();
const session = await ort.InferenceSession.create(values.onnx, { intraOpNumThreads: threads, interOpNumThreads: 1 });
const models = { "lowbit, 8 bits": await ours(8), "lowbit, 4 bits": await ours(4) };
const ways = [1, 8, 32].flatMap((size) => [false, true].map((isSorted) => ({ size, isSorted })));
const candidates = [
  ...Object.entries(models).map(([name, model]) => ({ name, run: () => model.embed(ids) })),
  ...ways.map(({ size, isSorted }) => ({
    name: `ONNX Runtime q8, batches of ${size}${isSorted ? ", sorted" : ""}`,
    run: () => runPeer(session, ids, size, isSorted),
  })),
];
const times = candidates.map(() => /** @type {number[]} */ ([]));
const closeness = [];
for (const { run } of candidates) closeness.push(cosines(await run(), expected));
for (let round = 0; round < runs; round++)
  for (const [i, { run }] of candidates.entries()) {
    const start = performance.now();
    await run();
    times[i].push(performance.now() - start);
  }
const own = Object.keys(models).length;
const peer = Math.min(...times.slice(own).map(median));
const rows = candidates.map(({ name }, i) => {
  const ms = median(times[i]);
  const mean = closeness[i].reduce((a, b) => a + b) / texts.length;
  const rate = digits((1000 * texts.length) / ms);
  const ratio = i < own ? digits(peer / ms) : "";
  return [name, digits(ms), rate, ratio, Math.min(...closeness[i]).toFixed(4), mean.toFixed(4)];
});
const head = ["what", "ms", "texts a second", "times the peer's fastest way", "least cosine to float", "mean"];
writeReport("embeddings", {
  title: "Embeddings beside ONNX Runtime",
  command: "node bench/embeddings.js",
  sections: [
    `${texts.length} texts of ${tokens} tokens through ${basename(resolve(folder))} on ${threads} threads, each way in turn; medians of ${runs} rounds, load ${loadavg()[0].toFixed(1)} at the end. Both get the same token ids; the peer's file has 8 bits (ONNX Runtime ${require("onnxruntime-node/package.json").version}).`,
    table(head, rows),
  ],
});
for (const model of Object.values(models)) await model.dispose();
