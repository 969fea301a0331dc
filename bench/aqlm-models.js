/** Compares whole models with AQLM weights with the same models in 4 bits: speed, and resident memory. */
import { watched } from "./calm.js";
import { EngineProcess } from "./engine-process.js";
import { AQLM, programOf } from "./programs.js";
import { digits, median } from "./report.js";
import { shapeNamed } from "./shapes.js";

const BASE = "4-bit g32";
const DECODE_TOKENS = 24;
const PREFILL_TOKENS = 128;

/** Seconds of decoding and of a prompt, both programs loaded and asked in turn. */
async function modelTimes(shape, threads, rounds) {
  const schemes = [BASE, AQLM];
  const engines = [];
  for (const scheme of schemes)
    engines.push(await EngineProcess.start("ours", { path: await programOf(shape, scheme), threads }));
  const times = schemes.map(() => ({ prefill: [], decode: [], others: 0 }));
  for (let round = 0; round < rounds; round++)
    for (const [i, engine] of engines.entries()) {
      const ask = async (request) => {
        const { result, others } = await watched([process.pid, engine.pid], () => engine.ask(request));
        times[i].others = Math.max(times[i].others, others);
        return result;
      };
      times[i].prefill.push(await ask({ what: "prefill", tokens: PREFILL_TOKENS }));
      times[i].decode.push((await ask({ what: "decode", tokens: DECODE_TOKENS }))[0]);
    }
  for (const engine of engines) await engine.stop();
  return schemes.map((scheme, i) => ({
    scheme,
    prefill: PREFILL_TOKENS / median(times[i].prefill),
    decode: DECODE_TOKENS / median(times[i].decode),
    others: times[i].others,
  }));
}

/** Rows of a table. @param {string} shape @param {number} threads @param {number} rounds */
export async function modelSpeeds(shape, threads, rounds) {
  const [base, aqlm] = await modelTimes(shape, threads, rounds);
  const rows = [base, aqlm].map((found) => [
    `${shape}, ${found.scheme}`,
    String(threads),
    digits(found.decode),
    (found.decode / base.decode).toFixed(2),
    digits(found.prefill),
    (found.prefill / base.prefill).toFixed(2),
    found.others.toFixed(2),
  ]);
  for (const row of rows) console.error(row.join("  "));
  return rows;
}

/** Rows of a table: bytes of a program of a shape cut to fewer layers, from them those of all, and what a process has. */
export async function modelMemory(cut, whole, context, measure) {
  const { layers: cutLayers } = shapeNamed(cut);
  const { layers } = shapeNamed(whole);
  const sizes = await memoryOf(cut, context);
  const { hidden, vocabulary } = shapeNamed(whole);
  // The embedding has scales of 32 bits and zero points of 8, the head scales of 16.
  const ends = vocabulary * hidden * ((5.25 + 4.5) / 8);
  const constants = ends + ((sizes.constants - ends) * layers) / cutLayers;
  const state = (sizes.state * layers) / cutLayers;
  const computed = [`${whole}, computed`, constants, sizes.scratch, state, null];
  const rows = [[`${cut}, measured`, sizes.constants, sizes.scratch, sizes.state, sizes.peak], computed];
  if (measure) {
    const found = await memoryOf(whole, context);
    rows.push([`${whole}, measured`, found.constants, found.scratch, found.state, found.peak]);
  }
  const gigabytes = (value) => (value === null ? "" : (value / 1e9).toFixed(3));
  return rows.map(([name, ...sizes]) => {
    const sum = sizes.slice(0, 3).reduce((total, size) => total + size, 0);
    return [name, ...sizes.slice(0, 3).map(gigabytes), gigabytes(sum), gigabytes(sizes[3])];
  });
}

async function memoryOf(shape, context) {
  const engine = await EngineProcess.start("ours", { path: await programOf(shape, AQLM, context), threads: 2 });
  await engine.ask({ what: "prefill", tokens: PREFILL_TOKENS });
  await engine.ask({ what: "decode", tokens: 8 });
  const sizes = await engine.ask({ what: "memory" });
  const peak = await engine.ask({ what: "peak" });
  await engine.stop();
  return { ...sizes, peak };
}
