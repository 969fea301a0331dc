/**
 * Cost of constrained decoding at each token, with a vocabulary of the size of Llama 3's, compared with a decode step of the 1B
 * shape. Writes bench/results/masks.md.
 * `npm run build && node bench/masks.js [--step 45] [--tokenizer tokenizer.json] [--answers 8]`
 */
import { readFileSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { createMatcher } from "../dist/text/constraints/index.js";
import { createSampler } from "../dist/text/sampler.js";
import { toByteCharacters } from "../dist/text/tokenizer/byte-alphabet.js";
import { Tokenizer } from "../dist/text/tokenizer.js";
import { median, table, writeReport } from "./report.js";
import { repositoryTokenizer, VOCABULARY } from "./repository-tokenizer.js";

const { values: options } = parseArgs({
  options: {
    /** Milliseconds of a decode step, of which the times are shares. */
    step: { type: "string", default: "45" },
    /** A tokenizer.json; default: one made of the words of this repository. */
    tokenizer: { type: "string" },
    /** How often each answer is written. */
    answers: { type: "string", default: "8" },
  },
});

const person = {
  type: "object",
  properties: {
    name: { type: "string" },
    age: { type: "integer", minimum: 0, maximum: 120 },
    email: { type: "string", pattern: "^[a-z.]+@[a-z]+\\.(com|org)$" },
    address: {
      type: "object",
      properties: { street: { type: "string", maxLength: 60 }, city: { type: "string" } },
      required: ["street", "city"],
    },
    tags: { type: "array", items: { enum: ["friend", "family", "work", "other"] }, maxItems: 4 },
    note: { type: "string", minLength: 1, maxLength: 400 },
  },
  required: ["name", "age", "email", "address", "tags", "note"],
};
const about = JSON.stringify(
  {
    name: "Ada Lovelace",
    age: 36,
    email: "ada.l@engine.org",
    address: { street: "12 St James's Square", city: "London" },
    tags: ["friend", "work"],
    note: 'She wrote the first program, and thought of what machines may do beyond numbers; "poetical science" she called it.',
  },
  null,
  1,
).replace(/\n( *)/g, (_, spaces) => (spaces.length > 1 ? `\n${spaces}` : "\n "));
const lines = JSON.stringify(
  { lines: Array.from({ length: 12 }, (_, i) => `line ${i}: the quick brown fox`), ok: true },
  null,
  1,
);
const cases = [
  ["any JSON", { kind: "json" }, lines],
  [
    "a schema of six properties",
    { kind: "jsonSchema", schema: person },
    about.replace(/\n +/g, " ").replace(/\n/g, " "),
  ],
  ["an expression", { kind: "regex", pattern: "(\\w+ ){5,40}\\w+\\." }, `${"some words of a sentence ".repeat(5)}end.`],
  [
    "one of 100 texts",
    { kind: "choice", options: Array.from({ length: 100 }, (_, i) => `option number ${i}`) },
    "option number 57",
  ],
];

/** Ids of a text, the longest tokens first. */
function idsOf(tokenizer, text) {
  const ids = [];
  for (let at = 0; at < text.length; ) {
    let length = Math.min(24, text.length - at);
    while (tokenizer.tokenToId(toByteCharacters(text.slice(at, at + length))) === undefined) length--;
    ids.push(tokenizer.tokenToId(toByteCharacters(text.slice(at, at + length))));
    at += length;
  }
  return ids;
}

const tokenizer = options.tokenizer
  ? new Tokenizer(JSON.parse(readFileSync(options.tokenizer, "utf8")))
  : repositoryTokenizer();
const size = options.tokenizer ? tokenizer.vocabSize : VOCABULARY;
const vocabulary = { tokenizer, size, endIds: tokenizer.eos ? [tokenizer.eos.id] : [] };
const started = performance.now();
(await createMatcher({ kind: "choice", options: ["x"] }, vocabulary)).dispose();
const prepared = performance.now() - started;

const logits = new Float32Array(size).map((_, id) => Math.sin(id) * 4);
const sampler = createSampler({ temperature: 0.8, topP: 0.95, seed: 1 });
const share = (ms) => `${ms.toFixed(2)} (${((100 * ms) / Number(options.step)).toFixed(1)} %)`;
const rows = [];
for (const [name, constraint, text] of cases) {
  const before = performance.now();
  (await createMatcher(constraint, vocabulary)).dispose();
  const compiled = performance.now() - before;
  const [masks, all, plain] = [[], [], []];
  const ids = idsOf(tokenizer, text);
  for (let answer = 0; answer < Number(options.answers); answer++) {
    const matcher = await createMatcher(constraint, vocabulary);
    for (const id of ids) {
      logits[id] += 30;
      const start = performance.now();
      const mask = await matcher.mask();
      const masked = performance.now();
      const drawn = sampler.sample(logits, [], mask);
      if (drawn !== id || !matcher.allows(id)) throw new Error(`${name}: the constraint does not have ${text}`);
      matcher.accept(id);
      const end = performance.now();
      sampler.sample(logits, []);
      plain.push(performance.now() - end);
      masks.push(masked - start);
      all.push(end - start);
      logits[id] -= 30;
    }
    matcher.dispose();
  }
  const mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
  const more = mean(all) - mean(plain);
  rows.push([
    name,
    String(ids.length),
    `${compiled.toFixed(0)}`,
    share(median(masks)),
    share(mean(masks)),
    share(more),
    Math.max(...masks).toFixed(1),
  ]);
}
writeReport("masks", {
  title: "What holding an answer to a constraint takes",
  command: `node bench/masks.js --step ${options.step}`,
  sections: [
    `Milliseconds at each token, over a vocabulary of ${size} tokens, and their share of a decode step of ${options.step} ms: the median and mean of making a mask, the mean of all that a constraint adds to drawing a token without one, and the longest mask. A constraint is compiled when it is first met, in the milliseconds of its column; the vocabulary is prepared once, in ${prepared.toFixed(0)} ms. Over the minute before the end, ${loadavg()[0].toFixed(1)} threads wanted the ${availableParallelism()} cores.`,
    table(
      ["constraint", "tokens", "compiled in", "mask, median", "mask, mean", "all that is added", "longest mask"],
      rows,
    ),
  ],
});
