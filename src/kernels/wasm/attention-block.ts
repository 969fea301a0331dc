/**
 * A block of queries: scores of all positions that any of them sees, their softmax, and the mix of values. Scores lie in
 * thread scratch, a vector of the block's queries for each position; of a single query, a float.
 */
import { type Body, type Expr, type Local, select, shuffle4, when, whileDo } from "./assembler/expression.ts";
import { f32, f32x4, float, i32, i32x4, int, ptr, v128 } from "./assembler/instructions.ts";
import type { Scope } from "./assembler/module.ts";
import type { AttentionFields, AttentionShape } from "./attention-shape.ts";
import { forLanes, type Lanes, lanesOf, largestLane, storedBytes, sumOfLanes } from "./lanes.ts";
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

/** The statements of a tile. */
export function attendBlock(context: BlockContext): Body {
  const generator = new BlockGenerator(context);
  return generator.build();
}

/** Sums of values that fit in registers beside what they are made of. */
const REGISTER_SUMS = 8;

class BlockGenerator {
  readonly #context: BlockContext;
  readonly #constants: VectorConstants;
  readonly #math: VectorMath;
  readonly #head: Local<"i32">;
  /** Addresses of the queries, and of their results. */
  readonly #q: readonly Local<"ptr">[];
  readonly #y: readonly Local<"ptr">[];
  /** Positions that any query sees: from `from` up to, not including, `to`. */
  readonly #from: Local<"i32">;
  readonly #to: Local<"i32">;
  /** First and last position that each query sees. */
  readonly #firsts: Local<"v128">;
  readonly #lasts: Local<"v128">;
  readonly #scores: Local<"ptr">;
  readonly #largest: Local<"v128">;
  readonly #inverse: Local<"v128">;

  constructor(context: BlockContext) {
    const { scope, shape } = context;
    this.#context = context;
    this.#constants = new VectorConstants(scope);
    this.#math = new VectorMath(scope, this.#constants);
    this.#head = scope.local("i32", "kv_head");
    this.#q = scope.localArray("ptr", "query", shape.queries);
    this.#y = scope.localArray("ptr", "result", shape.queries);
    this.#from = scope.local("i32", "from");
    this.#to = scope.local("i32", "to");
    this.#firsts = scope.local("v128", "firsts");
    this.#lasts = scope.local("v128", "lasts");
    this.#scores = scope.local("ptr", "score_row");
    this.#largest = scope.local("v128", "largest");
    this.#inverse = scope.local("v128", "inverse");
  }

  build(): Body {
    const { fields, thread } = this.#context;
    return [
      this.#constants.prepare,
      this.#scores.set(elementAt(fields.scores, thread, fields.threadBytes)),
      this.#findQueries(),
      this.#computeScores(),
      this.#context.shape.queries === 4 ? this.#softmaxOfFour() : this.#softmaxOfOne(),
      this.#mixValues(),
    ];
  }

