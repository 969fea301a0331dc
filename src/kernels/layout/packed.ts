/** Packs, opens and unpacks quantized weights in any linear layout. */
import { ShapeError } from "../../errors.ts";
import { groupCount, type QuantizedWeights, type WeightSpec } from "../../quantized.ts";
import type { LayoutPacker, PackedLayout, PackedWeights, WeightRow } from "../contract.ts";
import { checksum, HEADER_BYTES, MAGIC, readHeader, storedByteLength } from "./header.ts";
import { panel16 } from "./panel16.ts";
import { panel32 } from "./panel32.ts";
import { readTorchaoHeader, TORCHAO_HEADER_BYTES, TORCHAO_MAGIC, torchaoUniversal } from "./torchao-linear.ts";

/** All layouts of quantized linear weights, best first. */
export const layouts: readonly PackedLayout[] = [panel32, panel16, torchaoUniversal];

/** Largest number of rows of a panel: panels of every layout begin at multiples of it. */
export const PANEL_ROWS_MAX = Math.max(...layouts.map(({ nr }) => nr));

/** The layout of that name; ShapeError lists the known ones. */
export function layoutNamed(name: string): PackedLayout {
  const layout = layouts.find((candidate) => candidate.name === name);
  if (!layout) throw new ShapeError(`layout "${name}": expected one of ${layouts.map((l) => l.name).join(", ")}`);
  return layout;
}

/** Packs weights and an optional float32 bias [n] into a new buffer. */
export function packWeights(weights: QuantizedWeights, bias: Float32Array | null, layout: PackedLayout): Uint8Array {
  const { packer, target } = startPacking(weights, bias, layout);
  packer.add(weights, 0);
  packer.finish();
  return target;
}

/** Makes a buffer for weights of this spec and a packer that fills it. */
export function startPacking(
  spec: WeightSpec,
  bias: Float32Array | null,
  layout: PackedLayout,
): { packer: LayoutPacker; target: Uint8Array } {
  const refusal = layout.refusal(spec);
  if (refusal) throw new ShapeError(`layout ${layout.name}: ${refusal}`);
  const target = new Uint8Array(layout.byteLength(spec, bias !== null));
  return { packer: layout.packer({ spec, bias, target }), target };
}

/** Sizes of packed weights, as the operator's arguments give them. */
export interface PackedShape {
  readonly n: number;
  readonly k: number;
  readonly groupSize: number;
}

/**
 * Opens packed weights without copying. `shape` must match the header (TorchAO's headers do not contain it), or be that of the
 * first rows, a multiple of `PANEL_ROWS_MAX`, which are then opened alone.
 */
export function openPacked(bytes: Uint8Array, shape: PackedShape): PackedWeights {
  if (bytes.byteOffset % 4 !== 0)
    throw new ShapeError(
      `packed weights: expected a place that is a multiple of 4 bytes but found ${bytes.byteOffset}`,
    );
  return { ...describePacked(bytes, bytes.length, shape), bytes };
}

/** Opens packed weights at the start of a buffer that may be longer than they are, with room for other layouts. */
export function openPackedWithin(bytes: Uint8Array, shape: PackedShape): PackedWeights {
  const isOurs = bytes.length >= HEADER_BYTES && magicOf(bytes) === MAGIC;
  return openPacked(isOurs ? bytes.subarray(0, storedByteLength(bytes)) : bytes, shape);
}

function magicOf(bytes: Uint8Array): number {
  return bytes.length >= 4 ? new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true) : 0;
}

/** Describes packed weights, without their bytes, by the first bytes (64 suffice) of a buffer of `length` bytes. */
export function describePacked(bytes: Uint8Array, length: number, shape: PackedShape): Omit<PackedWeights, "bytes"> {
  const magic = magicOf(bytes);
  if (magic === TORCHAO_MAGIC && bytes.length >= TORCHAO_HEADER_BYTES)
    return { layout: torchaoUniversal, levels: null, ...readTorchaoHeader(bytes, shape, length) };
  if (magic !== MAGIC)
    throw new ShapeError(`packed weights: expected a lowbit or TorchAO header but found 0x${magic.toString(16)}`);
  const { layoutId, tile, spec, hasBias, levels } = readHeader(bytes, length);
  const layout = layouts.find((candidate) => candidate.id === layoutId);
  if (!layout) throw new ShapeError(`packed weights: layout ${layoutId} is not known to this version`);
  const { nr, kr, sr } = layout;
  if (nr !== tile.nr || kr !== tile.kr || sr !== tile.sr)
    throw new ShapeError(
      `packed weights: layout ${layout.name} has nr ${nr}, kr ${kr}, sr ${sr} but the header says nr ${tile.nr}, kr ${tile.kr}, sr ${tile.sr}`,
    );
  const refusal = layout.refusal(spec);
  if (refusal) throw new ShapeError(`packed weights: layout ${layout.name}: ${refusal}`);
  const isPart = shape.n < spec.n && shape.n % PANEL_ROWS_MAX === 0;
  const agrees = (spec.n === shape.n || isPart) && spec.k === shape.k && spec.groupSize === shape.groupSize;
  if (!agrees)
    throw new ShapeError(
      `packed weights: expected n ${shape.n}, k ${shape.k}, group size ${shape.groupSize} but the header says n ${spec.n}, k ${spec.k}, group size ${spec.groupSize}`,
    );
  const expected = layout.byteLength(spec, hasBias);
  if (expected !== length) throw new ShapeError(`packed weights: expected ${expected} bytes but found ${length}`);
  return { layout, spec: isPart ? { ...spec, n: shape.n } : spec, hasBias, levels };
}

/** Description of the form of packed weights: equal for matrices that the same code can read. */
export function formOf({ layout, spec, hasBias }: Omit<PackedWeights, "bytes">): string {
  const { bits, n, k, groupSize, scaleDType, hasZeros, hasLevels, hasMinima = false, oddZero } = spec;
  const parts = {
    [oddZero === undefined ? "zero points" : `zero points of ${oddZero} with odd scales`]: hasZeros,
    "a codebook": hasLevels,
    minima: hasMinima,
    biases: hasBias,
  };
  const had = Object.entries(parts).flatMap(([name, has]) => (has ? [name] : []));
  const sizes = `${bits} bits [${n}, ${k}] in ${layout.name}, groups of ${groupSize} with ${scaleDType} scales`;
  return [sizes, ...had].join(", ");
}

/** Whether the payload matches the header's checksum; null for layouts without one. */
export function verifyPacked(packed: PackedWeights): boolean | null {
  if (packed.layout === torchaoUniversal) return null;
  return checksum(packed.bytes.subarray(HEADER_BYTES)) === readHeader(packed.bytes).payloadChecksum;
}

/** An empty row to read into. */
export function weightRow(spec: WeightSpec): WeightRow {
  const groups = groupCount(spec);
  return {
    qvals: new Int8Array(spec.k),
    scales: new Float32Array(groups),
    zeros: new Int8Array(groups),
    minima: new Float32Array(groups),
  };
}
