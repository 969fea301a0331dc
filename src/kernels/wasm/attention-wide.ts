/**
 * Attention of four or eight queries: their scores of all positions that any of them sees, the softmax, and the mix of
 * values. Lanes of vectors are queries throughout: queries are turned first, results last, and nothing else crosses lanes.
 * Thread scratch has the scores, vectors of a position's queries, then the turned queries, vectors of a dimension, and last
 * some rows of a cache as floats, whose single numbers go to all lanes as they are loaded.
 */
import { type Body, type Local, when, whileDo, widen } from "./assembler/expression.ts";
import { f32x4, i32, int, ptr, size, v128 } from "./assembler/instructions.ts";
import { type BlockContext, QueryBlock, type ScoreCursor } from "./attention-block.ts";
import { forLanes, type Lanes, multiplyAdd, transposed } from "./lanes.ts";
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

/** Bytes of thread scratch. */
export function wideScratch(args: { capacity: number; headDim: number }, queries: number): number {
  return 4 * (queries * (args.capacity + args.headDim) + MIXED_POSITIONS * args.headDim);
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
  /** Address of rows of a cache as floats, and the distance of those. */
  readonly #rows: Local<"ptr">;
  readonly #rowStride: Local<"ptr">;
  readonly #splat: Local<"v128">;

  constructor(block: QueryBlock) {
    const { scope, shape } = block.context;
    this.#block = block;
    this.#vectors = shape.queries / 4;
    this.#largest = scope.localArray("v128", "largest", this.#vectors);
    this.#inverse = scope.localArray("v128", "inverse", this.#vectors);
    this.#turned = scope.local("ptr", "turned");
    this.#rows = scope.local("ptr", "rows");
    this.#rowStride = scope.local("ptr", "row_stride");
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
      this.#rows.set(elementAt(this.#turned, fields.headDim, this.#rowBytes)),
      this.#rowStride.set(ptr.mul(widen(fields.headDim), size(4))),
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

  /** Writes `count` rows of a cache to the address `to` as floats, which moves on; `from` does not. */
  #unpack(from: Local<"ptr">, stride: Local<"ptr">, to: Local<"ptr">, count: number): Body {
    const { constants, context } = this.#block;
    const { scope, fields, shape } = context;
    const sources = scope.localArray("ptr", "packed", count);
    const targets = scope.localArray("ptr", "unpacked", count);
    const pointers = [...sources.map((p) => [p, shape.cache] as const), ...targets.map((p) => [p] as const)];
    return [
      sources.map((pointer, p) => pointer.set(p === 0 ? from : ptr.add(sources[p - 1]!, stride))),
      targets.map((pointer, p) => pointer.set(p === 0 ? to : ptr.add(targets[p - 1]!, this.#rowStride))),
      forLanes({ scope, constants, count: fields.headDim, pointers }, (lanes) =>
        targets.map((target, p) => lanes.store(target, lanes.load(sources[p]!, shape.cache))),
      ),
      to.set(targets[count - 1]!),
    ];
  }

  /** Scores of all queries for `count` positions. */
  #dots({ position, key, stride, score }: ScoreCursor, count: number): Body {
    const { constants, context } = this.#block;
    const { scope, fields, shape } = context;
    const sums = Array.from({ length: count }, (_, p) => scope.localArray("v128", `dot${p}_`, this.#vectors));
    const keys = scope.localArray("ptr", "key_at", count);
    const query = scope.local("ptr", "query_at");
    const unpacked = scope.local("ptr", "unpacked_key");
    const parts = scope.localArray("v128", "query_part", this.#vectors);
    const value = scope.local("v128", "value");
    const isPlain = shape.cache === "f32";
    const dimension = (d: number) => [
      parts.map((part, v) => part.set(v128.load(query, this.#rowBytes * d + 16 * v))),
      keys.map((at, p) => [
        this.#splat.set(v128.load32_splat(at, 4 * d)),
        parts.map((part, v) => sums[p]![v]!.set(multiplyAdd(shape.isRelaxed, part, this.#splat, sums[p]![v]!))),
      ]),
    ];
    const first = isPlain ? key : this.#rows;
    const distance = isPlain ? stride : this.#rowStride;
    return [
      isPlain ? [] : [unpacked.set(this.#rows), this.#unpack(key, stride, unpacked, count)],
      sums.flat().map((sum) => sum.set(constants.words(0))),
      keys.map((pointer, p) => pointer.set(p === 0 ? first : ptr.add(keys[p - 1]!, distance))),
      query.set(this.#turned),
      forLanes({ scope, constants, count: fields.headDim, pointers: keys.map((p) => [p] as const) }, (lanes) => [
        Array.from({ length: lanes.count }, (_, d) => dimension(d)),
        advance(query, this.#rowBytes * lanes.count),
      ]),
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
    const { scope, fields, shape } = this.#block.context;
    const left = scope.local("i32", "dimensions_left");
    const value = scope.local("ptr", "value_part");
    const sum = scope.local("ptr", "sum_at");
    const isPlain = shape.cache === "f32";
    const rows = { ...some, value, stride: isPlain ? some.stride : this.#rowStride };
    const part = (dimensions: number) =>
      whileDo(i32.ge_u(left, int(dimensions)), [
        this.#mix(rows, sum, dimensions),
        advance(value, dimensions * 4),
        advance(sum, dimensions * this.#rowBytes),
        left.set(i32.sub(left, int(dimensions))),
      ]);
    return [
      isPlain ? [] : this.#unpackSome(some),
      left.set(fields.headDim),
      value.set(isPlain ? some.value : this.#rows),
      sum.set(this.#turned),
      part(REGISTER_SUMS / this.#vectors),
      part(1),
    ];
  }

  #unpackSome({ first, end, value, stride }: SomePositions): Body {
    const { scope } = this.#block.context;
    const from = scope.local("ptr", "packed_value");
    const to = scope.local("ptr", "unpacked_value");
    const left = scope.local("i32", "packed_left");
    const some = (count: number) =>
      whileDo(i32.ge_u(left, int(count)), [
        this.#unpack(from, stride, to, count),
        advance(from, ptr.mul(stride, size(count))),
        left.set(i32.sub(left, int(count))),
      ]);
    return [from.set(value), to.set(this.#rows), left.set(i32.sub(end, first)), some(WIDE_POSITIONS), some(1)];
  }

  /** Some dimensions of the sums, over some positions, whose values are floats. */
  #mix(some: SomePositions, sum: Local<"ptr">, dimensions: number): Body {
    const { scope, shape, fields } = this.#block.context;
    const sums = Array.from({ length: dimensions }, (_, d) => scope.localArray("v128", `mix${d}_`, this.#vectors));
    const at = scope.local("ptr", "at");
    const score = scope.local("ptr", "weight_at");
    const position = scope.local("i32", "mixed");
    const weights = scope.localArray("v128", "weight", this.#vectors);
    const scale = scope.local("ptr", "scale_at");
    const isScaled = shape.cache === "int8";
    const scaled = (v: number) => {
      const weight = v128.load(score, 16 * v);
      return isScaled ? f32x4.mul(weight, v128.load32_splat(scale)) : weight;
    };
    const dimension = (d: number) => [
      this.#splat.set(v128.load32_splat(at, 4 * d)),
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
        sums.map((_, d) => dimension(d)),
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
