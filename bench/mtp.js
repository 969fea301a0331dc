/**
 * Drafts by a layer of multi-token prediction, in a random-weight model of the shape of Qwen3.5-0.8B. Drafted tokens are
 * accepted at a given rate, so that the gain of drafts can be compared with the cost of their rows.
 * `node bench/mtp.js [--rounds 3] [--tokens 96]` → results/mtp.md
 */
import { loadavg } from "node:os";
import { parseArgs } from "node:util";
import { loadProgram } from "../dist/index.js";
import { familyProgram, WITH_MTP } from "./family-files.js";
import { digits, median, table, writeReport } from "./report.js";

const { values: options } = parseArgs({
  options: { rounds: { type: "string", default: "3" }, tokens: { type: "string", default: "96" } },
});
const rounds = Number(options.rounds);
const maxTokens = Number(options.tokens);
const ACCEPTANCES = [0.5, 0.7, 0.9];
const PROMPT = 64;
/** Rows that a step with drafts has at most. */
const ROWS = 8;
/** Far above the logits of a model of random weights. */
const CERTAIN = 1e4;

/** A number from 0 to 1 that follows from another. @param {number} i */
const random = (i) => {
  const x = Math.sin(12.9898 * (i + 1)) * 43758.5453;
  return x - Math.floor(x);
};
/** The text that the model writes, whatever its weights say: no token is the one before it. @param {number} position */
const tokenAt = (position) => 3 + 2 * Math.floor(200 * random(position)) + (position % 2);

/**
 * The decoder of a model that writes a known text, and drafts the right token as often as is said.
 * @param {any} decoder @param {number} acceptance
 */
function scripted(decoder, acceptance) {
  const size = decoder.vocabularySize;
  /** @param {Float32Array} logits @param {number} first position of the first row */
  const written = (logits, first) => {
    for (let row = 0; (row + 1) * size <= logits.length; row++) logits[row * size + tokenAt(first + row + 1)] = CERTAIN;
    return logits;
  };
  return new Proxy(decoder, {
    get(target, name) {
      if (name === "prefill") return async (ids, how) => written(await target.prefill(ids, how), target.position - 1);
      if (name === "step") return async (id, how) => written(await target.step(id, how), target.position - 1);
      if (name === "allLogits")
        return async (ids, how) => written(await target.allLogits(ids, how), target.position - ids.length);
      if (name === "draft")
        return async (ids, how) => {
          const logits = await target.draft(ids, how);
          const next = target.position + ids.length;
          if (logits) logits[tokenAt(next) + (random(7 * next) < acceptance ? 0 : 1)] = CERTAIN;
          return logits;
        };
      const value = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

const llm = await loadProgram(await familyProgram(WITH_MTP), { contextLength: 1024, threads: 2 });
const { createDecoder } = llm;
const prompt = Array.from({ length: PROMPT }, (_, i) => tokenAt(i));

/** Milliseconds of steps of 1 to 8 rows, and of a draft, in turns. */
async function costs() {
  const decoder = createDecoder.call(llm);
  await decoder.prefill(prompt);
  /** @type {number[][]} */
  const steps = Array.from({ length: ROWS + 1 }, () => []);
  const drafts = [];
  for (let round = 0; round < 4 * rounds; round++)
    for (let rows = 1; rows <= ROWS; rows++) {
      const before = performance.now();
      await decoder.allLogits(prompt.slice(0, rows));
      steps[rows].push(performance.now() - before);
      const start = performance.now();
      await decoder.draft([prompt[0]]);
      drafts.push(performance.now() - start);
      decoder.rewind(PROMPT);
    }
  await decoder.dispose();
  return { step: steps.map((times) => (times.length > 0 ? median(times) : 0)), draft: median(drafts) };
}

/** Times as fast as without drafts, at best, for so many tokens drafted at a time. */
function bound(acceptance, { step, draft }) {
  let best = 1;
  for (let drafted = 1; drafted < ROWS; drafted++) {
    const tokens = (1 - acceptance ** (drafted + 1)) / (1 - acceptance);
    // Where a draft is not accepted, the rows before it are computed again with the next step: states are of its start.
    let again = 0;
    for (let i = 1; i <= drafted; i++) again += acceptance ** (i - 1) * (1 - acceptance) * i;
    const row = (step[drafted + 1] - step[1]) / drafted;
    best = Math.max(best, (tokens * step[1]) / (step[drafted + 1] + drafted * draft + again * row));
  }
  return best;
}

/** @param {"mtp" | "off"} draft @param {number} acceptance */
async function write(draft, acceptance) {
  llm.createDecoder = (scope) => scripted(createDecoder.call(llm, scope), acceptance);
  const generation = llm.generate(prompt, { draft, temperature: 0, maxTokens, ignoreEos: true });
  for await (const _ of generation);
  const { decodeSeconds, draftedTokens, acceptedTokens, generatedTokens } = await generation.result;
  return { speed: (generatedTokens - 1) / decodeSeconds, draftedTokens, acceptedTokens };
}

await write("mtp", 0.9);
const measured = await costs();
const rows = [];
for (const acceptance of ACCEPTANCES) {
  /** @type {Record<string, any[]>} */
  const found = { off: [], mtp: [] };
  for (let round = 0; round < rounds; round++)
    for (const draft of /** @type {const} */ (["off", "mtp"])) found[draft].push(await write(draft, acceptance));
  const [off, mtp] = [found.off, found.mtp].map((runs) => median(runs.map(({ speed }) => speed)));
  const { draftedTokens, acceptedTokens } = found.mtp.at(-1);
  const most = bound(acceptance, measured);
  const row = [`${acceptance}`, digits(off), digits(mtp), digits(mtp / off), digits(most), digits(mtp / off / most)];
  rows.push([...row, `${acceptedTokens} of ${draftedTokens}`]);
  console.log(rows.at(-1).join("  "));
}
await llm.dispose();

const relative = measured.step.slice(1).map((ms) => digits(ms / measured.step[1]));
writeReport("mtp", {
  title: "Drafts of a layer of multi-token prediction",
  command: "node bench/mtp.js",
  sections: [
    `A model of random weights and the shape of Qwen3.5-0.8B with its layer of multi-token prediction, 4 bits in groups of 32, two
threads, ${maxTokens} tokens behind ${PROMPT}, medians of ${rounds} rounds in turns, load ${loadavg()[0].toFixed(1)}. What is written, and how
often a drafted token is the right one, is set from outside; all else is as in any generation.`,
    table(
      ["right", "tok/s without", "tok/s with drafts", "times it", "at most, by what rows cost", "of that", "accepted"],
      rows,
    ),
    `Steps of 1 to ${ROWS} rows take ${relative.join(", ")} of one row's ${digits(measured.step[1])} ms, a draft of one token
${digits(measured.draft)} ms: its head has 98,304 of the 248,320 tokens. At most: the best number of tokens at a time, always; rows
that are computed again where a draft was wrong are counted, as recurrent states are kept of the start of a step.`,
  ],
});
