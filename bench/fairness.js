/**
 * `node bench/fairness.js large.gguf small.gguf embedder`: times of a short chat with the same model, a chat with another model
 * and an embedding, alone and during the prefill of 20,000 tokens; and the time of that prefill.
 */
import { performance } from "node:perf_hooks";
import { loadCheckpoint, loadCompiled } from "../dist/index.js";

const LONG = Number(process.env.FAIRNESS_TOKENS ?? 20_000);
const TRIALS = Number(process.env.FAIRNESS_TRIALS ?? 12);
const CHAT_TOKENS = 100;

async function load(path, options = {}) {
  const checkpoint = await loadCheckpoint(path);
  const model = await loadCompiled(checkpoint, options);
  await checkpoint.close();
  return model;
}

const [largePath, smallPath, embedderPath] = process.argv.slice(2);
const large = await load(largePath, { contextLength: LONG + 1024 });
const small = await load(smallPath, { contextLength: 2048 });
const embedder = embedderPath ? await load(embedderPath) : null;

let seed = 7;
function next() {
  seed = (seed * 1103515245 + 12345) % 2147483648;
  return seed;
}

function ids(model, count) {
  const most = model.program.count("get_vocab_size") - 1000;
  return Array.from({ length: count }, () => 500 + (next() % (most - 500)));
}

async function firstToken(model) {
  const started = performance.now();
  const decoder = model.createDecoder();
  await decoder.prefill(ids(model, CHAT_TOKENS));
  const ms = performance.now() - started;
  await decoder.dispose();
  return ms;
}

const WORDS = ["rome", "news", "crown", "war", "dagger"];
const words = () => Array.from({ length: 40 }, () => WORDS[(next() >> 8) % WORDS.length]).join(" ");

async function embedding() {
  const started = performance.now();
  await embedder.embed(Array.from({ length: 16 }, words), { truncate: true });
  return performance.now() - started;
}

const tasks = { "a chat of the same model": () => firstToken(large), "a chat of another": () => firstToken(small) };
if (embedder) tasks["embeddings of 16 texts"] = embedding;

const quantile = (values, share) =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(share * values.length))];
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** @returns {Promise<Record<string, number[]>>} */
async function trials(goesOn) {
  const times = Object.fromEntries(Object.keys(tasks).map((name) => [name, []]));
  for (let i = 0; i < TRIALS && goesOn(); i++)
    for (const [name, task] of Object.entries(tasks)) {
      if (!goesOn()) break;
      await sleep(50 + ((i * 37) % 90));
      times[name].push(await task());
    }
  return times;
}

for (const task of Object.values(tasks)) await task();
const alone = await trials(() => true);
const prompt = ids(large, LONG);
const stop = new AbortController();
const decoder = large.createDecoder();
const started = performance.now();
let isOver = false;
const reading = decoder.prefill(prompt, { signal: stop.signal }).then(
  () => (isOver = true),
  (error) => {
    if (!stop.signal.aborted) throw error;
  },
);
await sleep(300);
const beside = await trials(() => !isOver);
const readMs = performance.now() - started;
stop.abort(new Error("measured"));
await reading;
for (const name of Object.keys(tasks)) {
  const [a, b] = [alone[name], beside[name]];
  const row = [quantile(a, 0.5), quantile(b, 0.5), quantile(b, 0.9)].map((ms) => ms.toFixed(1));
  console.log(
    `${name}: alone ${row[0]} ms, beside ${row[1]} ms (90 %: ${row[2]}), ratio ${(row[1] / row[0]).toFixed(2)}, ${b.length} trials`,
  );
}
console.log(`reading went on for ${(readMs / 1000).toFixed(1)} s${isOver ? ", and ended" : ""}`);
await decoder.dispose();
for (const model of [large, small, embedder]) await model?.dispose();
