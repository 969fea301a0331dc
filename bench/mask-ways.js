/**
 * Compares two ways to make the token mask of a constraint: xgrammar's, and a walk of the vocabulary's trie through the states
 * of GrammarFollower, which is exact. Both write the same random texts of the schemas of test/support/random-schema.js. Writes
 * bench/results/mask-ways.md.
 * `npm run build && node bench/mask-ways.js [--schemas 1000] [--tokens 30]`
 */
import { loadavg } from "node:os";
import { parseArgs } from "node:util";
import { compileConstraint } from "../dist/text/constraints/compile.js";
import { GrammarFollower } from "../dist/text/constraints/follower.js";
import { createMatcher } from "../dist/text/constraints/index.js";
import { tokenBytes } from "../dist/text/constraints/token-bytes.js";
import { fromByteCharacters } from "../dist/text/tokenizer/byte-alphabet.js";
import { schemaOf } from "../test/support/random-schema.js";
import { table, writeReport } from "./report.js";
import { repositoryTokenizer, VOCABULARY } from "./repository-tokenizer.js";

const { values } = parseArgs({
  options: { schemas: { type: "string", default: "1000" }, tokens: { type: "string", default: "30" } },
});
const [SCHEMAS, TOKENS] = [values.schemas, values.tokens].map(Number);

/** The trie of all tokens in preorder: a node's byte, its depth from 1 on, where its subtree ends, and its tokens. */
function trieOf(/** @type {string[]} */ texts) {
  const tokens = texts
    .map((text, id) => ({ id, bytes: fromByteCharacters(text) ?? [] }))
    .filter(({ bytes }) => bytes.length);
  tokens.sort((a, b) => Buffer.compare(Buffer.from(a.bytes), Buffer.from(b.bytes)));
  const [bytes, depths, ends, ids] = [[], [], [], []];
  /** @type {number[]} */
  const open = [];
  let last = [];
  const close = (/** @type {number} */ depth) => {
    while (open.length > depth) ends[open.pop()] = bytes.length;
  };
  for (const token of tokens) {
    let common = 0;
    while (common < last.length && last[common] === token.bytes[common]) common++;
    close(common);
    for (let depth = common; depth < token.bytes.length; depth++) {
      open.push(bytes.length);
      bytes.push(token.bytes[depth]);
      depths.push(depth + 1);
      ids.push([]);
    }
    ids[open.at(-1)].push(token.id);
    last = token.bytes;
  }
  close(0);
  return { bytes: Uint8Array.from(bytes), depths: Uint16Array.from(depths), ends: Uint32Array.from(ends), ids };
}

const numbers = new WeakMap();
let numbered = 0;

/** Tells objects apart. */
function numberOf(/** @type {object | null} */ object) {
  if (object === null) return 0;
  if (!numbers.has(object)) numbers.set(object, ++numbered);
  return numbers.get(object);
}

/** What tells places apart: their leaves. */
function keyOf({ leaves, canEnd, pending }) {
  const parts = leaves.map(
    ({ ranges, next }) => `${ranges.length === 1 ? ranges[0] : numberOf(ranges)}:${numberOf(next)}`,
  );
  return `${canEnd} ${pending} ${parts.sort().join(" ")}`;
}

/** Where a byte leads from a place, kept at the place; equal places are one. */
function step(follower, place, byte) {
  place.next ??= new Array(256);
  let next = place.next[byte];
  if (next === undefined) {
    follower.place = place;
    next = follower.after([byte]);
    if (next) {
      const key = keyOf(next);
      next = follower.known.get(key) ?? next;
      follower.known.set(key, next);
    }
    place.next[byte] = next;
  }
  return next;
}

