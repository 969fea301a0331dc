/**
 * A block of queries of one head of keys: which they are, which positions they see, and what becomes of the products of
 * queries and keys.
 */
import { type Body, type Expr, type Local, type Statement, select, when } from "../assembler/expression.ts";
import { f32x4, i32, i32x4, int, v128 } from "../assembler/instructions.ts";
import type { Scope } from "../assembler/module.ts";
import { elementAt } from "../generate/loops.ts";
import { VectorMath } from "../generate/vector-math.ts";
import { VectorConstants } from "../generate/weight-fields.ts";
import type { AttentionFields, AttentionShape } from "./shape.ts";

export interface BlockContext {
  readonly shape: AttentionShape;
  readonly fields: AttentionFields;
  readonly scope: Scope;
  /** Position of the first new token. */
  readonly first: Local<"i32">;
  readonly tile: Local<"i32">;
  readonly thread: Local<"i32">;
}

const setLane = (vector: Local<"v128">, value: Expr<"i32">, lane: number): Statement =>
  vector.set(i32x4.replace_lane(vector, value, lane));

/** Locals of a tile's block of queries, and the statements that set them and finish scores. */
export class QueryBlock {
  readonly context: BlockContext;
  readonly constants: VectorConstants;
  readonly math: VectorMath;
  readonly head: Local<"i32">;
  /** Addresses of the queries, and of their results. */
  readonly q: readonly Local<"ptr">[];
  readonly y: readonly Local<"ptr">[];
  /** Positions that any query sees: from `from` up to, not including, `to`. */
  readonly from: Local<"i32">;
  readonly to: Local<"i32">;
  /** First and last position that each query sees. */
  readonly firsts: Local<"v128">;
  readonly lasts: Local<"v128">;

  constructor(context: BlockContext) {
    const { scope, shape } = context;
    this.context = context;
    this.constants = new VectorConstants(scope);
    this.math = new VectorMath(scope, this.constants);
    this.head = scope.local("i32", "kv_head");
    this.q = scope.localArray("ptr", "query", shape.queries);
    this.y = scope.localArray("ptr", "result", shape.queries);
    this.from = scope.local("i32", "from");
    this.to = scope.local("i32", "to");
    this.firsts = scope.local("v128", "firsts");
    this.lasts = scope.local("v128", "lasts");
  }

  /** Finds the block's queries; where it has fewer, the last again, which changes nothing. */
  find(): Body {
    const { shape, fields, scope, first, tile } = this.context;
    const { blocks, ratio, kvHeads, headDim, tokens, window } = fields;
    const index = scope.local("i32", "index");
    const token = scope.local("i32", "token");
    const block = scope.local("i32", "block");
    const last = scope.local("i32", "last");
    const start = scope.local("i32", "start");
    const row = scope.local("i32", "row");
    const final = i32.sub(i32.mul(tokens, ratio), int(1));
    const each = this.q.map((query, j) => [
      index.set(i32.add(i32.mul(block, int(shape.queries)), int(j))),
      when(i32.gt_u(index, final), [index.set(final)]),
      token.set(i32.div_u(index, ratio)),
      row.set(i32.mul(token, i32.mul(kvHeads, ratio))),
      row.set(i32.add(row, i32.add(i32.mul(this.head, ratio), i32.rem_u(index, ratio)))),
      query.set(elementAt(fields.q, i32.mul(row, headDim), 4)),
      this.y[j]!.set(elementAt(fields.y, i32.mul(row, headDim), 4)),
      last.set(i32.add(first, token)),
      shape.hasWindow ? start.set(select(i32.ge_s(last, window), i32.add(i32.sub(last, window), int(1)), int(0))) : [],
      j === 0 ? this.from.set(start) : [],
      setLane(this.firsts, start, j),
      setLane(this.lasts, last, j),
    ]);
    return [
      this.head.set(i32.div_u(tile, blocks)),
      block.set(i32.rem_u(tile, blocks)),
      each,
      this.to.set(i32.add(last, int(1))),
    ];
  }

  /** Products become scores: scaled, capped, and of several queries minus infinity where one does not see the position. */
  finish(value: Local<"v128">, position: Local<"i32">, index: number): Body {
    const { fields, shape, scope } = this.context;
    const capped = scope.local("v128", "capped");
    const softcap = f32x4.splat(fields.softcap);
    const at = i32.add(position, int(index));
    const lanes = i32x4.splat(at);
    const hidden = v128.or(i32x4.gt_s(lanes, this.lasts), i32x4.lt_s(lanes, this.firsts));
    const row = i32.add(i32.mul(at, fields.kvHeads), this.head);
    return [
      value.set(f32x4.mul(value, f32x4.splat(fields.scale))),
      shape.cache === "int8" ? value.set(f32x4.mul(value, v128.load32_splat(elementAt(fields.keyScales, row, 4)))) : [],
      shape.hasSoftcap
        ? [this.math.tanh(f32x4.div(value, softcap), capped), value.set(f32x4.mul(capped, softcap))]
        : [],
      shape.queries > 1
        ? value.set(v128.bitselect(this.constants.floats(Number.NEGATIVE_INFINITY), value, hidden))
        : [],
    ];
  }
}
