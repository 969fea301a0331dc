/** Rotary embedding and attention in one call, made of the two reference kernels: the same values. */

import { type Kernel, referenceRow } from "../../contract.ts";
import type { RopeSequenceAttentionArgs, SequenceAttentionArgs } from "./fields.ts";
import { updateAndAttendReference } from "./reference.ts";
import { ropeReference } from "./rope-reference.ts";

const noScratch = new Uint8Array(0);

/** Sizes of queries, keys and values. */
interface HeadSizes {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
}

/** Offsets, in floats, of queries, keys and values [tokens, heads, headDim] in scratch. */
function rotatedPlaces(tokens: number, { heads, kvHeads, headDim }: HeadSizes) {
  const q = tokens * heads * headDim;
  const kv = tokens * kvHeads * headDim;
  return { q: 0, k: q, v: q + kv, length: q + 2 * kv };
}

/** Queries, keys and values in scratch. `run` copies them from qkv and rotates queries and keys. */
function rotated(
  tokens: number,
  args: HeadSizes & Pick<RopeSequenceAttentionArgs, "qkv" | "angles" | "half">,
  scratch: Uint8Array,
) {
  const { qkv, angles, half, heads, kvHeads, headDim } = args;
  const places = rotatedPlaces(tokens, args);
  const all = new Float32Array(scratch.buffer, scratch.byteOffset, places.length);
  const [q, k, v] = [all.subarray(0, places.k), all.subarray(places.k, places.v), all.subarray(places.v)];
  const turn = (x: Float32Array, count: number) =>
    ropeReference.bind({ tokens, heads: count, headDim, half, x, angles, y: x }, noScratch, 1);
  const turns = [turn(q, heads), turn(k, kvHeads)];
  const [columns, kv] = [(heads + 2 * kvHeads) * headDim, kvHeads * headDim];
  const run = () => {
    for (let t = 0; t < tokens; t++) {
      const row = qkv.subarray(t * columns, (t + 1) * columns);
      q.set(row.subarray(0, columns - 2 * kv), t * heads * headDim);
      k.set(row.subarray(columns - 2 * kv, columns - kv), t * kv);
      v.set(row.subarray(columns - kv), t * kv);
    }
    for (const step of turns) step();
  };
  return { q, k, v, run, rest: scratch.subarray(rotatedBytes(tokens, args)) };
}

function rotatedBytes(tokens: number, sizes: HeadSizes): number {
  return Math.ceil(rotatedPlaces(tokens, sizes).length / 2) * 8;
}

export const ropeUpdateAndAttendReference: Kernel<RopeSequenceAttentionArgs> = {
  ...referenceRow,
  name: "rope_update_and_attend_f32_1x1x1_reference",
  scratchBytes: (args, threads) =>
    rotatedBytes(args.rows, args) +
    updateAndAttendReference.scratchBytes!(args as unknown as SequenceAttentionArgs, threads),
  bind(args, scratch, threads) {
    const { q, k, v, run, rest } = rotated(args.rows, args, scratch);
    const attend = updateAndAttendReference.bind({ ...args, q, k, v }, rest, threads);
    return () => {
      run();
      attend();
    };
  },
};
