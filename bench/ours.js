/** This package as an engine: a .pte file and token ids, through the public API. Started by engine-process.js. */
import { loadProgram } from "../dist/index.js";
import { serveEngine } from "./engine-process.js";
import { readBandwidth } from "./peak.js";

/** As a sampler does it at temperature 0. @param {Float32Array} logits */
function largest(logits) {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
  return best;
}

await serveEngine(async ({ path, threads }) => {
  const model = await loadProgram(path, { threads });
  const decoder = model.createDecoder();
  let logits;
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
      memory: () => model.program.memoryUse,
      /** Bytes a second of reading the very weights, with as many threads. */
      bandwidth: () => readBandwidth(model.program.constants, threads),
    },
  };
});
