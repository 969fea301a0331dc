/** Compares decoding at a long context with decoding at its beginning, and with reading the same bytes from memory. */
import { alternate } from "./compare-parts.js";
import { EngineProcess } from "./engine-process.js";
import { gigabytesOfToken } from "./memory-bound.js";
import { programOf } from "./programs.js";
import { digits, median, table } from "./report.js";
import { shapeNamed } from "./shapes.js";

/**
 * Shapes, positions and types of keys and values, with bytes of an element: int8 has four more for each head's scale, int4 six
 * for its steps.
 */
const CASES = [
  { shape: "smollm2", context: 8192, kvCache: "f16", bytes: 2 },
  { shape: "qwen2.5-0.5b", context: 32768, kvCache: "f16", bytes: 2 },
  { shape: "qwen2.5-0.5b", context: 32768, kvCache: "int8", bytes: 1, scale: 4 },
  { shape: "qwen2.5-0.5b", context: 32768, kvCache: "int4", bytes: 0.5, scale: 6 },
  { shape: "qwen2.5-0.5b", context: 32768, kvCache: "f32", bytes: 4 },
];
/** Tokens of one stretch of decoding. */
const STRETCH = 12;

/** GB of keys and values that a token reads. */
function gigabytesOfKeys({ shape, context, bytes, scale = 0 }) {
  const { layers, kvHeads, headDim } = shapeNamed(shape);
  return (2 * layers * context * kvHeads * (headDim * bytes + scale)) / 1e9;
}

/**
 * The section of a report. @param {{ rounds: number, patience: number, threads: number[] }} plan @param {string} scheme
 */
export async function longContexts(plan, scheme) {
  const rows = [];
  for (const one of CASES) {
    const path = await programOf(one.shape, scheme);
    const { context, kvCache } = one;
    const cache = { contextLength: context + 2 * STRETCH, kvCache };
    const engine = await EngineProcess.start("ours", { path, threads: plan.threads[0], cache });
    const request = { what: "contexts", contexts: [0, context], tokens: STRETCH, runs: 4 * plan.rounds };
    const [none, far] = (await engine.ask(request)).map((seconds) => (1000 * median(seconds)) / STRETCH);
    const memory = (await alternate(plan, { memory: { engine, request: { what: "bandwidth" } } })).memory.value / 1e9;
    await engine.stop();
    const weights = await gigabytesOfToken(path);
    const keys = gigabytesOfKeys(one);
    const bound = (1000 * (weights + keys)) / memory;
    rows.push([
      one.shape,
      kvCache,
      String(context),
      ...[none, far, weights, keys, memory, bound, keys / ((far - none) / 1000)].map(digits),
    ]);
  }
  const head = [
    "shape",
    "keys and values",
    "context",
    "ms a token at 0",
    "ms a token there",
    "GB of weights",
    "GB of keys and values",
    "memory gives, GB a second",
    "ms to read both",
    "keys and values, GB a second",
  ];
  return (
    "## Long contexts\n\nDecoding one sequence in stretches at both contexts in turn. What memory gives is measured by plain reads " +
    "of the weights by the same threads; the last column is what keys and values are read with in the time that they " +
    `add.\n\n${table(head, rows)}`
  );
}
