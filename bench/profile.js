/**
 * Time of each kernel call of a model: decode at the start of the context and far into it, and prefill.
 * `node bench/profile.js [--shape 1b] [--scheme "4-bit g32"] [--threads 2] [--tokens 32] [--prefill 512]`, or with
 * `--program file.pte` in place of a shape.
 */
import { parseArgs } from "node:util";
import { loadProgram, Profile } from "../dist/index.js";
import { distinctIds } from "./engine-process.js";
import { programOf } from "./programs.js";
import { digits, table } from "./report.js";

const { values: options } = parseArgs({
  options: {
    program: { type: "string" },
    shape: { type: "string", default: "1b" },
    scheme: { type: "string", default: "4-bit g32" },
    threads: { type: "string", default: "2" },
    tokens: { type: "string", default: "32" },
    prefill: { type: "string", default: "512" },
    context: { type: "string", default: "2000" },
  },
});

const profile = new Profile();
const path = options.program ?? (await programOf(options.shape, options.scheme));
const model = await loadProgram(path, { threads: Number(options.threads), profile });
const decoder = model.createDecoder();
let prompts = 0;
/** Others each time, as what was read before is in the store. @param {number} count */
const ids = (count) => distinctIds(prompts++, count, decoder.vocabularySize);

/** @param {string} title @param {() => Promise<unknown>} work */
async function profiled(title, work) {
  profile.reset();
  await work();
  const entries = profile.entries();
  const total = profile.milliseconds;
  const inCalls = entries.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
  const row = (name, kernel, shapes, calls, ms) => [
    name,
    kernel,
    shapes,
    String(calls),
    digits(ms),
    calls ? digits((1000 * ms) / calls) : "",
    `${((100 * ms) / total).toFixed(1)} %`,
  ];
  const rows = entries.map((e) => row(e.operator, e.kernel, e.shapes, e.calls, e.milliseconds));
  rows.push(row("between calls", "", "", 0, total - inCalls), row("all", "", "", 0, total));
  console.log(`\n${title}\n\n${table(["operator", "kernel", "shapes", "calls", "ms", "µs a call", "share"], rows)}`);
}

async function decode() {
  for (const id of ids(Number(options.tokens))) await decoder.step(id);
}

const promptTokens = Number(options.prefill);
// The first calls of a size bind kernels and touch memory.
await decoder.prefill(ids(promptTokens));
await decode();
decoder.rewind(0);
await profiled(`prefill of ${promptTokens} tokens`, () => decoder.prefill(ids(promptTokens)));
decoder.rewind(1);
await profiled(`decode of ${options.tokens} tokens from the start`, decode);
const context = Number(options.context);
if (context > 0) {
  decoder.rewind(0);
  await decoder.prefill(ids(context));
  await profiled(`decode of ${options.tokens} tokens from ${context}`, decode);
}