  /** Finds the block's queries; where it has fewer, the last again, which changes nothing. */
  #findQueries(): Body {
    const { shape, fields, scope, first, tile } = this.#context;
    const { blocks, ratio, kvHeads, headDim, tokens, window } = fields;
    const index = scope.local("i32", "index");
    const token = scope.local("i32", "token");
    const block = scope.local("i32", "block");
    const last = scope.local("i32", "last");
    const start = scope.local("i32", "start");
    const row = scope.local("i32", "row");
    const final = i32.sub(i32.mul(tokens, ratio), int(1));
    const each = this.#q.map((query, j) => [
      index.set(i32.add(i32.mul(block, int(shape.queries)), int(j))),
      when(i32.gt_u(index, final), [index.set(final)]),
      token.set(i32.div_u(index, ratio)),
      row.set(i32.mul(token, i32.mul(kvHeads, ratio))),
      row.set(i32.add(row, i32.add(i32.mul(this.#head, ratio), i32.rem_u(index, ratio)))),
      query.set(elementAt(fields.q, i32.mul(row, headDim), 4)),
      this.#y[j]!.set(elementAt(fields.y, i32.mul(row, headDim), 4)),
      last.set(i32.add(first, token)),
      shape.hasWindow ? start.set(select(i32.ge_s(last, window), i32.add(i32.sub(last, window), int(1)), int(0))) : [],
      j === 0 ? this.#from.set(start) : [],
      this.#firsts.set(i32x4.replace_lane(this.#firsts, start, j)),
      this.#lasts.set(i32x4.replace_lane(this.#lasts, last, j)),
    ]);
    return [
      this.#head.set(i32.div_u(tile, blocks)),
      block.set(i32.rem_u(tile, blocks)),
      each,
      this.#to.set(i32.add(last, int(1))),
    ];
  }

  /** Bytes of a position in the scores. */
  get #scoreBytes(): number {
    return 4 * this.#context.shape.queries;
  }

  /** Address of this head's part of a cache at the first position, and the distance of positions. */
  #cacheStart(cache: Local<"ptr">): Expr<"ptr"> {
    const { fields, shape } = this.#context;
    const row = i32.add(i32.mul(this.#from, fields.kvHeads), this.#head);
    return elementAt(cache, i32.mul(row, fields.headDim), storedBytes[shape.cache]);
  }

  get #cacheStride(): Expr<"ptr"> {
    const { fields, shape } = this.#context;
    const zero = { type: "ptr", node: { kind: "const", type: "ptr", value: 0 } } as const;
    return elementAt(zero, i32.mul(fields.kvHeads, fields.headDim), storedBytes[shape.cache]);
  }

