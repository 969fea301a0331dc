/**
 * A group of queries that share a KV head: which queries, which positions they see, how products of queries and keys become
 * scores, and the state of an online softmax. The queries of a run are numbered row by row.
 */
import { type Body, type Expr, type Local, type Statement, select, when } from "../../../wasm/assembler/expression.ts";
import { f32, f32x4, float, i32, i32x4, int, ptr, size, v128 } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { forLanes } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, repeat } from "../../../wasm/generate/loops.ts";
import type { Run } from "../../../wasm/generate/runs.ts";
import { VectorMath } from "../../../wasm/generate/vector-math.ts";
import { VectorConstants } from "../../../wasm/generate/weight-fields.ts";
import { type AttentionFields, type GroupShape, KEPT, STATE, VECTOR } from "./shape.ts";

/** Initial largest score; finite, so that differences are finite. */
const NONE_YET = -3.4028234663852886e38;

export interface GroupContext {
  readonly shape: GroupShape;
  readonly fields: AttentionFields;
  readonly scope: Scope;
  readonly run: Run;
}

const setLane = (vector: Local<"v128">, value: Expr<"i32">, lane: number): Statement =>
  vector.set(i32x4.replace_lane(vector, value, lane));

export class QueryGroup {
  readonly constants: VectorConstants;
  readonly math: VectorMath;
  /** KV head, and index of the group among the head's groups. */
  readonly head: Local<"i32">;
  readonly group: Local<"i32">;
  /** Number of groups of a head. */
  readonly groups: Local<"i32">;
  /** Addresses of the queries, and of their results. */
  readonly q: readonly Local<"ptr">[];
  readonly y: readonly Local<"ptr">[];
  /** First and last position that each query sees. */
  readonly firsts: Local<"v128">;
  readonly lasts: Local<"v128">;
  /** Vectors of four floats in a row; bytes of a row of floats, of a state, and of all data kept for a group (see `KEPT`). */
  readonly quads: Local<"i32">;
  readonly rowBytes: Local<"ptr">;
  readonly stateBytes: Local<"ptr">;
  readonly keptBytes: Local<"ptr">;
  readonly #context: GroupContext;

  constructor(context: GroupContext) {
    const { scope, shape } = context;
    this.#context = context;
    this.constants = new VectorConstants(scope);
    this.math = new VectorMath(scope, this.constants);
    this.head = scope.local("i32", "kv_head");
    this.group = scope.local("i32", "group");
    this.groups = scope.local("i32", "groups");
    this.q = scope.localArray("ptr", "query", shape.queries);
    this.y = scope.localArray("ptr", "result", shape.queries);
    this.firsts = scope.local("v128", "firsts");
    this.lasts = scope.local("v128", "lasts");
    this.quads = scope.local("i32", "quads");
    this.rowBytes = scope.local("ptr", "row_bytes");
    this.stateBytes = scope.local("ptr", "state_bytes");
    this.keptBytes = scope.local("ptr", "kept_bytes");
  }

  /** Bytes of four dimensions of all queries of the group; their sums take as many. */
  get quadBytes(): number {
    return VECTOR * this.#context.shape.queries;
  }

  findSizes(): Body {
    const { fields, shape, run } = this.#context;
    const queries = i32.add(i32.mul(run.count, fields.ratio), int(shape.queries - 1));
    return [
      this.quads.set(i32.shr_u(i32.add(fields.headDim, int(3)), int(2))),
      this.rowBytes.set(elementAt(size(0), this.quads, VECTOR)),
      this.stateBytes.set(ptr.add(ptr.mul(this.rowBytes, size(shape.queries)), size(STATE.sums))),
      this.keptBytes.set(ptr.mul(this.stateBytes, size(3))),
      this.groups.set(i32.div_u(queries, int(shape.queries))),
    ];
  }