/** The mask of a place. */
function maskOf({ bytes, depths, ends, ids }, follower, start) {
  const mask = new Uint32Array(VOCABULARY / 32);
  const places = [start];
  for (let i = 0; i < bytes.length; ) {
    const place = step(follower, places[depths[i] - 1], bytes[i]);
    if (!place) {
      i = ends[i];
      continue;
    }
    places[depths[i]] = place;
    for (const id of ids[i]) mask[id >> 5] |= 1 << (id & 31);
    i++;
  }
  follower.place = start;
  return mask;
}

const tokenizer = repositoryTokenizer();
const vocabulary = { tokenizer, size: VOCABULARY, endIds: [tokenizer.eos.id] };
const texts = tokenBytes(tokenizer, VOCABULARY);
const trie = trieOf(texts);
(await createMatcher({ kind: "choice", options: ["x"] }, vocabulary)).dispose();

/** Whole numbers below a bound, the same for the same seed: a linear congruential generator. */
function randomOf(/** @type {number} */ seed) {
  let state = seed;
  return (/** @type {number} */ bound) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * bound);
  };
}

/** A token of a mask: of a random first byte, any. */
function draw(random, mask) {
  const byFirst = new Map();
  for (let id = 0; id < VOCABULARY; id++)
    if ((mask[id >> 5] >> (id & 31)) & 1) {
      const first = texts[id][0];
      if (first === undefined) continue;
      if (!byFirst.has(first)) byFirst.set(first, []);
      byFirst.get(first).push(id);
    }
  if (byFirst.size === 0) return undefined;
  const firsts = [...byFirst.values()];
  const ids = firsts[random(firsts.length)];
  return ids[random(ids.length)];
}

const times = { engine: [], trie: [], compiled: [] };
let refused = 0;
for (let seed = 0; seed < SCHEMAS; seed++) {
  const random = randomOf(seed + 1);
  const constraint = { kind: "jsonSchema", schema: schemaOf(seed) };
  const before = performance.now();
  let matcher;
  try {
    matcher = await createMatcher(constraint, vocabulary);
  } catch {
    refused++;
    continue;
  }
  times.compiled.push(performance.now() - before);
  const follower = Object.assign(new GrammarFollower(compileConstraint(constraint)), { known: new Map() });
  try {
    for (let i = 0; i < TOKENS; i++) {
      const start = performance.now();
      await matcher.mask();
      const middle = performance.now();
      const mask = maskOf(trie, follower, follower.place);
      times.engine.push(middle - start);
      times.trie.push(performance.now() - middle);
      const id = draw(random, mask);
      if (id === undefined) break;
      matcher.accept(id);
      follower.place = follower.after(fromByteCharacters(texts[id]));
    }
  } catch {
    refused++;
  }
  matcher.dispose();
}

const at = (list, share) => list.toSorted((a, b) => a - b)[Math.min(list.length - 1, Math.floor(share * list.length))];
const mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
const cells = (list) =>
  [mean(list), at(list, 0.5), at(list, 0.9), at(list, 0.99), at(list, 1)].map((ms) => ms.toFixed(2));
writeReport("mask-ways", {
  title: "Masks by xgrammar and by a walk of the vocabulary",
  command: `node bench/mask-ways.js --schemas ${SCHEMAS} --tokens ${TOKENS}`,
  sections: [
    `Milliseconds of a mask over ${VOCABULARY} tokens, of ${times.engine.length} places in texts of ${SCHEMAS} random schemas, ${refused} of which were refused, at a load of ${loadavg()[0].toFixed(1)}. xgrammar also compiles each schema, in ${mean(times.compiled).toFixed(0)} ms; its masks are those of a relaxed grammar, made on a thread of its own. The walk is exact, needs nothing compiled, and takes the thread that asks: its median is the lower, but it is long where a text enters a string of limited length, whose places are all new. xgrammar stays for that.`,
    table(
      ["way", "mean", "median", "90 %", "99 %", "longest"],
      [
        ["xgrammar", ...cells(times.engine)],
        ["walk of the trie", ...cells(times.trie)],
      ],
    ),
  ],
});
