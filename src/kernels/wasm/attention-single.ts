/**
 * Attention of one query: scores of the positions that it sees, their softmax, and the mix of values. Lanes of vectors are
 * dimensions, and positions for the softmax; scores are floats in thread scratch.
 */
import { type Body, type Local, whileDo } from "./assembler/expression.ts";
import { f32, f32x4, float, i32, int, ptr, v128 } from "./assembler/instructions.ts";
import { type BlockContext, QueryBlock, type ScoreCursor } from "./attention-block.ts";
import { eightHalves } from "./halves.ts";
import { forLanes, type Lanes, lanesOf, largestLane, storedBytes, sumOfLanes } from "./lanes.ts";
import { advance, elementAt } from "./loops.ts";

/** The statements of a tile. */
export function attendSingly(context: BlockContext): Body {
  const generator = new SingleGenerator(new QueryBlock(context));
  return generator.build();
}

/** Positions whose scores are computed at once. */
const POSITIONS = 2;
/** Sums of values that fit in registers beside what they are made of. */
const REGISTER_SUMS = 8;

class SingleGenerator {
  readonly #block: QueryBlock;
  readonly #largest: Local<"v128">;
  readonly #inverse: Local<"v128">;

  constructor(block: QueryBlock) {
    const { scope } = block.context;
    this.#block = block;
    this.#largest = scope.local("v128", "largest");
    this.#inverse = scope.local("v128", "inverse");
  }

  build(): Body {
    const steps = [this.#computeScores(), this.#softmax(), this.#mixValues()];
    return [this.#block.prepare(), steps];
  }

  #computeScores(): Body {
    return [
      this.#largest.set(this.#block.constants.floats(Number.NEGATIVE_INFINITY)),
      this.#block.eachScore(POSITIONS, 4, (cursor, count) => this.#dots(cursor, count)),
    ];
  }

  /** Scores of `count` positions. */
  #dots({ position, key, stride, score }: ScoreCursor, count: number): Body {
    const { q, constants, context } = this.#block;
    const { scope, fields, shape } = context;
    const sums = scope.localArray("v128", "dot", count);
    const pointers = scope.localArray("ptr", "key_at", count);
    const query = scope.local("ptr", "query_at");
    const part = scope.local("v128", "query_part");
    const value = scope.local("v128", "value");
    const moving = [...pointers.map((p) => [p, shape.cache] as const), [query] as const];
    return [
      sums.map((sum) => sum.set(constants.words(0))),
      pointers.map((pointer, p) => pointer.set(p === 0 ? key : ptr.add(key, stride))),
      query.set(q[0]!),
      forLanes({ scope, constants, count: fields.headDim, pointers: moving }, (lanes) => [
        part.set(lanes.load(query)),
        sums.map((sum, p) => sum.set(f32x4.add(sum, f32x4.mul(lanes.load(pointers[p]!, shape.cache), part)))),
      ]),
      sums.map((sum, p) => [
        value.set(f32x4.splat(sumOfLanes(sum))),
        this.#block.finish(value, 0, position, p),
        v128.store32_lane(score, value, 0, 4 * p),
        this.#largest.set(f32x4.pmax(this.#largest, value)),
      ]),
    ];
  }

  #softmax(): Body {
    const { from, to, scores, constants, math, context } = this.#block;
    const { scope } = context;
    const score = scope.local("ptr", "score_at");
    const value = scope.local("v128", "weight");
    const total = scope.local("v128", "total");
    const count = i32.sub(to, from);
    return [
      score.set(scores),
      this.#largest.set(f32x4.splat(largestLane(this.#largest))),
      total.set(constants.words(0)),
      forLanes({ scope, constants, count, pointers: [[score]] }, (lanes) => [
        math.exp(f32x4.sub(lanes.load(score), this.#largest), value),
        lanes.store(score, value),
        total.set(f32x4.add(total, lanes.count === 4 ? value : lanes.load(score))),
      ]),
      this.#inverse.set(f32x4.splat(f32.div(float(1), sumOfLanes(total)))),
    ];
  }

  /** Values times weights: as many dimensions at a time as there are registers for. */
  #mixValues(): Body {
    const { constants, context } = this.#block;
    const { scope, fields, shape } = context;
    const result = this.#block.y[0]!;
    const left = scope.local("i32", "dimensions_left");
    const value = scope.local("ptr", "value_at");
    const stride = scope.local("ptr", "value_stride");
    const part = (vectors: number, count: 1 | 4) =>
      whileDo(i32.ge_u(left, int(vectors * count)), [
        this.#mix(value, stride, vectors, lanesOf(count, constants)),
        advance(value, vectors * count * storedBytes[shape.cache]),
        advance(result, vectors * count * 4),
        left.set(i32.sub(left, int(vectors * count))),
      ]);
    return [
      left.set(fields.headDim),
      value.set(this.#block.cacheStart(fields.valueCache)),
      stride.set(this.#block.cacheStride),
      part(REGISTER_SUMS, 4),
      part(1, 4),
      part(1, 1),
    ];
  }

  /** Some vectors of the result, over all positions. */
  #mix(value: Local<"ptr">, stride: Local<"ptr">, vectors: number, lanes: Lanes): Body {
    const { from, to, scores, constants, context } = this.#block;
    const { scope, shape, fields } = context;
    const result = this.#block.y[0]!;
    const sums = scope.localArray("v128", "mix", vectors);
    const at = scope.local("ptr", "at");
    const score = scope.local("ptr", "weight_at");
    const position = scope.local("i32", "mixed");
    const weight = scope.local("v128", "weight");
    const step = 4 * storedBytes[shape.cache];
    const scale = scope.local("ptr", "scale_at");
    const isScaled = shape.cache === "int8";
    const load = v128.load32_splat(score);
    const floats = shape.cache === "f16" && vectors % 2 === 0 ? scope.localArray("v128", "floats", vectors) : [];
    const part = (v: number) => floats[v] ?? lanes.load(at, shape.cache, v * step);
    const pairs = Array.from({ length: floats.length / 2 }, (_, i) => ({
      from: at,
      offset: 2 * i * step,
      floats: floats.slice(2 * i, 2 * i + 2),
    }));
    return [
      sums.map((sum) => sum.set(constants.words(0))),
      at.set(value),
      score.set(scores),
      isScaled ? this.#block.setScale(scale) : [],
      position.set(from),
      whileDo(i32.lt_u(position, to), [
        weight.set(isScaled ? f32x4.mul(load, v128.load32_splat(scale)) : load),
        pairs.length > 0 ? eightHalves({ scope, constants }, pairs) : [],
        sums.map((sum, v) => sum.set(f32x4.add(sum, f32x4.mul(part(v), weight)))),
        advance(at, stride),
        advance(score, 4),
        isScaled ? scale.set(elementAt(scale, fields.kvHeads, 4)) : [],
        position.set(i32.add(position, int(1))),
      ]),
      sums.map((sum, v) => {
        const finished = f32x4.mul(sum, this.#inverse);
        return lanes.count === 4 ? v128.store(result, finished, 16 * v) : lanes.store(result, finished);
      }),
    ];
  }
}
