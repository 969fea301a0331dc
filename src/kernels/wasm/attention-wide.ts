/**
 * Attention of four or eight queries: their scores of all positions that any of them sees, the softmax, and the mix of
 * values. Lanes of vectors are queries throughout: queries are turned first, results last, and nothing else crosses lanes.
 * Thread scratch has the scores, vectors of a position's queries, then the turned queries, vectors of a dimension.
 */
import { type Body, type Expr, type Local, shuffle4, when, whileDo } from "./assembler/expression.ts";
import { f32x4, i32, int, ptr, size, v128 } from "./assembler/instructions.ts";
import { type BlockContext, QueryBlock, type ScoreCursor } from "./attention-block.ts";
import { forLanes, type Lanes, lanesOf, multiplyAdd, storedBytes } from "./lanes.ts";
import { advance, elementAt, repeat } from "./loops.ts";
import type { VectorConstants } from "./weight-fields.ts";

/** The statements of a tile. */
export function attendWidely(context: BlockContext): Body {
  const generator = new WideGenerator(new QueryBlock(context));
  return generator.build();
}

/** Positions whose scores are computed at once. */
const WIDE_POSITIONS = 4;
/** Sums that hide the time that one takes, and leave registers for what they are made of. */
const REGISTER_SUMS = 8;

/** Positions whose values are mixed before the next ones are. */
const MIXED_POSITIONS = 16;

/** Thread scratch in floats for each query. */
export function wideScratch({ capacity, headDim }: { capacity: number; headDim: number }): number {
  return capacity + headDim;
}

/** Lane `lane` in all lanes. */
const spread = (vector: Local<"v128">, lane: number) => shuffle4(vector, vector, [lane, lane, lane, lane]);

/** Rows of four vectors as columns. */
function transposed(rows: readonly Expr<"v128">[]): Expr<"v128">[] {
  const [a, b, c, d] = rows as [Expr<"v128">, Expr<"v128">, Expr<"v128">, Expr<"v128">];
  const low = [shuffle4(a, b, [0, 4, 1, 5]), shuffle4(c, d, [0, 4, 1, 5])] as const;
  const high = [shuffle4(a, b, [2, 6, 3, 7]), shuffle4(c, d, [2, 6, 3, 7])] as const;
  return [low, high].flatMap(([x, y]) => [shuffle4(x, y, [0, 1, 4, 5]), shuffle4(x, y, [2, 3, 6, 7])]);
}

/** Positions, and where their values, weights and scales begin. */
interface SomePositions {
  readonly first: Local<"i32">;
  readonly end: Local<"i32">;
  readonly value: Local<"ptr">;
  readonly stride: Local<"ptr">;
  readonly score: Local<"ptr">;
  readonly scale: Local<"ptr">;
}

class WideGenerator {
  readonly #block: QueryBlock;
  /** Vectors of queries. */
  readonly #vectors: number;
  readonly #largest: readonly Local<"v128">[];
  readonly #inverse: readonly Local<"v128">[];
  /** Address of the turned queries. */
  readonly #turned: Local<"ptr">;
  readonly #splat: Local<"v128">;

  constructor(block: QueryBlock) {
    const { scope, shape } = block.context;
    this.#block = block;
    this.#vectors = shape.queries / 4;
    this.#largest = scope.localArray("v128", "largest", this.#vectors);
    this.#inverse = scope.localArray("v128", "inverse", this.#vectors);
    this.#turned = scope.local("ptr", "turned");
    this.#splat = scope.local("v128", "spread");
  }

