/** This package as an engine: a .pte file and token ids, through the public API. Started by engine-process.js. */
import { loadProgram } from "../dist/index.js";
import { randomIds, serveEngine, timed } from "./engine-process.js";
import { readBandwidth, requireAddon } from "./peak.js";
import { median } from "./report.js";
import { sequenceRequests } from "./sequence-requests.js";

/** As a sampler does it at temperature 0. @param {Float32Array} logits */
function largest(logits) {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
  return best;
}

/** Seconds of stretches of decoding at each of several contexts, in turn: [context][run]. */
async function decodeAtContexts(model, { contexts, tokens, runs }) {
  const sessions = [];
  for (const context of contexts) {
    const decoder = model.createDecoder();
    const logits = await decoder.prefill(randomIds(Math.max(1, context), decoder.vocabularySize));
    sessions.push({ decoder, next: largest(logits), length: decoder.position, seconds: [] });
  }
  for (let run = 0; run <= runs; run++)
    for (const session of sessions) {
      session.decoder.rewind(session.length);
      const start = performance.now();
      for (let i = 0; i < tokens; i++) session.next = largest(await session.decoder.step(session.next));
      // The first stretch binds kernels and touches memory.
      if (run > 0) session.seconds.push((performance.now() - start) / 1000);
    }
  return sessions.map(({ seconds }) => seconds);
}

/** A copy in memory of the addon, which is in huge pages where the system has them. @param {readonly Uint8Array[]} memories */
function copyOf(memories) {
  return memories.map((memory) => {
    const buffer = requireAddon().allocate(memory.length);
    if (!buffer) throw new Error(`no memory for a copy of ${memory.length} bytes`);
    const copy = new Uint8Array(buffer);
    copy.set(memory);
    return copy;
  });
}

await serveEngine(async ({ path, threads, cache }) => {
  const model = await loadProgram(path, { threads, ...cache });
  const decoder = model.createDecoder();
  let logits;
  let copied;
  return {
    vocabulary: decoder.vocabularySize,
    async prefill(ids) {
      decoder.rewind(0);
      logits = await decoder.prefill(ids);
    },
    async decode(count) {
      for (let i = 0; i < count; i++) logits = await decoder.step(largest(logits));
    },
    others: {
      ...sequenceRequests(model),
      memory: () => model.program.memoryUse,
      /** Reads a span of a prompt whose tokens before were read. */
      async span({ from, to }) {
        if (from === 0) decoder.rewind(0);
        const ids = randomIds(to, decoder.vocabularySize).slice(from);
        return timed(async () => {
          logits = await decoder.prefill(ids);
        });
      },
      /** Seconds of tokens behind all that was read, and bytes a second of reading the weights. */
      async decodedBehind({ tokens }) {
        logits = await decoder.step(largest(logits));
        const { seconds } = await timed(async () => {
          for (let i = 0; i < tokens; i++) logits = await decoder.step(largest(logits));
        });
        return { far: seconds, memory: await readBandwidth(model.program.constants, threads, { pick: median }) };
      },
      contexts: (request) => decodeAtContexts(model, request),
      copy() {
        const start = performance.now();
        copied = copyOf(model.program.constants);
        const bytes = copied.reduce((sum, { length }) => sum + length, 0);
        return { seconds: (performance.now() - start) / 1000, bytes };
      },
      /** Bytes a second of reading the very weights, or their copy, with as many threads. */
      bandwidth: (request) =>
        readBandwidth(request.copied ? copied : model.program.constants, threads, {
          pick: median,
          ahead: request.ahead,
        }),
    },
  };
});
