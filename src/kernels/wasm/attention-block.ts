/**
 * A block of queries of one head of keys: which they are, which positions they see, and what becomes of the products of
 * queries and keys.
 */
import { type Body, type Expr, type Local, type Statement, select, when, whileDo } from "./assembler/expression.ts";
import { f32x4, i32, i32x4, int, ptr, size, v128 } from "./assembler/instructions.ts";
import type { Scope } from "./assembler/module.ts";
import type { AttentionFields, AttentionShape } from "./attention-shape.ts";
import { storedBytes } from "./lanes.ts";
import { advance, elementAt } from "./loops.ts";
import { VectorMath } from "./vector-math.ts";
import { VectorConstants } from "./weight-fields.ts";

export interface BlockContext {
  readonly shape: AttentionShape;
  readonly fields: AttentionFields;
  readonly scope: Scope;
  /** Position of the first new token. */
  readonly first: Local<"i32">;
  readonly tile: Local<"i32">;
  readonly thread: Local<"i32">;
}

/** A position, its key, how far the next one is, and the place of its scores. */
export interface ScoreCursor {
  readonly position: Local<"i32">;
  readonly key: Local<"ptr">;
  readonly stride: Local<"ptr">;
  readonly score: Local<"ptr">;
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
  /** First and last position that each query sees, four queries to a vector. */
  readonly firsts: readonly Local<"v128">[];
  readonly lasts: readonly Local<"v128">[];
  /** The thread's scratch. */
  readonly scores: Local<"ptr">;

  constructor(context: BlockContext) {
    const { scope, shape } = context;
    const vectors = Math.ceil(shape.queries / 4);
    this.context = context;
    this.constants = new VectorConstants(scope);
    this.math = new VectorMath(scope, this.constants);
    this.head = scope.local("i32", "kv_head");
    this.q = scope.localArray("ptr", "query", shape.queries);
    this.y = scope.localArray("ptr", "result", shape.queries);
    this.from = scope.local("i32", "from");
    this.to = scope.local("i32", "to");
    this.firsts = scope.localArray("v128", "firsts", vectors);
    this.lasts = scope.localArray("v128", "lasts", vectors);
    this.scores = scope.local("ptr", "score_row");
  }

  /** What comes before anything else. */
  prepare(): Body {
    const { fields, thread } = this.context;
    return [this.constants.prepare, this.scores.set(elementAt(fields.scores, thread, fields.threadBytes)), this.find()];
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
      setLane(this.firsts[j >> 2]!, start, j % 4),
      setLane(this.lasts[j >> 2]!, last, j % 4),
    ]);
    return [
      this.head.set(i32.div_u(tile, blocks)),
      block.set(i32.rem_u(tile, blocks)),
      each,
      this.to.set(i32.add(last, int(1))),
    ];
  }

  /** Address of this head's part of a cache at the first position, and the distance of positions. */
  cacheStart(cache: Local<"ptr">): Expr<"ptr"> {
    const { fields, shape } = this.context;
    const row = i32.add(i32.mul(this.from, fields.kvHeads), this.head);
    return elementAt(cache, i32.mul(row, fields.headDim), storedBytes[shape.cache]);
  }

  get cacheStride(): Expr<"ptr"> {
    const { fields, shape } = this.context;
    const zero = { type: "ptr", node: { kind: "const", type: "ptr", value: 0 } } as const;
    return elementAt(zero, i32.mul(fields.kvHeads, fields.headDim), storedBytes[shape.cache]);
  }

  /** Computes the scores of all positions, of `rowBytes` each: of `count` at once where there are so many, else of one. */
  eachScore(count: number, rowBytes: number, dots: (cursor: ScoreCursor, count: number) => Body): Body {
    const { scope, fields } = this.context;
    const cursor = {
      position: scope.local("i32", "position"),
      key: scope.local("ptr", "key"),
      stride: scope.local("ptr", "key_stride"),
      score: scope.local("ptr", "score"),
    };
    const { position, key, stride, score } = cursor;
    const turn = (some: number) => [
      dots(cursor, some),
      position.set(i32.add(position, int(some))),
      advance(key, ptr.mul(stride, size(some))),
      advance(score, some * rowBytes),
    ];
    return [
      position.set(this.from),
      key.set(this.cacheStart(fields.keyCache)),
      stride.set(this.cacheStride),
      score.set(this.scores),
      whileDo(i32.lt_u(i32.add(position, int(count - 1)), this.to), turn(count)),
      whileDo(i32.lt_u(position, this.to), turn(1)),
    ];
  }

  /** Products become scores: scaled, capped, and of several queries minus infinity where one does not see the position. */
  finish(value: Local<"v128">, vector: number, position: Local<"i32">, index: number): Body {
    const { fields, shape, scope } = this.context;
    const capped = scope.local("v128", "capped");
    const softcap = f32x4.splat(fields.softcap);
    const at = i32.add(position, int(index));
    const lanes = i32x4.splat(at);
    const hidden = v128.or(i32x4.gt_s(lanes, this.lasts[vector]!), i32x4.lt_s(lanes, this.firsts[vector]!));
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

  /** Sets a pointer to the scale of the first position's values. */
  setScale(scale: Local<"ptr">): Statement {
    const { fields } = this.context;
    const row = i32.add(i32.mul(this.from, fields.kvHeads), this.head);
    return scale.set(elementAt(fields.valueScales, row, 4));
  }
}
