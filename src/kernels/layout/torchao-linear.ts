/**
 * TorchAO's "universal" linear layout (packed-weights header type 1, nr 8, kr 16, sr 2), byte for byte, for interchange with
 * ExecuTorch: torchao/csrc/cpu/torch_free_kernels/weight_packing. Its header lacks n, k and the group size, which the
 * operator's arguments give.
 */
import { ShapeError } from "../../errors.ts";
import { groupCount, type QuantizedWeights, type WeightSpec } from "../../quantized.ts";
import type { PackedLayout, PackedWeights, WeightRow } from "../contract.ts";
import { SUMMED_COLUMNS_MAX, sizeRefusal } from "./header.ts";
import { chunkReader, packChunk } from "./torchao-bits.ts";

export const TORCHAO_MAGIC = 6712;
export const TORCHAO_HEADER_BYTES = 64;
const TYPE_LINEAR_UNIVERSAL = 1;
const ROWS = 8;
const K_STEP = 16;
const SEGMENT = 8;
const CHUNK = 128;

interface Geometry {
  readonly groups: number;
  readonly groupBytes: number;
  readonly qvalsBytes: number;
  readonly panelBytes: number;
}

function geometryOf(spec: WeightSpec, hasBias: boolean): Geometry {
  const groups = groupCount(spec);
  const qvalsBytes = (ROWS * Math.min(spec.groupSize, spec.k) * spec.bits) / 8;
  const groupBytes = qvalsBytes + ROWS * (spec.hasZeros ? 12 : 8);
  return { groups, qvalsBytes, groupBytes, panelBytes: groups * groupBytes + (hasBias ? 4 * ROWS : 0) };
}

export const torchaoUniversal: PackedLayout = {
  id: 2,
  name: "torchao_universal",
  nr: ROWS,
  kr: K_STEP,
  sr: K_STEP / SEGMENT,
  isOfPanels: false,

  refusal(spec) {
    const groupSize = Math.min(spec.groupSize, spec.k);
    if (spec.hasLevels) return "codebooks are not stored";
    if (spec.hasMinima) return "minima are not stored";
    if (spec.scaleDType !== "f32") return `scales must be f32, found ${spec.scaleDType}`;
    if (groupSize % K_STEP !== 0) return `the group size must be a multiple of 16, found ${groupSize}`;
    if (groupSize > SUMMED_COLUMNS_MAX)
      return `groups may have ${SUMMED_COLUMNS_MAX} weights at most, not ${groupSize}`;
    if (spec.k % groupSize !== 0) return `k must be a multiple of the group size ${groupSize}, found ${spec.k}`;
    return sizeRefusal(spec);
  },

  padded(spec) {
    const one = spec.groupSize >= spec.k;
    const step = one ? K_STEP : spec.groupSize;
    const k = Math.ceil(spec.k / step) * step;
    return k === spec.k ? spec : { ...spec, k, groupSize: one ? k : spec.groupSize };
  },

  byteLength(spec, hasBias) {
    return TORCHAO_HEADER_BYTES + Math.ceil(spec.n / ROWS) * geometryOf(spec, hasBias).panelBytes;
  },

  packer({ spec, bias, target }) {
    const view = new DataView(target.buffer, target.byteOffset, target.length);
    const { groups, groupBytes, panelBytes } = geometryOf(spec, bias !== null);
    return {
      add(part, firstRow) {
        for (let row = 0; row < part.n; row += ROWS) {
          const start = TORCHAO_HEADER_BYTES + ((firstRow + row) / ROWS) * panelBytes;
          for (let group = 0; group < groups; group++) packGroup(part, row, group, target, start + group * groupBytes);
          for (let lane = 0; bias && lane < ROWS && row + lane < part.n; lane++)
            view.setFloat32(start + groups * groupBytes + 4 * lane, bias[firstRow + row + lane]!, true);
        }
      },
      finish() {
        const flags = [spec.hasZeros ? 1 : 0, bias ? 1 : 0];
        const header = [TORCHAO_MAGIC, TYPE_LINEAR_UNIVERSAL, spec.bits, ...flags, ROWS, K_STEP, K_STEP / SEGMENT];
        for (const [i, value] of header.entries()) view.setInt32(4 * i, value, true);
      },
    };
  },

  readRow(packed, row, target) {
    const { spec, bytes } = packed;
    const { groups, groupBytes, qvalsBytes, panelBytes } = geometryOf(spec, packed.hasBias);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const lane = row % ROWS;
    const panel = TORCHAO_HEADER_BYTES + Math.floor(row / ROWS) * panelBytes;
    for (let group = 0; group < groups; group++) {
      const start = panel + group * groupBytes;
      readGroupRow(packed, { start, lane, group }, target);
      const scales = start + qvalsBytes;
      target.scales[group] = view.getFloat32(scales + 4 * lane, true);
      target.zeros[group] = spec.hasZeros ? view.getInt32(scales + 8 * ROWS + 4 * lane, true) : 0;
    }
  },

  readBias(packed, row) {
    if (!packed.hasBias) return 0;
    const { groups, groupBytes, panelBytes } = geometryOf(packed.spec, true);
    const start = TORCHAO_HEADER_BYTES + Math.floor(row / ROWS) * panelBytes + groups * groupBytes;
    return new DataView(packed.bytes.buffer, packed.bytes.byteOffset).getFloat32(start + 4 * (row % ROWS), true);
  },
};