  /** Finds the queries of `head` and `group`. An incomplete group repeats its last query, which changes nothing. */
  find(): Body {
    const { shape, fields, scope, run } = this.#context;
    const { ratio, kvHeads, headDim, window } = fields;
    const index = scope.local("i32", "index");
    const row = scope.local("i32", "row");
    const last = scope.local("i32", "last");
    const start = scope.local("i32", "start");
    const final = i32.sub(i32.mul(run.count, ratio), int(1));
    return this.q.map((query, j) => [
      index.set(i32.add(i32.mul(this.group, int(shape.queries)), int(j))),
      when(i32.gt_u(index, final), [index.set(final)]),
      row.set(i32.div_u(index, ratio)),
      last.set(i32.add(run.position, row)),
      row.set(i32.mul(i32.add(run.first, row), i32.mul(kvHeads, ratio))),
      row.set(i32.add(row, i32.add(i32.mul(this.head, ratio), i32.rem_u(index, ratio)))),
      query.set(elementAt(fields.q, i32.mul(row, headDim), 4)),
      this.y[j]!.set(elementAt(fields.y, i32.mul(row, headDim), 4)),
      shape.hasWindow ? start.set(select(i32.ge_s(last, window), i32.add(i32.sub(last, window), int(1)), int(0))) : [],
      setLane(this.firsts, start, j),
      setLane(this.lasts, last, j),
    ]);
  }

  /** Writes first and last positions, and the queries transposed [dimensions, queries], to `kept`. */
  keep(kept: Local<"ptr">): Body {
    const { scope, fields } = this.#context;
    const to = scope.local("ptr", "to");
    const from = scope.localArray("ptr", "from", this.q.length);
    return [
      v128.store(kept, this.firsts, KEPT.firsts),
      v128.store(kept, this.lasts, KEPT.lasts),
      to.set(ptr.sub(ptr.add(kept, this.stateBytes), size(this.quadBytes))),
      // Pads the last vectors with zeros if headDim is not a multiple of 4.
      this.q.map((_, j) => v128.store(to, this.constants.words(0), VECTOR * j)),
      to.set(ptr.add(kept, size(KEPT.queries))),
      from.map((pointer, j) => pointer.set(this.q[j]!)),
      forLanes(
        { scope, constants: this.constants, count: fields.headDim, pointers: from.map((p) => [p] as const) },
        (lanes) => [
          from.map((pointer, j) => lanes.store(ptr.add(to, size(VECTOR * j)), lanes.load(pointer))),
          advance(to, lanes.count === 4 ? this.quadBytes : 4),
        ],
      ),
    ];
  }

  /** Empties a state: no position seen. */
  clear(state: Local<"ptr">): Body {
    const { scope } = this.#context;
    const to = scope.local("ptr", "to");
    const zero = this.constants.words(0);
    return [
      v128.store(state, this.constants.floats(NONE_YET), STATE.largest),
      v128.store(state, zero, STATE.totals),
      to.set(ptr.add(state, size(STATE.sums))),
      repeat(scope.local("i32", "left"), i32.mul(this.quads, int(this.q.length)), [
        v128.store(to, zero),
        advance(to, VECTOR),
      ]),
    ];
  }

  /** Initializes the state into which chunks are folded: empty, or with the attention sink of each query's head. */
  begin(state: Local<"ptr">): Body {
    const { shape, fields, scope, run } = this.#context;
    if (!shape.hasSinks) return this.clear(state);
    const index = scope.local("i32", "sink_index");
    const final = i32.sub(i32.mul(run.count, fields.ratio), int(1));
    const sink = scope.local("ptr", "sink");
    return [
      this.clear(state),
      this.q.map((_, j) => [
        index.set(i32.add(i32.mul(this.group, int(shape.queries)), int(j))),
        when(i32.gt_u(index, final), [index.set(final)]),
        index.set(i32.add(i32.mul(this.head, fields.ratio), i32.rem_u(index, fields.ratio))),
        sink.set(elementAt(fields.sinks, index, 4)),
        f32.store(state, f32.load(sink), STATE.largest + 4 * j),
        f32.store(state, float(1), STATE.totals + 4 * j),
      ]),
    ];
  }

