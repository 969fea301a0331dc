/**
 * Linear recurrences on the state of each sequence: Mamba 2 (Dao & Gu 2024) and the gated delta rule (Yang et al. 2024). A tile
 * is some columns of a head's state, which stay in the L1 cache from a run's first row to its last. Sums of a column go key by
 * key, so that a row's results do not depend on other rows of the step.
 */

import type { CpuFeature, Kernel } from "../../../contract.ts";
import { type Body, type Expr, type Local, when, widen } from "../../../wasm/assembler/expression.ts";
import { f32x4, i32, int, ptr, size, v128 } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { forLanes, multiplyAdd } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, forRange, repeat } from "../../../wasm/generate/loops.ts";
import { VectorMath } from "../../../wasm/generate/vector-math.ts";
import { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { plainRow, wasmKernel } from "../../../wasm/kernel.ts";
import { ArgumentBlock, type FieldsOf, type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import type { LinearRecurrenceArgs } from "../fields.ts";
import { forStates, stateFields, stateValues } from "./states.ts";

/** Vectors of columns computed at once: two sums of each fit the registers. */
const VECTORS = 4;
const COLUMNS = 4 * VECTORS;
const TILE_ROW_BYTES = 4 * COLUMNS;
/** Byte offsets of a thread's data after the tile's columns: S^T k of the next row, the update u, and S^T q. */
const KEPT = { known: 0, added: TILE_ROW_BYTES, sums: 2 * TILE_ROW_BYTES, bytes: 3 * TILE_ROW_BYTES } as const;

const block = new ArgumentBlock({
  ...stateFields,
  q: "ptr",
  k: "ptr",
  v: "ptr",
  logDecay: "ptr",
  beta: "ptr",
  y: "ptr",
  scratch: "ptr",
  threadBytes: "ptr",
  /** Bytes of a row of keys, of values and of gates; of a key head; of a head's state, and of a row of the state. */
  keyBytes: "ptr",
  valueBytes: "ptr",
  gateBytes: "ptr",
  keyHeadBytes: "ptr",
  headBytes: "ptr",
  stateRowBytes: "ptr",
  /** Heads that share a key head, and groups of columns of a head. */
  ratio: "i32",
  groups: "i32",
  keyDim: "i32",
  valueDim: "i32",
  scale: "f32",
});
type Fields = FieldsOf<typeof block>;

interface Variant {
  readonly hasBeta: boolean;
  /** Whether multiply-adds are relaxed (one instruction). */
  readonly isRelaxed: boolean;
}

/** Variables of the function. */
class Columns {
  readonly scope: Scope;
  readonly fields: Fields;
  readonly hasBeta: boolean;
  readonly isRelaxed: boolean;
  readonly constants: VectorConstants;
  readonly math: VectorMath;
  /** Address of the tile's columns [keyDim, COLUMNS], and of the data after them. */
  readonly tile: Local<"ptr">;
  readonly kept: Local<"ptr">;
  readonly count: Local<"i32">;
  readonly decay: Local<"v128">;
  readonly value: Local<"v128">;
  /** Addresses of the row in the inputs and the result. */
  readonly row: Readonly<Record<"q" | "k" | "v" | "logDecay" | "beta" | "y", Local<"ptr">>>;
  readonly at: Local<"ptr">;
  readonly from: Local<"ptr">;
  readonly to: Local<"ptr">;
  readonly i: Local<"i32">;

  constructor(scope: Scope, fields: Fields, { hasBeta, isRelaxed }: Variant) {
    this.scope = scope;
    this.fields = fields;
    this.hasBeta = hasBeta;
    this.isRelaxed = isRelaxed;
    const place = (name: string) => scope.local("ptr", name);
    this.constants = new VectorConstants(scope);
    this.math = new VectorMath(scope, this.constants);
    this.tile = place("tile_columns");
    this.kept = place("kept");
    this.count = scope.local("i32", "columns");
    this.decay = scope.local("v128", "decay");
    this.value = scope.local("v128", "value");
    const row = (name: string) => place(`row_${name}`);
    this.row = { q: row("q"), k: row("k"), v: row("v"), logDecay: row("decay"), beta: row("beta"), y: row("y") };
    this.at = place("at");
    this.from = place("from");
    this.to = place("to");
    this.i = scope.local("i32", "key");
  }
}

/** Runs the body for the tile's columns, four at a time and then one by one. */
function forColumns(
  { scope, constants, count }: Columns,
  pointers: readonly Local<"ptr">[],
  body: Parameters<typeof forLanes>[1],
): Body {
  return forLanes({ scope, constants, count, pointers: pointers.map((pointer) => [pointer] as const) }, body);
}

/** Loads the columns of a state, padded with zeros, and computes S^T k of the run's first row. */
function takeColumns(columns: Columns, state: Expr<"ptr">): Body {
  const { scope, constants, fields, hasBeta, isRelaxed, row, tile, kept, at, from, to, i, value } = columns;
  const { keyDim, stateRowBytes } = fields;
  const key = scope.local("ptr", "first_key");
  const source = scope.local("ptr", "source");
  const sums = scope.localArray("v128", "first_known", VECTORS);
  const zero = constants.floats(0);
  return [
    source.set(state),
    at.set(tile),
    key.set(row.k),
    sums.map((sum) => sum.set(zero)),
    repeat(i, keyDim, [
      sums.map((_, c) => v128.store(at, zero, 16 * c)),
      from.set(source),
      to.set(at),
      forColumns(columns, [from, to], (lanes) => [lanes.store(to, lanes.load(from))]),
      hasBeta
        ? [
            value.set(v128.load32_splat(key)),
            sums.map((sum, c) => sum.set(multiplyAdd(isRelaxed, value, v128.load(at, 16 * c), sum))),
          ]
        : [],
      advance(source, stateRowBytes),
      advance(at, TILE_ROW_BYTES),
      advance(key, 4),
    ]),
    sums.map((sum, c) => v128.store(kept, sum, KEPT.known + 16 * c)),
  ];
}

/** Stores the columns to a state. */
function giveColumns(columns: Columns, state: Local<"ptr">): Body {
  const { fields, tile, at, from, to, i } = columns;
  return [
    at.set(tile),
    repeat(i, fields.keyDim, [
      from.set(at),
      to.set(state),
      forColumns(columns, [from, to], (lanes) => [lanes.store(to, lanes.load(from))]),
      advance(at, TILE_ROW_BYTES),
      advance(state, fields.stateRowBytes),
    ]),
  ];
}

/** Computes the row's update: u = v, or beta (v - S^T k) after the decay. */
function findAdded(columns: Columns): Body {
  const { hasBeta, isRelaxed, row, kept, decay, value, at, from, to, math, scope } = columns;
  const [beta, drop] = scope.localArray("v128", "gate", 2) as [Local<"v128">, Local<"v128">];
  return [
    math.exp(v128.load32_splat(row.logDecay), decay),
    hasBeta ? [beta.set(v128.load32_splat(row.beta)), drop.set(f32x4.neg(decay))] : [],
    at.set(ptr.add(kept, size(KEPT.known))),
    to.set(ptr.add(kept, size(KEPT.added))),
    from.set(row.v),
    forColumns(columns, [at, from, to], (lanes) => [
      value.set(lanes.load(from)),
      hasBeta ? [value.set(f32x4.mul(beta, multiplyAdd(isRelaxed, drop, lanes.load(at), value)))] : [],
      lanes.store(to, value),
    ]),
  ];
}

/** S = decay S + k u^T, and S^T q; if `foresees`, also S^T k of the next row. */
function changeColumns(columns: Columns, foresees: boolean): Body {
  const { scope, constants, fields, isRelaxed, row, tile, kept, decay, at, i, value } = columns;
  const [q, k, next] = ["q_at", "k_at", "next_k_at"].map((name) => scope.local("ptr", name)) as Local<"ptr">[] &
    Record<0 | 1 | 2, Local<"ptr">>;
  const [key, query, nextKey] = scope.localArray("v128", "key", 3) as [Local<"v128">, Local<"v128">, Local<"v128">];
  const sums = scope.localArray("v128", "result", VECTORS);
  const ahead = scope.localArray("v128", "ahead", foresees ? VECTORS : 0);
  const add = (sum: Local<"v128">, a: Local<"v128">, b: Expr<"v128">) => sum.set(multiplyAdd(isRelaxed, a, b, sum));
  return [
    q.set(row.q),
    k.set(row.k),
    next.set(ptr.add(row.k, fields.keyBytes)),
    at.set(tile),
    [...sums, ...ahead].map((sum) => sum.set(constants.floats(0))),
    repeat(i, fields.keyDim, [
      key.set(v128.load32_splat(k)),
      query.set(v128.load32_splat(q)),
      foresees ? nextKey.set(v128.load32_splat(next)) : [],
      sums.map((sum, c) => [
        value.set(f32x4.mul(decay, v128.load(at, 16 * c))),
        add(value, key, v128.load(kept, KEPT.added + 16 * c)),
        v128.store(at, value, 16 * c),
        add(sum, query, value),
        foresees ? add(ahead[c]!, nextKey, value) : [],
      ]),
      advance(at, TILE_ROW_BYTES),
      [k, q, next].map((pointer) => advance(pointer, 4)),
    ]),
    sums.map((sum, c) => v128.store(kept, sum, KEPT.sums + 16 * c)),
    ahead.map((sum, c) => v128.store(kept, sum, KEPT.known + 16 * c)),
  ];
}

/** Computes a row: updates the columns, stores the results, and advances to the next row. */
function advanceRow(columns: Columns, isLast: Expr<"i32">): Body {
  const { scope, fields, hasBeta, row, kept, from, to, value } = columns;
  const { keyBytes, valueBytes, gateBytes, scale } = fields;
  const factor = scope.local("v128", "factor");
  return [
    findAdded(columns),
    hasBeta ? when(isLast, changeColumns(columns, false), changeColumns(columns, true)) : changeColumns(columns, false),
    factor.set(f32x4.splat(scale)),
    from.set(ptr.add(kept, size(KEPT.sums))),
    to.set(row.y),
    forColumns(columns, [from, to], (lanes) => [
      value.set(f32x4.mul(factor, lanes.load(from))),
      lanes.store(to, value),
    ]),
    [row.q, row.k].map((pointer) => advance(pointer, keyBytes)),
    [row.v, row.y].map((pointer) => advance(pointer, valueBytes)),
    [row.logDecay, row.beta].map((pointer) => advance(pointer, gateBytes)),
  ];
}

/** Moves the addresses to the tile's head and columns. */
function findColumns(columns: Columns, tile: Local<"i32">, thread: Local<"i32">): Body {
  const { scope, fields, constants, count, kept } = columns;
  const { q, k, v, y, logDecay, beta, stateOffset, scratch, threadBytes, ratio, groups, keyDim, valueDim } = fields;
  const head = scope.local("i32", "head");
  const first = scope.local("i32", "first_column");
  const bytes = (floats: Expr<"i32">) => ptr.mul(widen(floats), size(4));
  const columnsOfHead = ptr.add(elementAt(size(0), head, fields.stateRowBytes), bytes(first));
  return [
    head.set(i32.div_u(tile, groups)),
    first.set(i32.mul(i32.sub(tile, i32.mul(head, groups)), int(COLUMNS))),
    count.set(i32.sub(valueDim, first)),
    when(i32.gt_u(count, int(COLUMNS)), [count.set(int(COLUMNS))]),
    columns.tile.set(elementAt(scratch, thread, threadBytes)),
    kept.set(elementAt(columns.tile, keyDim, TILE_ROW_BYTES)),
    Array.from({ length: VECTORS }, (_, c) => v128.store(kept, constants.floats(0), KEPT.added + 16 * c)),
    [q, k].map((base) => base.set(elementAt(base, i32.div_u(head, ratio), fields.keyHeadBytes))),
    [v, y].map((base) => base.set(ptr.add(base, columnsOfHead))),
    [logDecay, beta].map((base) => base.set(ptr.add(base, bytes(head)))),
    stateOffset.set(ptr.add(elementAt(stateOffset, head, fields.headBytes), bytes(first))),
  ];
}

function recurrenceCode(hasBeta: boolean, isRelaxed: boolean): KernelCode {
  const key = `linear_recurrence${hasBeta ? "_delta" : ""}${isRelaxed ? "_relaxed" : ""}`;
  return {
    key,
    build: () => [
      kernelFunction(key, block, (fields, { tile, thread }, scope) => {
        const columns = new Columns(scope, fields, { hasBeta, isRelaxed });
        const { constants, row, count } = columns;
        const left = scope.local("i32", "rows_left");
        const { q, k, v, logDecay, beta, y, keyBytes, valueBytes, gateBytes } = fields;
        const begin = (names: readonly (keyof typeof row)[], bytes: Local<"ptr">, first: Expr<"i32">) =>
          names.map((name) => row[name].set(elementAt({ q, k, v, logDecay, beta, y }[name], first, bytes)));
        const body = [
          findColumns(columns, tile, thread),
          forStates(columns, fields, { y, rowBytes: valueBytes, count }, (run, now, next) => [
            begin(["q", "k"], keyBytes, run.first),
            begin(["v", "y"], valueBytes, run.first),
            begin(["logDecay", "beta"], gateBytes, run.first),
            takeColumns(columns, now),
            forRange(left, int(0), run.count, advanceRow(columns, i32.eq(i32.add(left, int(1)), run.count))),
            giveColumns(columns, next),
          ]),
        ];
        return [constants.prepare, body];
      }),
    ],
  };
}

const threadBytes = ({ keyDim }: LinearRecurrenceArgs) => TILE_ROW_BYTES * keyDim + KEPT.bytes;

/* @__NO_SIDE_EFFECTS__ */
function recurrenceRow(
  variant: string,
  needs: readonly CpuFeature[],
  isRelaxed: boolean,
): Kernel<LinearRecurrenceArgs> {
  return wasmKernel<LinearRecurrenceArgs>({
    ...plainRow,
    needs,
    name: `linear_recurrence_f32_1x1x4_wasm_${variant}`,
    scratchBytes: (args, threads) => threads * threadBytes(args),
    step(args, place) {
      const { q, k, v, logDecay, beta, y, keyHeads, heads, keyDim, valueDim, scale } = args;
      const groups = Math.ceil(valueDim / COLUMNS);
      const values = {
        ...{ q: place.read(q), k: place.read(k), v: place.read(v), logDecay: place.read(logDecay) },
        ...{ beta: beta ? place.read(beta) : 0, y: place.write(y) },
        ...{ scratch: place.scratch, threadBytes: threadBytes(args) },
        ...{ keyBytes: 4 * keyHeads * keyDim, valueBytes: 4 * heads * valueDim, gateBytes: 4 * heads },
        ...{ keyHeadBytes: 4 * keyDim, headBytes: 4 * keyDim * valueDim, stateRowBytes: 4 * valueDim },
        ...{ ratio: heads / keyHeads, groups, keyDim, valueDim, scale },
        ...stateValues(args, place),
      };
      const code = recurrenceCode(beta !== null, isRelaxed);
      return { phases: [{ code, tiles: heads * groups, args: block.encode(values) }] };
    },
  });
}

export const linearRecurrenceWasm = recurrenceRow("simd", ["simd128"], false);
/** Engines with correct relaxed dot products have the relaxed multiply-add, too. */
export const linearRecurrenceRelaxedWasm = recurrenceRow("relaxed", ["relaxed_dot16"], true);