/**
 * Reads the spec of TorchAO linear weights. ShapeError when the header or the size does not match n, k and the group size.
 * `length` is that of the whole buffer; `bytes` may be only its start.
 */
export function readTorchaoHeader(
  bytes: Uint8Array,
  { n, k, groupSize }: { n: number; k: number; groupSize: number },
  length = bytes.length,
): { spec: WeightSpec; hasBias: boolean } {
  const view = new DataView(bytes.buffer, bytes.byteOffset, TORCHAO_HEADER_BYTES);
  const field = (index: number) => view.getInt32(4 * index, true);
  if (field(1) !== TYPE_LINEAR_UNIVERSAL)
    throw new ShapeError(`packed weights: expected TorchAO type ${TYPE_LINEAR_UNIVERSAL} but found type ${field(1)}`);
  const bits = field(2);
  if (bits < 1 || bits > 8 || field(5) !== ROWS || field(6) !== K_STEP || field(7) !== K_STEP / SEGMENT)
    throw new ShapeError(
      `packed weights: expected 1..8 bits and nr 8, kr 16, sr 2 but found ${bits} bits and nr ${field(5)}, kr ${field(6)}, sr ${field(7)}`,
    );
  if ([n, k, groupSize].some((size) => !Number.isSafeInteger(size) || size < 1))
    throw new ShapeError(
      `packed weights: expected positive n, k and group size but found n ${n}, k ${k}, group size ${groupSize}`,
    );
  const spec: WeightSpec = { n, k, groupSize, bits, hasZeros: field(3) !== 0, hasLevels: false, scaleDType: "f32" };
  const hasBias = field(4) !== 0;
  const refusal = torchaoUniversal.refusal(spec);
  if (refusal) throw new ShapeError(`packed weights: ${refusal}`);
  const expected = torchaoUniversal.byteLength(spec, hasBias);
  if (expected !== length) throw new ShapeError(`packed weights: expected ${expected} bytes but found ${length}`);
  return { spec, hasBias };
}

/** Index of weight `i` (0..15) of `lane` in a chunk of 128 values: segments of 8 k, lane by lane. */
function chunkIndex(lane: number, i: number): number {
  return Math.floor(i / SEGMENT) * ROWS * SEGMENT + lane * SEGMENT + (i % SEGMENT);
}

function packGroup(weights: QuantizedWeights, row: number, group: number, target: Uint8Array, at: number): void {
  const { n, k, bits, qvals, scales, zeros } = weights;
  const { groups, qvalsBytes } = geometryOf(weights, false);
  const groupSize = Math.min(weights.groupSize, k);
  const offset = bits < 8 ? 1 << (bits - 1) : 0;
  const values = new Uint8Array(CHUNK);
  const sums = new Int32Array(ROWS);
  for (let start = 0; start < groupSize; start += K_STEP) {
    for (let lane = 0; lane < ROWS; lane++) {
      for (let i = 0; i < K_STEP; i++) {
        const q = row + lane < n ? qvals[(row + lane) * k + group * groupSize + start + i]! : 0;
        values[chunkIndex(lane, i)] = q + offset;
        sums[lane]! += q;
      }
    }
    packChunk(bits, CHUNK, { values, from: 0 }, target, at + (start * ROWS * bits) / 8);
  }
  const view = new DataView(target.buffer, target.byteOffset, target.length);
  for (let lane = 0; lane < ROWS; lane++) {
    const index = (row + lane) * groups + group;
    const inside = row + lane < n;
    view.setFloat32(at + qvalsBytes + 4 * lane, inside ? scales[index]! : 0, true);
    view.setInt32(at + qvalsBytes + 4 * (ROWS + lane), sums[lane]!, true);
    if (zeros) view.setInt32(at + qvalsBytes + 4 * (2 * ROWS + lane), inside ? zeros[index]! : 0, true);
  }
}

function readGroupRow(
  packed: PackedWeights,
  where: { start: number; lane: number; group: number },
  target: WeightRow,
): void {
  const { bits, k } = packed.spec;
  const groupSize = Math.min(packed.spec.groupSize, k);
  const offset = bits < 8 ? 1 << (bits - 1) : 0;
  const read = chunkReader(bits, CHUNK);
  for (let start = 0; start < groupSize; start += K_STEP) {
    const from = where.start + (start * ROWS * bits) / 8;
    for (let i = 0; i < K_STEP; i++)
      target.qvals[where.group * groupSize + start + i] = read(packed.bytes, from, chunkIndex(where.lane, i)) - offset;
  }
}
