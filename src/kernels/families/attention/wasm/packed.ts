/**
 * Attention of packed sequences, computed as in native/families/attention/packed_sequences.h. A tile is a token of a head:
 * scores of four keys at a time, softmax, and the weighted sum of values. Queries and sums of up to 16 vectors are local
 * variables.
 */

import type { Kernel } from "../../../contract.ts";
import { type Body, type Expr, type Local, select, when, whileDo, widen } from "../../../wasm/assembler/expression.ts";
import { f32, f32x4, float, i32, int, ptr, size, v128 } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { forLanes, largestLane, sumOfLanes, transposed } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, forRange } from "../../../wasm/generate/loops.ts";
import { VectorMath } from "../../../wasm/generate/vector-math.ts";
import { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { plainRow, wasmKernel } from "../../../wasm/kernel.ts";
import { ArgumentBlock, type FieldsOf, type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import type { AttendPackedArgs } from "../fields.ts";

const block = new ArgumentBlock({
  q: "ptr",
  k: "ptr",
  v: "ptr",
  offsets: "ptr",
  y: "ptr",
  scratch: "ptr",
  /** Bytes of a thread's scores. */
  scratchBytes: "ptr",
  /** Bytes from a row of keys or values to the next. */
  rowBytes: "ptr",
  rows: "i32",
  heads: "i32",
  /** Query heads for each KV head. */
  group: "i32",
  headDim: "i32",
  sequences: "i32",
  before: "i32",
  after: "i32",
  scale: "f32",
});
type Fields = FieldsOf<typeof block>;

/** Variables of a tile. */
interface Tile {
  readonly scope: Scope;
  readonly constants: VectorConstants;
  readonly fields: Fields;
  /** Vectors of a head that are local variables; 0 if there are too many, or if headDim is not a multiple of 4. */
  readonly vectors: number;
  readonly row: Local<"i32">;
  readonly begin: Local<"i32">;
  readonly end: Local<"i32">;
  /** Number of keys that the row sees. */
  readonly count: Local<"i32">;
  readonly scores: Local<"ptr">;
  readonly at: Local<"ptr">;
  readonly from: Local<"ptr">;
  readonly i: Local<"i32">;
  readonly value: Local<"v128">;
  readonly total: Local<"v128">;
}

const VECTORS_MAX = 16;

/** Sets begin .. end - 1 to the row's sequence; a row that belongs to none is outside of that range. */
function findSequence({ scope, fields, row, begin, end, i }: Tile): Body {
  const { offsets, rows, sequences } = fields;
  const high = scope.local("i32", "high");
  const place = (index: Expr<"i32">, target: Local<"i32">): Body => [
    target.set(i32.load(elementAt(offsets, index, 8))),
    high.set(i32.load(elementAt(offsets, index, 8), 4)),
    when(i32.or(i32.gt_u(target, rows), i32.ne(high, int(0))), [target.set(rows)]),
    when(i32.lt_s(high, int(0)), [target.set(int(0))]),
  ];
  return [
    place(int(0), begin),
    place(int(1), end),
    i.set(int(1)),
    whileDo(i32.and(i32.le_u(end, row), i32.lt_u(i, sequences)), [
      begin.set(end),
      i.set(i32.add(i, int(1))),
      place(i, end),
    ]),
  ];
}

/** Sets `begin` to the first key that the row sees, and `count` to the number of keys. */
function seenKeys({ fields: { before, after }, row, begin, end, count }: Tile): Body {
  const first = i32.sub(row, before);
  const behind = i32.sub(i32.sub(end, row), int(1));
  return [
    begin.set(select(i32.gt_s(first, begin), first, begin)),
    count.set(select(i32.lt_u(after, behind), after, behind)),
    count.set(i32.add(i32.sub(i32.add(row, count), begin), int(1))),
  ];
}

/** Computes the scores of all keys, four at once if the query is in local variables. */
function scoreKeys(tile: Tile, q: Expr<"ptr">): Body {
  const { scope, constants, fields, vectors, count, scores, at, from, i, value, total } = tile;
  const { rowBytes, headDim, scale } = fields;
  const query = scope.localArray("v128", "query", vectors);
  const to = scope.local("ptr", "to");
  const next = scope.local("ptr", "next");
  const one: Body =
    vectors > 0
      ? [
          total.set(constants.floats(0)),
          query.map((part, c) => total.set(f32x4.add(total, f32x4.mul(part, v128.load(from, 16 * c))))),
        ]
      : [
          total.set(constants.floats(0)),
          at.set(q),
          next.set(from),
          forLanes({ scope, constants, count: headDim, pointers: [[at], [next]] }, (lanes) => [
            total.set(f32x4.add(total, f32x4.mul(lanes.load(at), lanes.load(next)))),
          ]),
        ];
  const sums = scope.localArray("v128", "sum", 4);
  const four: Body = [
    sums.map((sum) => [
      sum.set(constants.floats(0)),
      query.map((part, c) => sum.set(f32x4.add(sum, f32x4.mul(part, v128.load(from, 16 * c))))),
      advance(from, rowBytes),
    ]),
  ];
  const [a, b, c, d] = transposed(sums) as [Expr<"v128">, Expr<"v128">, Expr<"v128">, Expr<"v128">];
  return [
    query.map((part, c) => part.set(v128.load(q, 16 * c))),
    to.set(scores),
    i.set(count),
    vectors > 0
      ? whileDo(i32.ge_u(i, int(4)), [
          four,
          value.set(f32x4.add(f32x4.add(a, b), f32x4.add(c, d))),
          v128.store(to, f32x4.mul(value, f32x4.splat(scale))),
          advance(to, 16),
          i.set(i32.sub(i, int(4))),
        ])
      : [],
    whileDo(i32.gt_u(i, int(0)), [
      one,
      f32.store(to, f32.mul(sumOfLanes(total), scale)),
      advance(from, rowBytes),
      advance(to, 4),
      i.set(i32.sub(i, int(1))),
    ]),
  ];
}

/** Turns scores into weights exp(score - largest) in place; sets all lanes of `total` to 1 / their sum. */
function weighKeys(tile: Tile): Body {
  const { scope, constants, count, scores, at, value, total } = tile;
  const math = new VectorMath(scope, constants);
  const largest = scope.local("v128", "largest");
  return [
    at.set(scores),
    largest.set(v128.load32_splat(at)),
    forLanes({ scope, constants, count, pointers: [[at]] }, (lanes) => [
      largest.set(f32x4.pmax(largest, lanes.count === 4 ? v128.load(at) : v128.load32_splat(at))),
    ]),
    largest.set(f32x4.splat(largestLane(largest))),
    at.set(scores),
    total.set(constants.floats(0)),
    forLanes({ scope, constants, count, pointers: [[at]] }, (lanes) => [
      math.exp(f32x4.sub(lanes.load(at), largest), value),
      lanes.store(at, value),
      // A single value is loaded again, so that the lanes that it does not use add nothing.
      total.set(f32x4.add(total, lanes.count === 4 ? value : lanes.load(at))),
    ]),
    total.set(f32x4.splat(f32.div(float(1), sumOfLanes(total)))),
  ];
}

/** Sets y to the weighted sum of values. */
function addValues(tile: Tile, y: Expr<"ptr">): Body {
  const { scope, constants, fields, vectors, count, scores, at, from, i, value, total } = tile;
  const { rowBytes, headDim } = fields;
  const to = scope.local("ptr", "result");
  const next = scope.local("ptr", "next_value");
  const weight = value.set(v128.load32_splat(at));
  const turn: Body = [advance(at, 4), advance(from, rowBytes)];
  if (vectors > 0) {
    const sums = scope.localArray("v128", "weighted", vectors);
    return [
      sums.map((sum) => sum.set(constants.floats(0))),
      at.set(scores),
      forRange(i, int(0), count, [
        weight,
        sums.map((sum, c) => sum.set(f32x4.add(sum, f32x4.mul(value, v128.load(from, 16 * c))))),
        turn,
      ]),
      to.set(y),
      sums.map((sum, c) => v128.store(to, f32x4.mul(sum, total), 16 * c)),
    ];
  }
  const each = (
    body: (lanes: Parameters<Parameters<typeof forLanes>[1]>[0]) => Body,
    pointers: readonly Local<"ptr">[],
  ) => forLanes({ scope, constants, count: headDim, pointers: pointers.map((pointer) => [pointer] as const) }, body);
  return [
    to.set(y),
    each((lanes) => [lanes.store(to, constants.floats(0))], [to]),
    at.set(scores),
    forRange(i, int(0), count, [
      weight,
      to.set(y),
      next.set(from),
      each((lanes) => [lanes.store(to, f32x4.add(lanes.load(to), f32x4.mul(value, lanes.load(next))))], [to, next]),
      turn,
    ]),
    to.set(y),
    each((lanes) => [lanes.store(to, f32x4.mul(lanes.load(to), total))], [to]),
  ];
}

function attendCode(vectors: number): KernelCode {
  const key = `attend_packed_${vectors}`;
  return {
    key,
    build: () => [
      kernelFunction(key, block, (fields, { tile, thread }, scope) => {
        const { q, k, v, y, scratch, scratchBytes, rowBytes, heads, group, headDim } = fields;
        const names = ["row", "begin", "end", "count", "i", "head"] as const;
        const [row, begin, end, count, i, head] = names.map((name) => scope.local("i32", name)) as Local<"i32">[] &
          Record<0 | 1 | 2 | 3 | 4 | 5, Local<"i32">>;
        const [scores, at, from] = ["scores", "at", "from"].map((name) => scope.local("ptr", name)) as Local<"ptr">[] &
          Record<0 | 1 | 2, Local<"ptr">>;
        const constants = new VectorConstants(scope);
        const [value, total] = ["value", "total"].map((name) => scope.local("v128", name)) as Local<"v128">[] &
          Record<0 | 1, Local<"v128">>;
        const parts: Tile = {
          scope,
          constants,
          fields,
          vectors,
          row,
          begin,
          end,
          count,
          scores,
          at,
          from,
          i,
          value,
          total,
        };
        const bytesOf = (floats: Expr<"i32">) => ptr.mul(widen(floats), size(4));
        const headBytes = bytesOf(headDim);
        const kv = bytesOf(i32.mul(i32.div_u(head, group), headDim));
        const rowsFrom = (base: Local<"ptr">) => from.set(ptr.add(elementAt(base, begin, rowBytes), kv));
        return [
          constants.prepare,
          row.set(i32.div_u(tile, heads)),
          head.set(i32.sub(tile, i32.mul(row, heads))),
          scores.set(elementAt(scratch, thread, scratchBytes)),
          q.set(elementAt(q, tile, headBytes)),
          y.set(elementAt(y, tile, headBytes)),
          findSequence(parts),
          when(
            i32.and(i32.le_u(begin, row), i32.lt_u(row, end)),
            [seenKeys(parts), rowsFrom(k), scoreKeys(parts, q), weighKeys(parts), rowsFrom(v), addValues(parts, y)],
            forLanes({ scope, constants, count: headDim, pointers: [[y]] }, (lanes) => [
              lanes.store(y, constants.floats(Number.NaN)),
            ]),
          ),
        ];
      }),
    ],
  };
}

const codes = new Map<number, KernelCode>();

/** Code for heads of a size, made once. */
function codeFor(headDim: number): KernelCode {
  const vectors = headDim % 4 === 0 && headDim <= 4 * VECTORS_MAX ? headDim / 4 : 0;
  const code = codes.get(vectors) ?? attendCode(vectors);
  codes.set(vectors, code);
  return code;
}

/** Bytes of a thread's scores, affine in the rows. */
const scoreBytes = ({ rows }: AttendPackedArgs) => 4 * rows + 16;

export const attendPackedWasm: Kernel<AttendPackedArgs> = wasmKernel<AttendPackedArgs>({
  ...plainRow,
  name: "attend_packed_f32_1x1x4_wasm_simd",
  scratchBytes: (args, threads) => threads * scoreBytes(args),
  step(args, place) {
    const { q, k, v, offsets, y, rows, heads, kvHeads, headDim, before, after, scale } = args;
    const values = {
      ...{ q: place.read(q), k: place.read(k), v: place.read(v), offsets: place.read(offsets), y: place.write(y) },
      ...{ scratch: place.scratch, scratchBytes: scoreBytes(args), rowBytes: 4 * kvHeads * headDim },
      ...{ rows, heads, group: heads / kvHeads, headDim, sequences: offsets.length - 1, before, after, scale },
    };
    return { phases: [{ code: codeFor(headDim), tiles: rows * heads, args: block.encode(values) }] };
  },
});
