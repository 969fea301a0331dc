/** Quantizes float matrices to ggml's K-quants: chooses the type of each and encodes it. */

import type { Model } from "../../../checkpoint/model.ts";
import { InvalidArgumentError } from "../../../errors.ts";
import type { WeightSlot } from "../../../model/decoder.ts";
import { quantizeAffine } from "../../../quantize/affine.ts";
import type { Scheme } from "../../../quantize/scheme.ts";
import { weightSpec } from "../../../quantize/scheme.ts";
import { SUPER_BLOCK, SuperBlockQuantizer } from "../../../quantize/super-blocks.ts";
import { type BlockType, blockBytes, blockTypeFor, encodeBlocks } from "../encode-blocks.ts";
import { encodeSuperBlock, type SuperBlockType, superBlockTypes } from "../encode-super-blocks.ts";

/** Scheme for rows whose length is no multiple of 256. */
const fallback: Scheme = { bits: 8, groupSize: 32, mappingType: "symmetric", algorithm: "affine", scaleDType: "f16" };

type MatrixType = SuperBlockType | BlockType;

/**
 * Type of a matrix in a file of type `wanted`: Q6_K for the head and the embedding tied to it; null for a matrix that stays
 * float.
 */
export function matrixType({ decoder }: Model, slot: WeightSlot, wanted: SuperBlockType["name"]): MatrixType | null {
  const [n, k] = slot.shape as [number, number];
  if (k % SUPER_BLOCK !== 0) {
    const type = blockTypeFor(weightSpec(n, k, fallback));
    return typeof type === "string" ? null : type;
  }
  const head = decoder.slots.findLast(({ role }) => role === "linear");
  const isHead = slot.name === head?.name || slot.name === head?.tiedTo;
  return superBlockTypes[isHead ? "Q6_K" : wanted];
}

const isSuper = (type: MatrixType): type is SuperBlockType => Object.hasOwn(superBlockTypes, type.name);

/** Bytes of a matrix [n, k]. */
export function encodedBytes(type: MatrixType, n: number, k: number): number {
  return isSuper(type) ? (n * k * type.bytes) / SUPER_BLOCK : blockBytes(type, n, k);
}

const quantizers = new Map<string, SuperBlockQuantizer>();

/** Encodes rows of `k` values. InvalidArgumentError for NaN and infinity; `name` is the matrix's. */
export function encodeFloats(name: string, type: MatrixType, values: Float32Array, k: number): Uint8Array {
  const n = values.length / k;
  const bad = values.findIndex((value) => !Number.isFinite(value));
  if (bad >= 0)
    throw new InvalidArgumentError(`${name}: expected finite weights but found ${values[bad]} in column ${bad % k}`);
  if (!isSuper(type)) return encodeBlocks(type, quantizeAffine(values, { ...fallback, n, k }));
  const quantizer = quantizers.get(type.name) ?? new SuperBlockQuantizer(type);
  quantizers.set(type.name, quantizer);
  const bytes = new Uint8Array(encodedBytes(type, n, k));
  for (let start = 0, at = 0; start < values.length; start += SUPER_BLOCK, at += type.bytes)
    encodeSuperBlock(type.name, quantizer.quantize(values, start), bytes, at);
  return bytes;
}
