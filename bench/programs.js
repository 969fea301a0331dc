/** The measured .pte files: a shape quantized by one of several schemes, written once by the public API. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  embedding,
  exportProgram,
  int8DynamicActivationIntxWeight,
  loadCheckpoint,
  quantize,
  sharedEmbedding,
} from "../dist/index.js";
import { aqlmCheckpointOf, checkpointOf, folder } from "./make-model.js";
import { CONTEXT_LENGTH, shapeNamed } from "./shapes.js";

/**
 * Bits and group size of all matrices, a tied embedding among them, and what keys and values are kept in when the program is
 * loaded, where it is not f16.
 * @type {Readonly<Record<string, { bits: number, groupSize: number, kvCache?: "f32" | "f16" | "int8" }>>}
 */
export const schemes = {
  "4-bit g32": { bits: 4, groupSize: 32 },
  "4-bit g32, int8 cache": { bits: 4, groupSize: 32, kvCache: "int8" },
  "4-bit g128": { bits: 4, groupSize: 128 },
  "2-bit g32": { bits: 2, groupSize: 32 },
  "3-bit g32": { bits: 3, groupSize: 32 },
  "8-bit g32": { bits: 8, groupSize: 32 },
};

/**
 * What programs are loaded with. @param {keyof typeof schemes | string} scheme
 * @returns {{ contextLength: number, kvCache: "f32" | "f16" | "int8" }}
 */
export function cacheOf(scheme) {
  return { contextLength: CONTEXT_LENGTH, kvCache: schemes[scheme]?.kvCache ?? "f16" };
}

/** AQLM weights; embedding and head in 4 bits. */
export const AQLM = "aqlm 2x8";

/** Most tokens of one call, and of one where memory is short. */
export const CHUNK_LENGTH = 512;
const PREFILL_LENGTH = 128;

/** @param {keyof typeof schemes} scheme */
function schemeNamed(scheme) {
  const found = schemes[scheme];
  if (!found) throw new RangeError(`scheme "${scheme}": expected one of ${Object.keys(schemes).join(", ")}`);
  return found;
}

/** Path of the program, exported when it is not there. @param {string} shape @param {keyof typeof schemes | typeof AQLM} scheme @param {number} [context] of AQLM programs */
export async function programOf(shape, scheme, context) {
  if (scheme === AQLM) return aqlmProgramOf(shape, context);
  const { bits, groupSize } = schemeNamed(scheme);
  const path = join(folder, `${shape}-${bits}bit-g${groupSize}.pte`);
  if (!existsSync(path)) await writeProgram(await checkpointOf(shape), shape, scheme, path);
  return path;
}

/** Writes a checkpoint of a shape as a program. @param {string} checkpoint @param {string} shape @param {keyof typeof schemes} scheme @param {string} path */
export async function writeProgram(checkpoint, shape, scheme, path) {
  const { bits, groupSize } = schemeNamed(scheme);
  const model = await loadCheckpoint(checkpoint);
  const rows = shapeNamed(shape).tied ? sharedEmbedding : embedding;
  quantize(model, [
    int8DynamicActivationIntxWeight({ bits, groupSize, scaleDType: "f16" }),
    rows({ bits, groupSize, mappingType: "symmetric", scaleDType: "f16" }),
  ]);
  const start = performance.now();
  await exportProgram(model, path, { maxSeqLen: CHUNK_LENGTH });
  await model.close();
  console.error(`${path}: quantized and written in ${((performance.now() - start) / 1000).toFixed(1)} s`);
}

/** @param {string} shape @param {number} [context] */
async function aqlmProgramOf(shape, context = CONTEXT_LENGTH) {
  const isShort = context < CONTEXT_LENGTH;
  const path = join(folder, `${shape}-aqlm-2x8${isShort ? `-${context}` : ""}.pte`);
  if (existsSync(path)) return path;
  const model = await loadCheckpoint(await aqlmCheckpointOf(shape));
  const four = { bits: 4, groupSize: 32, scaleDType: "f16" };
  if (shapeNamed(shape).tied) quantize(model, [sharedEmbedding({ ...four, mappingType: "symmetric" })]);
  else quantize(model, [embedding(four)], { head: int8DynamicActivationIntxWeight(four) });
  await exportProgram(model, path, {
    maxSeqLen: isShort ? PREFILL_LENGTH : CHUNK_LENGTH,
  });
  await model.close();
  return path;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [shape = "1b", ...wanted] = process.argv.slice(2);
  for (const scheme of wanted.length > 0 ? wanted : Object.keys(schemes)) console.log(await programOf(shape, scheme));
}