  /** Merges the state of a chunk into that of the chunks before it. */
  fold(chunk: Local<"ptr">, state: Local<"ptr">): Body {
    const { scope } = this.#context;
    const [before, after, largest] = ["before", "after", "largest"].map((name) => scope.local("v128", name)) as [
      Local<"v128">,
      Local<"v128">,
      Local<"v128">,
    ];
    const at = scope.local("ptr", "at");
    const from = scope.local("ptr", "from");
    const mine = scope.localArray("v128", "mine", this.q.length);
    const its = scope.localArray("v128", "its", this.q.length);
    const mixed = (a: Expr<"v128">, b: Expr<"v128">, offset: number, factors: readonly [Expr<"v128">, Expr<"v128">]) =>
      v128.store(at, f32x4.add(f32x4.mul(a, factors[0]), f32x4.mul(b, factors[1])), offset);
    const pair = (offset: number) => [v128.load(at, offset), v128.load(from, offset)] as const;
    return [
      at.set(state),
      from.set(chunk),
      before.set(v128.load(at, STATE.largest)),
      after.set(v128.load(from, STATE.largest)),
      largest.set(f32x4.pmax(before, after)),
      v128.store(at, largest, STATE.largest),
      this.math.exp(f32x4.sub(before, largest), before),
      this.math.exp(f32x4.sub(after, largest), after),
      mixed(...pair(STATE.totals), STATE.totals, [before, after]),
      mine.map((local, j) => local.set(f32x4.splat(f32x4.extract_lane(before, j)))),
      its.map((local, j) => local.set(f32x4.splat(f32x4.extract_lane(after, j)))),
      repeat(scope.local("i32", "left"), this.quads, [
        mine.map((local, j) => {
          const offset = STATE.sums + VECTOR * j;
          return mixed(...pair(offset), offset, [local, its[j]!]);
        }),
        advance(at, this.quadBytes),
        advance(from, this.quadBytes),
      ]),
    ];
  }

  /** Writes the results: sums / totals. */
  finish(state: Local<"ptr">): Body {
    const { scope, fields } = this.#context;
    const value = scope.local("v128", "value");
    const inverses = scope.localArray("v128", "inverse", this.y.length);
    const sum = scope.local("ptr", "sum");
    return [
      value.set(f32x4.div(this.constants.floats(1), v128.load(state, STATE.totals))),
      inverses.map((local, j) => local.set(f32x4.splat(f32x4.extract_lane(value, j)))),
      sum.set(ptr.add(state, size(STATE.sums))),
      forLanes(
        { scope, constants: this.constants, count: fields.headDim, pointers: this.y.map((p) => [p] as const) },
        (lanes) => [
          this.y.map((to, j) => lanes.store(to, f32x4.mul(lanes.load(ptr.add(sum, size(VECTOR * j))), inverses[j]!))),
          advance(sum, lanes.count === 4 ? this.quadBytes : 4),
        ],
      ),
    ];
  }

  /**
   * Turns products of queries and keys into scores: scaled, soft-capped, and if the group mixes rows, minus infinity for
   * queries that do not see the position. `scale` is the key's, used for int8 keys.
   */
  score(value: Local<"v128">, position: Expr<"i32">, scale: Expr<"v128">): Body {
    const { fields, shape, scope } = this.#context;
    const capped = scope.local("v128", "capped");
    const softcap = f32x4.splat(fields.softcap);
    const lanes = scope.local("v128", "position");
    const hidden = v128.or(i32x4.gt_s(lanes, this.lasts), i32x4.lt_s(lanes, this.firsts));
    return [
      value.set(f32x4.mul(value, f32x4.splat(fields.scale))),
      shape.cache === "int8" ? value.set(f32x4.mul(value, scale)) : [],
      shape.hasSoftcap
        ? [this.math.tanh(f32x4.div(value, softcap), capped), value.set(f32x4.mul(capped, softcap))]
        : [],
      shape.isMixed
        ? [
            lanes.set(i32x4.splat(position)),
            value.set(v128.bitselect(this.constants.floats(Number.NEGATIVE_INFINITY), value, hidden)),
          ]
        : [],
    ];
  }
}
