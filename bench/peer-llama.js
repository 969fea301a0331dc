/** node-llama-cpp as an engine: a GGUF file, token ids, the CPU. Started by engine-process.js. */
import { distinctIds, randomIds, serveEngine, timed } from "./engine-process.js";
import { CHUNK_LENGTH } from "./programs.js";
import { CONTEXT_LENGTH } from "./shapes.js";

await serveEngine(async ({ path, threads, contextLength = CONTEXT_LENGTH }) => {
  const { getLlama, InputLookupTokenPredictor, LlamaLogLevel } = await import("node-llama-cpp");
  const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: threads });
  const model = await llama.loadModel({ modelPath: path });
  const context = await model.createContext({ contextSize: contextLength, batchSize: CHUNK_LENGTH, threads });
  const sequence = context.getSequence();
  const settings = { temperature: 0, yieldEogToken: true };
  /** Tokens after those that are in the context; the next one is computed when it is asked for. */
  let tokens;
  const vocabulary = [...model.iterateAllTokens()].length;
  return {
    vocabulary,
    async prefill(ids) {
      await tokens?.return();
      await sequence.clearHistory();
      tokens = sequence.evaluate(ids, settings);
      await tokens.next();
    },
    async decode(count) {
      for (let i = 0; i < count; i++) await tokens.next();
    },
    others: {
      /** Reads a span of a prompt whose tokens before were read. */
      async span({ from, to }) {
        if (from === 0) {
          await tokens?.return();
          await sequence.clearHistory();
        }
        const ids = randomIds(to, vocabulary).slice(from);
        return timed(() => sequence.controlledEvaluate(ids));
      },
      /** Of each token after a prompt: how many others llama.cpp finds likelier there. */
      async ranks({ prompt, tokens }) {
        await sequence.clearHistory();
        const wanted = prompt.length - 1;
        const input = [...prompt, ...tokens.slice(0, -1)].map((id, i) =>
          i < wanted ? id : [id, { generateNext: { probabilities: true, options: { temperature: 1 } } }],
        );
        const found = (await sequence.controlledEvaluate(input)).slice(wanted);
        return found.map(({ next }, i) => {
          const own = next.probabilities.get(tokens[i]) ?? 0;
          return [...next.probabilities.values()].filter((other) => other > own).length;
        });
      },
      /** Milliseconds a token of greedy answers to a prompt, with its own lookup in the prompt and without. */
      async lookup({ prompt, tokens, contextSize }) {
        const found = {};
        for (const way of ["off", "lookup"]) {
          const own = await model.createContext({ contextSize, batchSize: CHUNK_LENGTH, threads });
          const drafts = way === "lookup" ? { tokenPredictor: new InputLookupTokenPredictor() } : {};
          const text = own.getSequence(drafts).evaluate(prompt, settings);
          await text.next();
          const start = performance.now();
          let count = 0;
          while (count < tokens) {
            const { done, value } = await text.next();
            count++;
            if (done || model.isEogToken(value)) break;
          }
          found[way] = (performance.now() - start) / count;
          found.count = count;
          await own.dispose();
        }
        return found;
      },
      /** Tokens a second of so many sequences together, in a context of their own. */
      async aggregate({ sequences, tokens, context: length }) {
        const shared = await model.createContext({
          contextSize: length + tokens + 2,
          batchSize: CHUNK_LENGTH,
          sequences,
          threads,
        });
        const texts = Array.from({ length: sequences }, (_, i) =>
          shared.getSequence().evaluate(distinctIds(i, length, vocabulary), settings),
        );
        await Promise.all(texts.map((text) => text.next()));
        const start = performance.now();
        await Promise.all(
          texts.map(async (text) => {
            for (let i = 0; i < tokens; i++) await text.next();
          }),
        );
        const seconds = (performance.now() - start) / 1000;
        await shared.dispose();
        return (sequences * tokens) / seconds;
      },
    },
  };
});
