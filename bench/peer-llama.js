/** node-llama-cpp as an engine: a GGUF file, token ids, the CPU. Started by engine-process.js. */
import { serveEngine } from "./engine-process.js";
import { CHUNK_LENGTH } from "./programs.js";
import { CONTEXT_LENGTH } from "./shapes.js";

await serveEngine(async ({ path, threads }) => {
  const { getLlama, LlamaLogLevel } = await import("node-llama-cpp");
  const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: threads });
  const model = await llama.loadModel({ modelPath: path });
  const context = await model.createContext({ contextSize: CONTEXT_LENGTH, batchSize: CHUNK_LENGTH, threads });
  const sequence = context.getSequence();
  const settings = { temperature: 0, yieldEogToken: true };
  /** Tokens after those that are in the context; the next one is computed when it is asked for. */
  let tokens;
  return {
    vocabulary: model.fileInfo.metadata.llama.vocab_size,
    async prefill(ids) {
      await tokens?.return();
      await sequence.clearHistory();
      tokens = sequence.evaluate(ids, settings);
      await tokens.next();
    },
    async decode(count) {
      for (let i = 0; i < count; i++) await tokens.next();
    },
  };
});
