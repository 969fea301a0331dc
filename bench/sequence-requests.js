/** Requests of bench/sequences.js to this package's engine: many sequences at once, prefixes in the store and in files. */
import { rmSync, statSync } from "node:fs";
import { createSampler } from "../dist/text/sampler.js";
import { restorePrefix, savePrefix } from "../dist/tools/index.js";
import { distinctIds } from "./engine-process.js";

const sampler = createSampler({ temperature: 0 });
const next = (/** @type {Float32Array} */ logits) => sampler.sample(logits, []);

async function secondsOf(work) {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1000;
}

/** Seconds to the first token of ids. @param {import("../dist/index.js").LanguageModel} model @param {readonly number[]} ids */
async function firstTokenOf(model, ids) {
  const decoder = model.createDecoder();
  const seconds = await secondsOf(async () => next(await decoder.prefill(ids)));
  await decoder.dispose();
  return seconds;
}

/** Longest gaps between two tokens of running answers, seconds: without, and while another prompt is computed. */
async function gapsOf(decoders, firstOf, { answers, prompt, context }) {
  const all = await decoders(answers, context);
  const gaps = { before: 0, during: 0 };
  let phase = "before";
  const work = Promise.all(
    all.map(async (one) => {
      for (let last = performance.now(), now = last; phase !== "end"; last = now) {
        one.id = next(await one.decoder.step(one.id));
        now = performance.now();
        if (phase in gaps) gaps[phase] = Math.max(gaps[phase], (now - last) / 1000);
      }
    }),
  );
  await new Promise((resolve) => setTimeout(resolve, 1500));
  phase = "during";
  const first = await firstOf(prompt, all[0].decoder.vocabularySize);
  phase = "end";
  await work;
  await Promise.all(all.map(({ decoder }) => decoder.dispose()));
  return { ...gaps, first };
}

/** Requests about the sequences of a model. @param {import("../dist/index.js").LanguageModel} model */
export function sequenceRequests(model) {
  let prompts = 0;
  const firstToken = (/** @type {readonly number[]} */ ids) => firstTokenOf(model, ids);
  const newIds = (/** @type {number} */ count, vocabulary) => distinctIds(prompts++, count, vocabulary);

  async function decoders(count, context) {
    return Promise.all(
      Array.from({ length: count }, async (_, i) => {
        const decoder = model.createDecoder();
        const id = next(await decoder.prefill(distinctIds(i, context, decoder.vocabularySize)));
        return { decoder, id };
      }),
    );
  }

  const disposeAll = (/** @type {{ decoder: any }[]} */ all) =>
    Promise.all(all.map(({ decoder }) => decoder.dispose()));

  return {
    /** Tokens a second of so many sequences together. */
    async aggregate({ sequences, tokens, context }) {
      const all = await decoders(sequences, context);
      const seconds = await secondsOf(() =>
        Promise.all(
          all.map(async (one) => {
            for (let i = 0; i < tokens; i++) one.id = next(await one.decoder.step(one.id));
          }),
        ),
      );
      await disposeAll(all);
      return (sequences * tokens) / seconds;
    },
    /** Seconds of a step of so many rows, logits of all of them wanted. */
    async rows({ rows, context }) {
      const [{ decoder }] = await decoders(1, context);
      const ids = newIds(rows, decoder.vocabularySize);
      const times = [];
      for (let i = 0; i < 5; i++) {
        times.push(await secondsOf(() => (rows === 1 ? decoder.step(ids[0]) : decoder.allLogits(ids))));
        decoder.rewind(context);
      }
      await decoder.dispose();
      return times.sort((a, b) => a - b)[2];
    },
    /** Seconds to the first token of a prompt whose first tokens are in the store, from a prompt of other last ones. */
    async stored({ stored, tokens }) {
      const { vocabularySize } = model.createDecoder();
      const shared = distinctIds(1_000_000, stored, vocabularySize);
      await firstToken([...shared, ...newIds(tokens - stored, vocabularySize)]);
      return firstToken([...shared, ...newIds(tokens - stored, vocabularySize)]);
    },
    /** Seconds to the first token of a prompt of which nothing is stored. */
    async fresh({ tokens }) {
      return firstToken(newIds(tokens, model.createDecoder().vocabularySize));
    },
    /** Writes what is stored of the prompts of `stored` to a file. */
    async save({ stored, path }) {
      const prompt = [...distinctIds(1_000_000, stored, model.createDecoder().vocabularySize), 0];
      const tokens = await savePrefix(model, prompt, path);
      return { tokens, bytes: statSync(path).size };
    },
    /** Reads such a file; seconds of that, and to the first token of a prompt that begins so. */
    async restored({ stored, tokens, path }) {
      const read = await secondsOf(() => restorePrefix(model, path));
      const { vocabularySize } = model.createDecoder();
      const shared = distinctIds(1_000_000, stored, vocabularySize);
      rmSync(path);
      return { read, first: await firstToken([...shared, ...newIds(tokens - stored, vocabularySize)]) };
    },
    /** The longest of the steps that a prompt takes, of so many rows each, when it is alone; seconds. */
    async chunks({ prompt, rows }) {
      const decoder = model.createDecoder();
      const ids = newIds(prompt, decoder.vocabularySize);
      let longest = 0;
      for (let start = 0; start < prompt; start += rows)
        longest = Math.max(longest, await secondsOf(() => decoder.prefill(ids.slice(start, start + rows))));
      await decoder.dispose();
      return longest;
    },
    gaps: (request) => gapsOf(decoders, (count, vocabulary) => firstToken(newIds(count, vocabulary)), request),
  };
}
