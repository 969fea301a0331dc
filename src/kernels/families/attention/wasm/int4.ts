/**
 * Attention over int4 pages, without blocking: each row of int4 or f16 is converted to floats as it is needed. The format is in
 * ../int4-pages.ts. A line is a column of a page's keys or a row of its values; the bytes of both are ordered alike.
 */
import { type Body, type Expr, type Local, select, when } from "../../../wasm/assembler/expression.ts";
import { f32, f32x4, float, i16x8, i32, i32x4, int, ptr, size, v128 } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { halvesOfFloats } from "../../../wasm/generate/halves.ts";
import { forLanes, lanesOf, sumOfLanes } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, forRange } from "../../../wasm/generate/loops.ts";
import { VectorMath } from "../../../wasm/generate/vector-math.ts";
import { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import { copyRow } from "./cache-rows.ts";
import { fillOthers } from "./item.ts";
import { PagePlace } from "./pages.ts";
import { type AttentionFields, attentionBlock } from "./shape.ts";
import { findPlace } from "./store.ts";

const POSITIONS = 64;
/** Positions of a column of keys that share a scale and a minimum. */
const SHARED = 32;

/** Bytes of a thread's scratch: rotated keys of a row, floats of one head of a page, or scores of all positions and a row. */
export function int4ThreadBytes({ kvHeads, headDim, positions }: Record<"kvHeads" | "headDim" | "positions", number>) {
  const floats = Math.max(kvHeads * headDim, POSITIONS * headDim + 32, positions + 8 + 2 * headDim + 64);
  return Math.ceil(floats / 16) * 64;
}

/** Generates code that reads and writes int4 pages and the f16 residual, for one row of a call. */
class Int4Generator {
  readonly scope: Scope;
  readonly constants: VectorConstants;
  readonly fields: AttentionFields;
  readonly position: Local<"i32">;
  readonly slot: Local<"i32">;
  readonly head: Local<"i32">;
  readonly columns: Local<"i32">;
  readonly scratch: Local<"ptr">;
  readonly #full: PagePlace;
  readonly #halves: PagePlace;
  readonly #page: Local<"ptr">;
  readonly #scales: Local<"ptr">;

  constructor(scope: Scope, fields: AttentionFields) {
    this.scope = scope;
    this.fields = fields;
    this.constants = new VectorConstants(scope);
    this.position = scope.local("i32", "position");
    this.slot = scope.local("i32", "slot");
    this.head = scope.local("i32", "kv_head");
    this.columns = scope.local("i32", "columns");
    this.scratch = scope.local("ptr", "own_scratch");
    this.#full = new PagePlace(scope);
    this.#halves = new PagePlace(scope);
    this.#page = scope.local("ptr", "head_bytes");
    this.#scales = scope.local("ptr", "head_scales");
  }

  /** Finds the row and its sizes; leaves the function if the row belongs to no run. */
  begin(row: Local<"i32">, thread: Local<"i32">): Body {
    const { fields } = this;
    return [
      this.constants.prepare,
      findPlace(this, this.#halves, row),
      this.columns.set(i32.and(i32.add(fields.headDim, int(31)), int(-32))),
      this.scratch.set(elementAt(fields.scratch, thread, fields.threadBytes)),
    ];
  }

  /** Finds the head's keys or values in a position's int4 page. */
  #findFull(isOfKeys: boolean, position: Expr<"i32">): Body {
    const { fields, head, columns } = this;
    const [offset, scales] = isOfKeys
      ? [fields.fullKeyOffset, fields.keyScaleOffset]
      : [fields.fullValueOffset, fields.valueScaleOffset];
    return [
      this.#full.find({ ...fields, pages: fields.fullPages }, this.slot, position),
      this.#page.set(elementAt(ptr.add(this.#full.page, offset), i32.mul(head, columns), POSITIONS / 2)),
      this.#scales.set(
        elementAt(
          ptr.add(this.#full.page, scales),
          i32.mul(head, isOfKeys ? columns : int(POSITIONS)),
          isOfKeys ? 8 : 4,
        ),
      ),
    ];
  }

  /** Converts a position's f16 row of a head to floats at `to`, which advances. */
  copyHalves(isOfKeys: boolean, position: Expr<"i32">, to: Local<"ptr">): Body {
    const { fields, head, scope, constants } = this;
    const { kvHeads, headDim, keyOffset, valueOffset } = fields;
    const from = scope.local("ptr", "halves");
    const row = i32.add(i32.mul(this.#halves.place, kvHeads), head);
    return [
      this.#halves.find(fields, this.slot, position),
      from.set(elementAt(ptr.add(this.#halves.page, isOfKeys ? keyOffset : valueOffset), i32.mul(row, headDim), 2)),
      copyRow({ scope, constants, cache: "f16" }, { from, to, count: headDim, scale: null }),
    ];
  }

  /** Dequantizes a position's int4 row of a head to floats at `to`, four columns at a time; `to` advances. */
  copyInt4(isOfKeys: boolean, position: Local<"i32">, to: Local<"ptr">): Body {
    const { scope, constants, columns } = this;
    const place = this.#full.place;
    const lanes = lanesOf(isOfKeys ? 4 : 1, constants);
    const d = scope.local("i32", "d");
    const from = scope.local("ptr", "from");
    const [step, least, value] = ["step", "least", "value"].map((name) => scope.local("v128", name)) as Local<"v128">[];
    const splat = (scales: Expr<"v128">) => (isOfKeys ? scales : f32x4.splat(f32x4.extract_lane(scales, 0)));
    const scale = (index: Expr<"i32">) => splat(lanes.load(elementAt(this.#scales, index, 2), "f16"));
    const line = isOfKeys ? this.#keyScale(d, place) : place;
    const scales = [step!.set(scale(line)), least!.set(scale(i32.add(line, isOfKeys ? columns : int(POSITIONS))))];
    const high = i32.shr_u(i32.and(isOfKeys ? place : d, int(16)), int(2));
    const bytes = isOfKeys
      ? i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(v128.load32_zero(from)))
      : v128.load(from);
    return [
      this.#findFull(isOfKeys, position),
      isOfKeys ? [] : scales,
      forRange(
        d,
        int(0),
        this.fields.headDim,
        [
          isOfKeys ? scales : [],
          from.set(
            isOfKeys ? this.#byteAt(d, place, int(POSITIONS)) : this.#byteAt(i32.and(place, int(-4)), d, columns),
          ),
          value!.set(i32x4.shr_u(bytes, isOfKeys ? high : i32.add(high, i32.shl(i32.and(place, int(3)), int(3))))),
          value!.set(f32x4.convert_i32x4_s(v128.and(value!, constants.words(15)))),
          v128.store(to, f32x4.add(least!, f32x4.mul(step!, value!))),
          advance(to, 16),
        ],
        4,
      ),
    ];
  }

  /** Index of the scale of a column of keys, for the half of the page that `place` is in. */
  #keyScale(d: Expr<"i32">, place: Expr<"i32">): Expr<"i32"> {
    return i32.add(d, i32.mul(this.columns, i32.shr_u(i32.and(place, int(SHARED)), int(4))));
  }

  /** Address of the byte with element `number` of a line; a line has `numbers` elements. */
  #byteAt(line: Expr<"i32">, number: Expr<"i32">, numbers: Expr<"i32">): Expr<"ptr"> {
    const four = i32.add(i32.mul(i32.shr_u(line, int(2)), i32.shl(numbers, int(1))), i32.and(line, int(3)));
    const group = i32.add(i32.shl(i32.and(number, int(-32)), int(1)), i32.shl(i32.and(number, int(15)), int(2)));
    return elementAt(this.#page, i32.add(four, group), 1);
  }

  /**
   * Quantizes floats [POSITIONS, headDim] in scratch into the head's lines of the position's page; of keys only SHARED
   * positions from `first` on. Padded columns count as zeros in keys, and as the minimum in values.
   */
  fill(isOfKeys: boolean, first = 0): Body {
    const { scope, constants, scratch, fields, columns } = this;
    const { headDim } = fields;
    const [line, i, shift] = ["line", "i", "shift"].map((name) => scope.local("i32", name)) as Local<"i32">[];
    const [x, least, most, step] = ["x", "least", "most", "step"].map((name) =>
      scope.local("f32", name),
    ) as Local<"f32">[];
    const [from, to] = ["from", "to"].map((name) => scope.local("ptr", name)) as Local<"ptr">[];
    const pair = scope.local("v128", "pair");
    const { body, halves } = halvesOfFloats(pair, scope, constants);
    const [lines, numbers] = isOfKeys ? [columns, int(POSITIONS)] : [int(POSITIONS), columns];
    const [place, d] = isOfKeys ? [i!, line!] : [line!, i!];
    const eachNumber = (visit: Body) =>
      forRange(i!, int(first), isOfKeys ? int(first + SHARED) : numbers, [
        from!.set(elementAt(scratch, i32.add(i32.mul(place, headDim), d), 4)),
        x!.set(select(i32.lt_u(d, headDim), f32.load(from!), isOfKeys ? float(0) : least!)),
        visit,
      ]);
    return [
      this.#findFull(isOfKeys, this.position),
      forRange(line!, int(0), lines, [
        least!.set(float(Number.POSITIVE_INFINITY)),
        most!.set(float(Number.NEGATIVE_INFINITY)),
        eachNumber([least!.set(f32.min(least!, x!)), most!.set(f32.max(most!, x!))]),
        least!.set(f32.add(least!, float(0))),
        pair.set(f32x4.splat(f32.div(f32.sub(most!, least!), float(15)))),
        pair.set(f32x4.replace_lane(pair, least!, 1)),
        body,
        pair.set(halves),
        to!.set(elementAt(this.#scales, isOfKeys ? this.#keyScale(line!, int(first)) : line!, 2)),
        i32.store16(to!, i32x4.extract_lane(pair, 0)),
        i32.store16(elementAt(to!, lines, 2), i32x4.extract_lane(pair, 1)),
        step!.set(f32x4.extract_lane(lanesOf(1, constants).load(to!, "f16"), 0)),
        step!.set(select(f32.gt(step!, float(0)), f32.div(float(1), step!), float(0))),
        eachNumber([
          pair.set(f32x4.splat(f32.min(f32.nearest(f32.mul(f32.sub(x!, least!), step!)), float(15)))),
          to!.set(this.#byteAt(line!, i!, numbers)),
          shift!.set(i32.shr_u(i32.and(i!, int(16)), int(2))),
          i32.store8(
            to!,
            i32.or(
              select(shift!, i32.load8_u(to!), int(0)),
              i32.shl(i32x4.extract_lane(i32x4.trunc_sat_f32x4_s(pair), 0), shift!),
            ),
          ),
        ]),
      ]),
    ];
  }
}

/** Quantizes the f16 page whose last position is the row's, if there is one. A tile is a row. */
export const int4FillCode: KernelCode = {
  key: "attention_int4_fill",
  build: () => [
    kernelFunction("attention_int4_fill", attentionBlock, (fields, { tile, thread }, scope) => {
      const made = new Int4Generator(scope, fields);
      const { position, head, scratch } = made;
      const to = scope.local("ptr", "row");
      const last = scope.local("i32", "last");
      return [
        made.begin(tile, thread),
        when(i32.eq(i32.and(position, int(POSITIONS - 1)), int(POSITIONS - 1)), [
          last.set(position),
          forRange(head, int(0), fields.kvHeads, [
            [true, false].map((isOfKeys) => [
              to.set(scratch),
              forRange(position, i32.sub(last, int(POSITIONS - 1)), i32.add(last, int(1)), [
                made.copyHalves(isOfKeys, position, to),
              ]),
              position.set(last),
              made.fill(isOfKeys),
              isOfKeys ? made.fill(true, SHARED) : [],
            ]),
          ]),
        ]),
      ];
    }),
  ],
};

/** Attention of one query. A tile is a query of one head; the first tile fills rows that belong to no run. */
export function int4AttendCode({ hasSinks }: { readonly hasSinks: boolean }): KernelCode {
  const key = `attention_int4${hasSinks ? "_sinks" : ""}`;
  return {
    key,
    build: () => [
      kernelFunction(key, attentionBlock, (fields, { tile, thread }, scope) => {
        const made = new Int4Generator(scope, fields);
        const row = scope.local("i32", "row");
        const heads = scope.local("i32", "heads");
        return [
          when(i32.eqz(tile), [made.constants.prepare, fillOthers(scope, fields)]),
          heads.set(i32.mul(fields.kvHeads, fields.ratio)),
          row.set(i32.div_u(tile, heads)),
          made.begin(row, thread),
          made.head.set(i32.div_u(i32.rem_u(tile, heads), fields.ratio)),
          attend(made, tile, hasSinks ? elementAt(fields.sinks, i32.rem_u(tile, heads), 4) : null),
        ];
      }),
    ],
  };
}

/** Softmax in two passes over the pages: scores of all positions, then weights and sums of values. */
function attend(made: Int4Generator, tile: Local<"i32">, sink: Expr<"ptr"> | null): Body {
  const { scope, constants, fields, position, scratch } = made;
  const { headDim, window, scale, softcap } = fields;
  const math = new VectorMath(scope, constants);
  const [first, own, p] = ["first", "own", "p"].map((name) => scope.local("i32", name)) as Local<"i32">[];
  const [scores, row, a, b] = ["scores", "floats", "a", "b"].map((name) => scope.local("ptr", name)) as Local<"ptr">[];
  const [sum, weight, largest, total] = ["sum", "weight", "largest", "total"].map((name) =>
    scope.local("v128", name),
  ) as Local<"v128">[];
  const lanes = { scope, constants, count: headDim };
  /** Runs `body` for each position, with its row as floats at `b`. */
  const eachRow = (isOfKeys: boolean, body: Body) => [
    scores!.set(scratch),
    forRange(p!, first!, i32.add(position, int(1)), [
      b!.set(row!),
      when(
        i32.or(i32.ge_u(p!, own!), i32.lt_u(p!, int(POSITIONS))),
        [made.copyHalves(isOfKeys, p!, b!)],
        [made.copyInt4(isOfKeys, p!, b!)],
      ),
      b!.set(row!),
      body,
      advance(scores!, 4),
    ]),
  ];
  const query = (from: Local<"ptr">) => elementAt(from, i32.mul(tile, headDim), 4);
  const splat = (value: Expr<"f32">) => f32x4.splat(value);
  return [
    first!.set(
      select(
        i32.and(i32.gt_u(window, int(0)), i32.ge_u(position, window)),
        i32.add(i32.sub(position, window), int(1)),
        int(0),
      ),
    ),
    own!.set(i32.and(position, int(-POSITIONS))),
    row!.set(ptr.add(elementAt(scratch, i32.add(i32.sub(position, first!), int(8)), 4), size(0))),
    largest!.set(sink ? splat(f32.load(sink)) : constants.floats(-1e30)),
    eachRow(true, [
      sum!.set(constants.words(0)),
      a!.set(query(fields.q)),
      forLanes({ ...lanes, pointers: [[a!], [b!]] }, ({ load }) => [
        sum!.set(f32x4.add(sum!, f32x4.mul(load(a!), load(b!)))),
      ]),
      sum!.set(splat(f32.mul(sumOfLanes(sum!), scale))),
      when(f32.gt(softcap, float(0)), [
        math.tanh(f32x4.div(sum!, splat(softcap)), weight!),
        sum!.set(f32x4.mul(weight!, splat(softcap))),
      ]),
      f32.store(scores!, f32x4.extract_lane(sum!, 0)),
      largest!.set(f32x4.pmax(largest!, sum!)),
    ]),
    total!.set(constants.words(0)),
    sink ? math.exp(f32x4.sub(splat(f32.load(sink)), largest!), total!) : [],
    a!.set(query(fields.y)),
    forLanes({ ...lanes, pointers: [[a!]] }, ({ store }) => [store(a!, constants.words(0))]),
    eachRow(false, [
      math.exp(f32x4.sub(splat(f32.load(scores!)), largest!), weight!),
      total!.set(f32x4.add(total!, weight!)),
      a!.set(query(fields.y)),
      forLanes({ ...lanes, pointers: [[a!], [b!]] }, ({ load, store }) => [
        store(a!, f32x4.add(load(a!), f32x4.mul(weight!, load(b!)))),
      ]),
    ]),
    a!.set(query(fields.y)),
    forLanes({ ...lanes, pointers: [[a!]] }, ({ load, store }) => [store(a!, f32x4.div(load(a!), total!))]),
  ];
}