  build(): Body {
    const steps = [this.#turnQueries(), this.#computeScores(), this.#softmax(), this.#mixValues()];
    return [this.#block.prepare(), steps];
  }

  /** Bytes of a position in the scores, and of a dimension in the turned queries. */
  get #rowBytes(): number {
    return 16 * this.#vectors;
  }

  #turnQueries(): Body {
    const { q, scores, constants, context } = this.#block;
    const { scope, fields } = context;
    const to = scope.local("ptr", "turned_at");
    const from = scope.localArray("ptr", "turn_from", q.length);
    const rows = scope.localArray("v128", "turn_row", 4);
    const quad = (v: number, lanes: Lanes) => {
      const four = from.slice(4 * v, 4 * v + 4);
      const load = rows.map((row, j) => row.set(lanes.load(four[j]!)));
      const columns = transposed(rows).slice(0, lanes.count);
      return [load, columns.map((column, d) => v128.store(to, column, this.#rowBytes * d + 16 * v))];
    };
    return [
      this.#turned.set(elementAt(scores, fields.capacity, this.#rowBytes)),
      to.set(this.#turned),
      from.map((pointer, j) => pointer.set(q[j]!)),
      forLanes({ scope, constants, count: fields.headDim, pointers: from.map((p) => [p] as const) }, (lanes) => [
        this.#largest.map((_, v) => quad(v, lanes)),
        advance(to, this.#rowBytes * lanes.count),
      ]),
    ];
  }

  #computeScores(): Body {
    const lowest = this.#block.constants.floats(Number.NEGATIVE_INFINITY);
    return [
      this.#largest.map((largest) => largest.set(lowest)),
      this.#block.eachScore(WIDE_POSITIONS, this.#rowBytes, (cursor, count) => this.#dots(cursor, count)),
    ];
  }

  /** Scores of all queries for `count` positions. */
  #dots({ position, key, stride, score }: ScoreCursor, count: number): Body {
    const { constants, context } = this.#block;
    const { scope, fields, shape } = context;
    const sums = Array.from({ length: count }, (_, p) => scope.localArray("v128", `dot${p}_`, this.#vectors));
    const keys = scope.localArray("v128", "keys", count);
    const pointers = scope.localArray("ptr", "key_at", count);
    const query = scope.local("ptr", "query_at");
    const parts = scope.localArray("v128", "query_part", this.#vectors);
    const value = scope.local("v128", "value");
    const dimension = (d: number) => [
      parts.map((part, v) => part.set(v128.load(query, this.#rowBytes * d + 16 * v))),
      keys.map((local, p) => [
        this.#splat.set(spread(local, d)),
        parts.map((part, v) => sums[p]![v]!.set(multiplyAdd(shape.isRelaxed, part, this.#splat, sums[p]![v]!))),
      ]),
    ];
    return [
      sums.flat().map((sum) => sum.set(constants.words(0))),
      pointers.map((pointer, p) => pointer.set(p === 0 ? key : ptr.add(pointers[p - 1]!, stride))),
      query.set(this.#turned),
      forLanes(
        { scope, constants, count: fields.headDim, pointers: pointers.map((p) => [p, shape.cache] as const) },
        (lanes) => [
          keys.map((local, p) => local.set(lanes.load(pointers[p]!, shape.cache))),
          Array.from({ length: lanes.count }, (_, d) => dimension(d)),
          advance(query, this.#rowBytes * lanes.count),
        ],
      ),
      sums.map((locals, p) =>
        locals.map((sum, v) => [
          value.set(sum),
          this.#block.finish(value, v, position, p),
          v128.store(score, value, p * this.#rowBytes + 16 * v),
          this.#largest[v]!.set(f32x4.pmax(this.#largest[v]!, value)),
        ]),
      ),
    ];
  }

  #softmax(): Body {
    const { from, to, scores, constants, math, context } = this.#block;
    const { scope } = context;
    const score = scope.local("ptr", "score_at");
    const position = scope.local("i32", "at");
    const value = scope.local("v128", "weight");
    const totals = scope.localArray("v128", "total", this.#vectors);
    return [
      score.set(scores),
      position.set(from),
      totals.map((total) => total.set(constants.words(0))),
      whileDo(i32.lt_u(position, to), [
        totals.map((total, v) => [
          math.exp(f32x4.sub(v128.load(score, 16 * v), this.#largest[v]!), value),
          v128.store(score, value, 16 * v),
          total.set(f32x4.add(total, value)),
        ]),
        advance(score, this.#rowBytes),
        position.set(i32.add(position, int(1))),
      ]),
      this.#inverse.map((inverse, v) => inverse.set(f32x4.div(constants.floats(1), totals[v]!))),
    ];
  }

  /**
   * Values times weights, some positions after the other: rows of a cache lie so that few of them fit the first cache at
   * once. The sums of all dimensions take the place of the turned queries.
   */
  #mixValues(): Body {
    const { from, to, scores, constants, context } = this.#block;
    const { scope, fields, shape } = context;
    const sum = scope.local("ptr", "clear_at");
    const some = {
      first: scope.local("i32", "mix_from"),
      end: scope.local("i32", "mix_to"),
      value: scope.local("ptr", "value_at"),
      stride: scope.local("ptr", "value_stride"),
      score: scope.local("ptr", "weights_at"),
      scale: scope.local("ptr", "scales_at"),
    };
    return [
      sum.set(this.#turned),
      repeat(scope.local("i32", "cleared"), fields.headDim, [
        this.#inverse.map((_, v) => v128.store(sum, constants.words(0), 16 * v)),
        advance(sum, this.#rowBytes),
      ]),
      some.first.set(from),
      some.value.set(this.#block.cacheStart(fields.valueCache)),
      some.stride.set(this.#block.cacheStride),
      some.score.set(scores),
      shape.cache === "int8" ? this.#block.setScale(some.scale) : [],
      whileDo(i32.lt_u(some.first, to), [
        some.end.set(i32.add(some.first, int(MIXED_POSITIONS))),
        when(i32.gt_u(some.end, to), [some.end.set(to)]),
        this.#mixSome(some),
        some.first.set(some.end),
        advance(some.value, ptr.mul(some.stride, size(MIXED_POSITIONS))),
        advance(some.score, MIXED_POSITIONS * this.#rowBytes),
        shape.cache === "int8" ? some.scale.set(elementAt(some.scale, fields.kvHeads, 4 * MIXED_POSITIONS)) : [],
      ]),
      this.#storeResults(constants),
    ];
  }

  /** Some positions: as many dimensions at a time as there are registers for. */
  #mixSome(some: SomePositions): Body {
    const { constants, context } = this.#block;
    const { scope, fields, shape } = context;
    const left = scope.local("i32", "dimensions_left");
    const value = scope.local("ptr", "value_part");
    const sum = scope.local("ptr", "sum_at");
    const part = (quads: number, lanes: Lanes) => {
      const dimensions = quads * lanes.count;
      return whileDo(i32.ge_u(left, int(dimensions)), [
        this.#mix({ ...some, value }, sum, quads, lanes),
        advance(value, dimensions * storedBytes[shape.cache]),
        advance(sum, dimensions * this.#rowBytes),
        left.set(i32.sub(left, int(dimensions))),
      ]);
    };
    const [four, one] = [lanesOf(4, constants), lanesOf(1, constants)];
    const quads = REGISTER_SUMS / 4 / this.#vectors;
    return [
      left.set(fields.headDim),
      value.set(some.value),
      sum.set(this.#turned),
      part(quads, four),
      quads > 1 ? part(1, four) : [],
      part(1, one),
    ];
  }

  /** Some dimensions of the sums, over some positions. */
  #mix(some: SomePositions, sum: Local<"ptr">, quads: number, lanes: Lanes): Body {
    const { scope, shape, fields } = this.#block.context;
    const sums = Array.from({ length: quads * lanes.count }, (_, d) =>
      scope.localArray("v128", `mix${d}_`, this.#vectors),
    );
    const at = scope.local("ptr", "at");
    const score = scope.local("ptr", "weight_at");
    const position = scope.local("i32", "mixed");
    const part = scope.local("v128", "part");
    const weights = scope.localArray("v128", "weight", this.#vectors);
    const scale = scope.local("ptr", "scale_at");
    const isScaled = shape.cache === "int8";
    const scaled = (v: number) => {
      const weight = v128.load(score, 16 * v);
      return isScaled ? f32x4.mul(weight, v128.load32_splat(scale)) : weight;
    };
    const dimension = (d: number) => [
      this.#splat.set(spread(part, d % 4)),
      weights.map((weight, v) => sums[d]![v]!.set(multiplyAdd(shape.isRelaxed, weight, this.#splat, sums[d]![v]!))),
    ];
    const eachSum = (work: (local: Local<"v128">, offset: number) => Body[number]) =>
      sums.map((locals, d) => locals.map((local, v) => work(local, this.#rowBytes * d + 16 * v)));
    return [
      eachSum((local, offset) => local.set(v128.load(sum, offset))),
      at.set(some.value),
      score.set(some.score),
      isScaled ? scale.set(some.scale) : [],
      position.set(some.first),
      whileDo(i32.lt_u(position, some.end), [
        weights.map((weight, v) => weight.set(scaled(v))),
        Array.from({ length: quads }, (_, quad) => [
          part.set(lanes.load(at, shape.cache, 4 * quad * storedBytes[shape.cache])),
          Array.from({ length: lanes.count }, (_, d) => dimension(4 * quad + d)),
        ]),
        advance(at, some.stride),
        advance(score, this.#rowBytes),
        isScaled ? scale.set(elementAt(scale, fields.kvHeads, 4)) : [],
        position.set(i32.add(position, int(1))),
      ]),
      eachSum((local, offset) => v128.store(sum, local, offset)),
    ];
  }

  /** The sums, divided by the totals and turned back. */
  #storeResults(constants: VectorConstants): Body {
    const { y, context } = this.#block;
    const { scope, fields } = context;
    const sum = scope.local("ptr", "stored");
    const rows = scope.localArray("v128", "stored_row", 4);
    const zero = constants.words(0);
    const vector = (v: number, lanes: Lanes) => [
      rows.map((row, d) =>
        row.set(d < lanes.count ? f32x4.mul(v128.load(sum, this.#rowBytes * d + 16 * v), this.#inverse[v]!) : zero),
      ),
      transposed(rows).map((column, j) => lanes.store(y[4 * v + j]!, column)),
    ];
    return [
      sum.set(this.#turned),
      forLanes({ scope, constants, count: fields.headDim, pointers: y.map((p) => [p] as const) }, (lanes) => [
        this.#inverse.map((_, v) => vector(v, lanes)),
        advance(sum, this.#rowBytes * lanes.count),
      ]),
    ];
  }
}
