/**
 * Runs every WebAssembly kernel on several threads, again and again: the results of each round must equal those of one thread,
 * bit for bit, and these must be the reference kernel's. threads.js bundles it for Node and for a page.
 */
import "../../packages/aqlm/src/register.ts";
import { aqlmCalls } from "../../packages/aqlm/test/sample-calls.ts";
import { problemOf } from "../../src/kernels/families/sample-call.ts";
import { sampleCalls } from "../../src/kernels/families/sample-calls.ts";
import { WasmEngine } from "../../src/kernels/wasm/engine/engine.ts";
import { wasmFeatures } from "../../src/kernels/wasm/features.ts";
import { pagesBy, statesBy } from "../../src/kernels/wasm/kernel.ts";
import { bytesOf } from "../../src/tensor.ts";
import { raceFaults } from "../../test/support/wasm-races.ts";

/** @typedef {import("../../src/kernels/families/sample-call.ts").SampleCall} SampleCall */
/** @typedef {{ rounds: number, threads: readonly number[], rows: string }} StressOptions `rows`: a pattern of names */

/** Memory of an engine, which is made for a row and has its calls. */
const ENGINE_BYTES = 1 << 24;

/** Rounds that a plan has: threads that need not wake first meet in all parts of kernels. */
const ROUNDS_PER_PLAN = 25;
/** Ways to deal the tiles of a call to threads: many where threads take them from a counter, which says what meets what. */
const dealsOf = (/** @type {string} */ kernel) => (kernel.startsWith("expert_linear") ? 8 : 1);

/** Calls of the rows that this engine runs, by row. @param {string} rows */
function callsByRow(rows) {
  const features = new Set(/** @type {readonly string[]} */ (wasmFeatures()));
  const chosen = new RegExp(rows);
  /** @type {Map<string, SampleCall[]>} */
  const byRow = new Map();
  for (const call of [...sampleCalls(), ...aqlmCalls()]) {
    if (!chosen.test(call.kernel) || !call.needs.every((need) => features.has(need))) continue;
    byRow.set(call.kernel, [...(byRow.get(call.kernel) ?? []), call]);
  }
  return byRow;
}

/** A call in an engine's memory, and what its results must be. @param {SampleCall} call @param {WasmEngine} engine */
function placed(call, engine) {
  const places = new Map();
  const put = (/** @type {ArrayBufferView} */ view) => {
    const bytes = places.get(view) ?? engine.allocate(view.byteLength);
    bytes.set(bytesOf(view));
    places.set(view, bytes);
    return bytes.byteOffset;
  };
  const scratch = engine.allocate(call.scratchBytes(engine.threads));
  const addresses = { read: put, write: put, pages: pagesBy(put, put), states: statesBy(put, put) };
  const { step, results } = call.step({ ...addresses, scratch: scratch.byteOffset, threads: engine.threads });
  const alone = call.bind();
  alone.run();
  const problem = problemOf(call, alone.results);
  if (problem !== null) throw new Error(`on one thread: ${problem}`);
  const encoded = /** @type {const} */ ({ target: "wasm", scratch, prepare: () => step });
  return { call, encoded, found: places.get(results), expected: bytesOf(alone.results).slice() };
}

/** Results of a row that were wrong. @param {readonly SampleCall[]} calls @param {number} threads @param {number} rounds */
async function wrongResults(calls, threads, rounds) {
  const engine = new WasmEngine({ bytes: ENGINE_BYTES, threads });
  if (engine.threads !== threads) throw new Error(`expected ${threads} threads but found ${engine.threads}`);
  const items = Array.from({ length: ROUNDS_PER_PLAN }, () => calls.map((call) => placed(call, engine))).flat();
  const plan = engine.planCalls(items.map(({ encoded }) => encoded));
  /** @type {Map<string, number>} */
  const wrong = new Map();
  for (let round = 0; round < rounds; round += ROUNDS_PER_PLAN) {
    for (const { found } of items) found.fill(0xff);
    await plan.run(engine.abort);
    for (const { call, found, expected } of items) {
      if (found.every((/** @type {number} */ byte, /** @type {number} */ i) => byte === expected[i])) continue;
      const what = `${call.kernel} (${call.what})`;
      wrong.set(what, (wrong.get(what) ?? 0) + 1);
    }
  }
  plan.dispose();
  await engine.dispose();
  return [...wrong].map(([what, count]) => `${what}: wrong ${count} times on ${threads} threads`);
}

/**
 * Runs the rows, and tells what was wrong and how many calls were compared.
 * @param {StressOptions} options
 */
export async function stressRows({ rounds, threads, rows }) {
  const byRow = callsByRow(rows);
  const failures = [];
  let calls = 0;
  for (const own of byRow.values())
    for (const count of threads) {
      for (const call of own)
        for (let deal = 0; deal < dealsOf(call.kernel); deal++) failures.push(...raceFaults(call, count, deal));
      failures.push(...(await wrongResults(own, count, rounds)));
      calls += rounds * own.length;
    }
  return { rows: byRow.size, calls, failures };
}
