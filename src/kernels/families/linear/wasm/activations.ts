/**
 * Dynamic 8-bit quantization of activation rows, as src/kernels/families/linear/activations.ts defines it. Writes a record
 * (`recordPlaces`) for each group, or each block if blocks have scales; its values are padded with zeros. A tile is a row.
 */
import {
  type Body,
  type Expr,
  type Local,
  shuffle,
  shuffle4,
  when,
  whileDo,
} from "../../../wasm/assembler/expression.ts";
import { f32, f32x4, float, i8x16, i16x8, i32, i32x4, int, v128 } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { advance, elementAt, forRange, repeat } from "../../../wasm/generate/loops.ts";
import type { PanelShape } from "../../../wasm/generate/packed-panels.ts";
import { ArgumentBlock, type FieldsOf, type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import {
  activationBytes,
  type DotMode,
  factorOffset,
  recordBytes,
  recordCount,
  recordPlaces,
  seedBits,
} from "./dot-sums.ts";

const block = new ArgumentBlock({
  x: "ptr",
  records: "ptr",
  values: "ptr",
  scales: "ptr",
  zeros: "ptr",
  k: "i32",
  groups: "i32",
});
type Fields = FieldsOf<typeof block>;

/** Addresses of quantized rows, and their size. */
export interface QuantizedPlaces {
  /** [m, `recordCount`] records; see `recordPlaces`. */
  readonly records: number;
  /** int8 [m, padded k], only if the records have int16. */
  readonly values: number;
  /** float32 [m] each. */
  readonly scales: number;
  readonly zeros: number;
  readonly byteLength: number;
}

/** Places quantized rows from address `start` on, for `groups` stored groups. The size is affine in m. */
export function quantizedPlaces(
  start: number,
  m: number,
  groups: number,
  shape: PanelShape,
  mode: DotMode,
): QuantizedPlaces {
  let end = start;
  const take = (rowBytes: number) => {
    const at = end;
    end += m * Math.ceil(rowBytes / 64) * 64;
    return at;
  };
  return {
    records: take(recordCount(shape, groups) * recordBytes(mode, shape)),
    values: take(activationBytes(mode) === 2 ? groups * shape.groupLength : 0),
    scales: take(4),
    zeros: take(4),
    get byteLength() {
      return end - start;
    },
  };
}

export interface QuantizeCall {
  readonly x: number;
  readonly places: QuantizedPlaces;
  readonly k: number;
  readonly groups: number;
}

export function quantizeArgs({ x, places, k, groups }: QuantizeCall): Uint8Array {
  const { records, values, scales, zeros } = places;
  return block.encode({ x, records, values, scales, zeros, k, groups });
}

/** The quantization kernel for a shape of weights and a dot product mode. */
export function quantizeCode(shape: PanelShape, mode: DotMode): KernelCode {
  const { partLength, partSize, hasMinima, oddZero } = shape;
  const isPaired = activationBytes(mode) === 2;
  const offset = factorOffset(mode, shape);
  const start = seedBits(shape);
  const marks = `${isPaired ? "_pairs" : ""}${start ? "_float" : ""}${hasMinima ? "_minima" : ""}${oddZero === 0 ? "" : `_z${oddZero}`}${shape.inBlocks ? "_blocks" : ""}`;
  const key = `quantize_g${partSize}of${partLength}_o${offset}${marks}`;
  return {
    key,
    build: () => [
      kernelFunction(key, block, (fields, { tile: row }, scope) => {
        const x = scope.local("ptr", "x_row");
        const inverse = scope.local("v128", "inverse");
        const zero = scope.local("v128", "zero");
        return [
          x.set(elementAt(fields.x, i32.mul(row, fields.k), 4)),
          shape.inBlocks ? [] : rowScale(fields, row, scope, { x, inverse, zero }),
          quantizeGroups(fields, row, scope, { x, inverse, zero, shape, mode, offset, start }),
          isPaired ? pairValues(fields, row, scope, shape) : [],
        ];
      }),
    ],
  };
}

interface RowScale {
  readonly x: Local<"ptr">;
  /** 1 / scale, in all lanes. */
  readonly inverse: Local<"v128">;
  /** The zero point, in all lanes. */
  readonly zero: Local<"v128">;
}

/**
 * Computes scale and zero point from the range of a row. The range is found by comparing the bits of the floats: the largest
 * unsigned integer is the lowest negative float, the largest signed one the highest positive float. NaNs are beyond infinity,
 * so they are found, too.
 */
function rowScale(fields: Fields, row: Local<"i32">, scope: Scope, { x, inverse, zero }: RowScale): Body {
  const lows = scope.local("v128", "lows");
  const highs = scope.local("v128", "highs");
  const value = scope.local("v128", "value");
  const low = scope.local("f32", "low");
  const range = scope.local("f32", "range");
  const scale = scope.local("f32", "scale");
  const point = scope.local("f32", "point");
  const at = scope.local("ptr", "at");
  const i = scope.local("i32", "i");
  const widen = [lows.set(i32x4.max_u(lows, value)), highs.set(i32x4.max_s(highs, value))];
  const fold = (lanes: Local<"v128">, choose: typeof i32x4.max_u) =>
    [
      [2, 3, 0, 1],
      [1, 0, 3, 2],
    ].map((order) => lanes.set(choose(lanes, shuffle4(lanes, lanes, order))));
  return [
    at.set(x),
    lows.set(i32x4.splat(int(-(2 ** 31)))),
    highs.set(i32x4.splat(int(0))),
    forRange(i, int(4), i32.add(fields.k, int(1)), [value.set(v128.load(at)), widen, advance(at, 16)], 4),
    forRange(i, i32.sub(i, int(4)), fields.k, [value.set(v128.load32_zero(at)), widen, advance(at, 4)]),
    fold(lows, i32x4.max_u),
    fold(highs, i32x4.max_s),
    low.set(f32x4.extract_lane(lows, 0)),
    range.set(f32.sub(f32x4.extract_lane(highs, 0), low)),
    // NaN if the range is not finite.
    scale.set(f32.add(f32.div(range, float(255)), f32.mul(range, float(0)))),
    scale.set(f32.max(scale, float(2 ** -126))),
    point.set(f32.sub(float(-128), f32.nearest(f32.div(low, scale)))),
    point.set(f32.min(float(127), f32.max(float(-128), point))),
    inverse.set(f32x4.splat(f32.div(float(1), scale))),
    zero.set(i32x4.trunc_sat_f32x4_s(f32x4.splat(point))),
    f32.store(elementAt(fields.scales, row, 4), scale),
    f32.store(elementAt(fields.zeros, row, 4), point),
  ];
}

interface GroupFacts extends RowScale {
  readonly shape: PanelShape;
  readonly mode: DotMode;
  /** Offset of stored weights; see `factorOffset`. */
  readonly offset: number;
  /** Offset of sums; see `seedBits`. */
  readonly start: number;
}

function quantizeGroups(fields: Fields, row: Local<"i32">, scope: Scope, facts: GroupFacts): Body {
  const { x, shape, mode, offset, start } = facts;
  const isPaired = activationBytes(mode) === 2;
  const bytes = recordBytes(mode, shape);
  const { seed, sum, scale } = recordPlaces(mode, shape);
  const at = scope.local("ptr", "x_at");
  const q = scope.local("ptr", "q");
  const record = scope.local("ptr", "record");
  const group = scope.local("i32", "group");
  const left = scope.local("i32", "left");
  const count = scope.local("i32", "count");
  const total = scope.local("i32", "total");
  const ofGroup = scope.local("i32", "left_of_group");
  const block = scope.local("i32", "block");
  const scaleOfBlock = scope.local("f32", "block_scale");
  const index = i32.mul(row, fields.groups);
  const floatSum = f32.convert_i32_s(total);
  const writeRecord: Body = [
    isPaired ? [] : q.set(record),
    shape.inBlocks ? blockScale(scope, facts, { at, count, scale: scaleOfBlock }) : [],
    quantizeGroup(scope, facts, { at, q, count, total }),
    i32.store(record, i32.add(i32.mul(total, int(-offset)), int(start)), seed),
    shape.hasMinima
      ? f32.store(record, shape.inBlocks ? f32.mul(floatSum, scaleOfBlock) : floatSum, sum)
      : i32.store(record, shape.oddZero === 0 ? total : i32.mul(total, int(shape.oddZero)), sum),
    shape.inBlocks ? f32.store(record, scaleOfBlock, scale) : [],
    advance(record, bytes),
  ];
  const least = (target: Local<"i32">, size: number, from: Local<"i32">) => [
    target.set(int(size)),
    when(i32.lt_u(from, target), [target.set(from)]),
    from.set(i32.sub(from, target)),
  ];
  return [
    at.set(x),
    left.set(fields.k),
    record.set(elementAt(fields.records, index, shape.blocks * bytes)),
    isPaired ? q.set(elementAt(fields.values, index, shape.partLength)) : [],
    forRange(group, int(0), fields.groups, [
      shape.blocks === 1
        ? [least(count, shape.partSize, left), writeRecord]
        : [
            least(ofGroup, shape.partSize, left),
            repeat(block, int(shape.blocks), [least(count, shape.blockLength, ofGroup), writeRecord]),
          ],
    ]),
  ];
}

/** Computes a block's scale from the largest magnitude of `count` values, which is found as in `rowScale`. */
function blockScale(
  scope: Scope,
  { inverse, zero }: GroupFacts,
  { at, count, scale }: { readonly at: Local<"ptr">; readonly count: Local<"i32">; readonly scale: Local<"f32"> },
): Body {
  const most = scope.local("v128", "magnitudes");
  const from = scope.local("ptr", "block_at");
  const i = scope.local("i32", "block_column");
  const largest = scope.local("f32", "largest");
  const widen = (value: Expr<"v128">) => most.set(i32x4.max_s(most, v128.and(value, i32x4.splat(int(0x7fffffff)))));
  const fold = [
    [2, 3, 0, 1],
    [1, 0, 3, 2],
  ].map((order) => most.set(i32x4.max_s(most, shuffle4(most, most, order))));
  return [
    from.set(at),
    most.set(i32x4.splat(int(0))),
    forRange(i, int(4), i32.add(count, int(1)), [widen(v128.load(from)), advance(from, 16)], 4),
    forRange(i, i32.sub(i, int(4)), count, [widen(v128.load32_zero(from)), advance(from, 4)]),
    fold,
    largest.set(f32x4.extract_lane(most, 0)),
    // NaN if the largest magnitude is not finite.
    scale.set(f32.add(f32.div(largest, float(127)), f32.mul(largest, float(0)))),
    scale.set(f32.max(scale, float(2 ** -126))),
    inverse.set(f32x4.splat(f32.div(float(1), scale))),
    zero.set(i32x4.splat(int(0))),
  ];
}

interface GroupPlaces {
  readonly at: Local<"ptr">;
  readonly q: Local<"ptr">;
  readonly count: Local<"i32">;
  readonly total: Local<"i32">;
}

/** Quantizes `count` values, 16 at a time and then one by one, and pads with zeros up to the stored length. */
function quantizeGroup(scope: Scope, facts: GroupFacts, { at, q, count, total }: GroupPlaces): Body {
  const { inverse, zero, shape } = facts;
  const four = (i: number): Expr<"v128"> =>
    i32x4.add(i32x4.trunc_sat_f32x4_s(f32x4.nearest(f32x4.mul(v128.load(at, 16 * i), inverse))), zero);
  const eight = (i: number) => i16x8.narrow_i32x4_s(four(i), four(i + 1));
  const packed = scope.local("v128", "packed");
  const totals = scope.local("v128", "totals");
  const i = scope.local("i32", "j");
  const value = scope.local("i32", "value");
  const single = f32x4.nearest(f32x4.mul(v128.load32_zero(at), inverse));
  return [
    totals.set(i32x4.splat(int(0))),
    forRange(
      i,
      int(16),
      i32.add(count, int(1)),
      [
        packed.set(i8x16.narrow_i16x8_s(eight(0), eight(2))),
        v128.store(q, packed),
        totals.set(i32x4.add(totals, i32x4.extadd_pairwise_i16x8_s(i16x8.extadd_pairwise_i8x16_s(packed)))),
        advance(at, 64),
        advance(q, 16),
      ],
      16,
    ),
    total.set(
      [0, 1, 2, 3].map((lane): Expr<"i32"> => i32x4.extract_lane(totals, lane)).reduce((a, b) => i32.add(a, b)),
    ),
    forRange(i, i32.sub(i, int(16)), count, [
      packed.set(i32x4.add(i32x4.trunc_sat_f32x4_s(single), zero)),
      packed.set(i32x4.min_s(i32x4.max_s(packed, i32x4.splat(int(-128))), i32x4.splat(int(127)))),
      value.set(i32x4.extract_lane(packed, 0)),
      i32.store8(q, value),
      total.set(i32.add(total, value)),
      advance(at, 4),
      advance(q, 1),
    ]),
    whileDo(i32.lt_u(i, int(shape.blockLength)), [i32.store8(q, int(0)), advance(q, 1), i.set(i32.add(i, int(1)))]),
  ];
}

/** Writes the values of a row to its records as int16, even k before odd k in each four. */
function pairValues(fields: Fields, row: Local<"i32">, scope: Scope, shape: PanelShape): Body {
  const from = scope.local("ptr", "from");
  const to = scope.local("ptr", "to");
  const group = scope.local("i32", "paired");
  const i = scope.local("i32", "pair");
  const bytes = scope.local("v128", "bytes");
  const ordered = (half: Expr<"v128">, again: Expr<"v128">) =>
    shuffle(half, again, [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]);
  const low = () => i16x8.extend_low_i8x16_s(bytes);
  const high = () => i16x8.extend_high_i8x16_s(bytes);
  const index = i32.mul(row, fields.groups);
  const rest = recordBytes("plain", shape) - recordPlaces("plain", shape).seed;
  return [
    from.set(elementAt(fields.values, index, shape.partLength)),
    to.set(elementAt(fields.records, index, shape.blocks * recordBytes("plain", shape))),
    repeat(group, i32.mul(fields.groups, int(shape.blocks)), [
      repeat(i, int(shape.blockLength / 16), [
        bytes.set(v128.load(from)),
        v128.store(to, ordered(low(), low())),
        v128.store(to, ordered(high(), high()), 16),
        advance(from, 16),
        advance(to, 32),
      ]),
      advance(to, rest),
    ]),
  ];
}