  /** Two positions at a time where there are two. */
  #computeScores(): Body {
    const { scope } = this.#context;
    const position = scope.local("i32", "position");
    const key = scope.local("ptr", "key");
    const stride = scope.local("ptr", "key_stride");
    const score = scope.local("ptr", "score");
    const turn = (count: 1 | 2) => [
      this.#dots(key, stride, score, position, count),
      position.set(i32.add(position, int(count))),
      Array.from({ length: count }, () => advance(key, stride)),
      advance(score, count * this.#scoreBytes),
    ];
    return [
      position.set(this.#from),
      key.set(this.#cacheStart(this.#context.fields.keyCache)),
      stride.set(this.#cacheStride),
      score.set(this.#scores),
      this.#largest.set(f32x4.splat(float(Number.NEGATIVE_INFINITY))),
      whileDo(i32.lt_u(i32.add(position, int(1)), this.#to), turn(2)),
      whileDo(i32.lt_u(position, this.#to), turn(1)),
    ];
  }

  /** Scores of all queries for `count` positions. */
  #dots(key: Local<"ptr">, stride: Local<"ptr">, score: Local<"ptr">, position: Local<"i32">, count: 1 | 2): Body {
    const { scope, fields, shape } = this.#context;
    const sums = Array.from({ length: count }, (_, p) => scope.localArray("v128", `dot${p}_`, shape.queries));
    const keys = scope.localArray("v128", "keys", count);
    const query = scope.local("v128", "query_part");
    const pointers = [...scope.localArray("ptr", "key_at", count)];
    const queries = scope.localArray("ptr", "query_at", shape.queries);
    const moving = [...pointers.map((p) => [p, shape.cache] as const), ...queries.map((p) => [p] as const)];
    const multiply = (lanes: Lanes) => [
      keys.map((local, p) => local.set(lanes.load(pointers[p]!, shape.cache))),
      queries.map((pointer, j) => [
        query.set(lanes.load(pointer)),
        keys.map((local, p) => sums[p]![j]!.set(f32x4.add(sums[p]![j]!, f32x4.mul(local, query)))),
      ]),
    ];
    return [
      sums.flat().map((sum) => sum.set(this.#constants.words(0))),
      pointers.map((pointer, p) => pointer.set(p === 0 ? key : ptr.add(key, stride))),
      queries.map((pointer, j) => pointer.set(this.#q[j]!)),
      forLanes({ scope, constants: this.#constants, count: fields.headDim, pointers: moving }, multiply),
      sums.map((locals, p) => this.#storeScore(locals, score, i32.add(position, int(p)), p)),
    ];
  }

  /** Sums over lanes, scaled, capped, and minus infinity where a query does not see the position. */
  #storeScore(sums: readonly Local<"v128">[], score: Local<"ptr">, position: Expr<"i32">, p: number): Body {
    const { fields, shape, scope } = this.#context;
    const value = scope.local("v128", "value");
    const capped = scope.local("v128", "capped");
    const softcap = f32x4.splat(fields.softcap);
    const sum = shape.queries === 4 ? transposedSum(sums) : f32x4.splat(sumOfLanes(sums[0]!));
    const at = i32x4.splat(position);
    const hidden = v128.or(i32x4.gt_s(at, this.#lasts), i32x4.lt_s(at, this.#firsts));
    const offset = p * this.#scoreBytes;
    const row = i32.add(i32.mul(position, fields.kvHeads), this.#head);
    return [
      value.set(f32x4.mul(sum, f32x4.splat(fields.scale))),
      shape.cache === "int8" ? value.set(f32x4.mul(value, v128.load32_splat(elementAt(fields.keyScales, row, 4)))) : [],
      shape.hasSoftcap
        ? [this.#math.tanh(f32x4.div(value, softcap), capped), value.set(f32x4.mul(capped, softcap))]
        : [],
      shape.queries === 4
        ? [
            value.set(v128.bitselect(this.#constants.floats(Number.NEGATIVE_INFINITY), value, hidden)),
            v128.store(score, value, offset),
          ]
        : v128.store32_lane(score, value, 0, offset),
      this.#largest.set(f32x4.pmax(this.#largest, value)),
    ];
  }

  /** Lanes are queries: nothing crosses them. */
  #softmaxOfFour(): Body {
    const { scope } = this.#context;
    const score = scope.local("ptr", "score_at");
    const position = scope.local("i32", "at");
    const value = scope.local("v128", "weight");
    const total = scope.local("v128", "total");
    return [
      score.set(this.#scores),
      position.set(this.#from),
      total.set(this.#constants.words(0)),
      whileDo(i32.lt_u(position, this.#to), [
        this.#math.exp(f32x4.sub(v128.load(score), this.#largest), value),
        v128.store(score, value),
        total.set(f32x4.add(total, value)),
        advance(score, 16),
        position.set(i32.add(position, int(1))),
      ]),
      this.#inverse.set(f32x4.div(this.#constants.floats(1), total)),
    ];
  }

  /** Lanes are positions. */
  #softmaxOfOne(): Body {
    const { scope } = this.#context;
    const score = scope.local("ptr", "score_at");
    const value = scope.local("v128", "weight");
    const total = scope.local("v128", "total");
    const count = i32.sub(this.#to, this.#from);
    return [
      score.set(this.#scores),
      this.#largest.set(f32x4.splat(largestLane(this.#largest))),
      total.set(this.#constants.words(0)),
      forLanes({ scope, constants: this.#constants, count, pointers: [[score]] }, (lanes) => [
        this.#math.exp(f32x4.sub(lanes.load(score), this.#largest), value),
        lanes.store(score, value),
        total.set(f32x4.add(total, lanes.count === 4 ? value : lanes.load(score))),
      ]),
      this.#inverse.set(f32x4.splat(f32.div(float(1), sumOfLanes(total)))),
    ];
  }

  /** Values times weights: as many dimensions at a time as there are registers for. */
  #mixValues(): Body {
    const { scope, fields, shape } = this.#context;
    const left = scope.local("i32", "dimensions_left");
    const value = scope.local("ptr", "value_at");
    const stride = scope.local("ptr", "value_stride");
    const wide = REGISTER_SUMS / shape.queries;
    const part = (vectors: number, count: 1 | 4) =>
      whileDo(i32.ge_u(left, int(vectors * count)), [
        this.#mix(value, stride, vectors, lanesOf(count, this.#constants)),
        advance(value, vectors * count * storedBytes[shape.cache]),
        this.#y.map((pointer) => advance(pointer, vectors * count * 4)),
        left.set(i32.sub(left, int(vectors * count))),
      ]);
    return [
      left.set(fields.headDim),
      value.set(this.#cacheStart(fields.valueCache)),
      stride.set(this.#cacheStride),
      part(wide, 4),
      part(1, 4),
      part(1, 1),
    ];
  }

  /** Some vectors of the results, over all positions. */
  #mix(value: Local<"ptr">, stride: Local<"ptr">, vectors: number, lanes: Lanes): Body {
    const { scope, shape, fields } = this.#context;
    const sums = this.#y.map((_, j) => scope.localArray("v128", `mix${j}_`, vectors));
    const at = scope.local("ptr", "at");
    const score = scope.local("ptr", "weight_at");
    const position = scope.local("i32", "mixed");
    const parts = scope.localArray("v128", "part", vectors);
    const weight = scope.local("v128", "weight");
    const step = 4 * storedBytes[shape.cache];
    const scale = scope.local("ptr", "scale_at");
    const isScaled = shape.cache === "int8";
    const row = i32.add(i32.mul(this.#from, fields.kvHeads), this.#head);
    const load = (j: number) => v128.load32_splat(score, 4 * j);
    const weightOf = (j: number) => (isScaled ? f32x4.mul(load(j), v128.load32_splat(scale)) : load(j));
    const store = (pointer: Local<"ptr">, j: number, v: number) => {
      const lane = shape.queries === 4 ? shuffle4(this.#inverse, this.#inverse, [j, j, j, j]) : this.#inverse;
      const result = f32x4.mul(sums[j]![v]!, lane);
      return lanes.count === 4 ? v128.store(pointer, result, 16 * v) : lanes.store(pointer, result);
    };
    return [
      sums.flat().map((sum) => sum.set(this.#constants.words(0))),
      at.set(value),
      score.set(this.#scores),
      isScaled ? scale.set(elementAt(fields.valueScales, row, 4)) : [],
      position.set(this.#from),
      whileDo(i32.lt_u(position, this.#to), [
        parts.map((part, v) => part.set(lanes.load(at, shape.cache, v * step))),
        sums.map((locals, j) => [
          weight.set(weightOf(j)),
          locals.map((sum, v) => sum.set(f32x4.add(sum, f32x4.mul(parts[v]!, weight)))),
        ]),
        advance(at, stride),
        advance(score, this.#scoreBytes),
        isScaled ? scale.set(elementAt(scale, fields.kvHeads, 4)) : [],
        position.set(i32.add(position, int(1))),
      ]),
      this.#y.map((pointer, j) => parts.map((_, v) => store(pointer, j, v))),
    ];
  }
}

/** The sums of the lanes of four vectors, in the lanes of one. */
function transposedSum(sums: readonly Local<"v128">[]): Expr<"v128"> {
  const [a, b, c, d] = sums as [Local<"v128">, Local<"v128">, Local<"v128">, Local<"v128">];
  const low = f32x4.add(shuffle4(a, b, [0, 4, 1, 5]), shuffle4(a, b, [2, 6, 3, 7]));
  const high = f32x4.add(shuffle4(c, d, [0, 4, 1, 5]), shuffle4(c, d, [2, 6, 3, 7]));
  return f32x4.add(shuffle4(low, high, [0, 1, 4, 5]), shuffle4(low, high, [2, 3, 6, 7]));
}
