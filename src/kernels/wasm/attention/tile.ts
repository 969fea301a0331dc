/**
 * Attention, with a softmax that goes on from block to block of the positions (Milakov & Gimelshein 2018), so that caches are
 * read once and in order: few queries of all heads side by side, over a part of the positions each tile, or many queries of a
 * head over all of them. Keys and values of a block become floats in scratch, heads apart. Lanes of vectors are dimensions, and
 * queries from the scores to the weights. A group is four, two or one queries of a head of keys.
 */
import { type Body, type Expr, type Local, when, whileDo } from "../assembler/expression.ts";
import { f32x4, i32, int, ptr, size, v128 } from "../assembler/instructions.ts";
import { forLanes, multiplyAdd, storedBytes, transposed } from "../generate/lanes.ts";
import { advance, elementAt, forRange, repeat } from "../generate/loops.ts";
import { type BlockContext, QueryBlock } from "./block.ts";
import { finishGroup } from "./merge.ts";
import { BLOCK, FACTOR, KEPT, TilePlaces, VECTOR, WEIGHTS } from "./places.ts";
import { copyRow } from "./rows.ts";

/** Sums that hide the time that one takes, and leave registers for what they are made of. */
const REGISTER_SUMS = 8;
/** Largest score before any was seen: finite, so that differences are. */
const NONE_YET = -3.4028234663852886e38;
/** Parts of the positions are multiples of this, but for the last. */
const PART_STEP = 4;

/** The statements of a tile. */
export function attend(context: BlockContext): Body {
  const generator = new AttentionGenerator(context);
  return generator.build();
}

class AttentionGenerator {
  readonly #context: BlockContext;
  readonly #block: QueryBlock;
  readonly #places: TilePlaces;
  readonly #queries: number;
  readonly #group: Local<"i32">;
  readonly #kept: Local<"ptr">;
  readonly #weights: Local<"ptr">;
  /** The block. */
  readonly #position: Local<"i32">;
  readonly #count: Local<"i32">;
  readonly #end: Local<"i32">;
  /** First position that any query of the tile sees. */
  readonly #from: Local<"i32">;

  constructor(context: BlockContext) {
    const { scope } = context;
    this.#context = context;
    this.#queries = context.shape.queries;
    this.#group = scope.local("i32", "group");
    this.#block = new QueryBlock({ ...context, tile: this.#group });
    this.#places = new TilePlaces(context);
    this.#kept = scope.local("ptr", "kept");
    this.#weights = scope.local("ptr", "weights");
    this.#position = scope.local("i32", "position");
    this.#count = scope.local("i32", "count");
    this.#end = scope.local("i32", "to");
    this.#from = scope.local("i32", "from");
  }

  build(): Body {
    const { fields } = this.#context;
    const { constants } = this.#block;
    return [
      constants.prepare,
      this.#places.findSizes(),
      this.#places.findTile(),
      this.#eachGroup([this.#block.find(), this.#begin()]),
      this.#findPart(),
      whileDo(i32.lt_s(this.#position, this.#end), [
        this.#count.set(i32.sub(this.#end, this.#position)),
        when(i32.gt_u(this.#count, int(BLOCK)), [this.#count.set(int(BLOCK))]),
        this.#unpack(fields.keyCache, null),
        this.#eachGroup([this.#computeScores(), this.#weigh()]),
        this.#unpack(fields.valueCache, fields.valueScales),
        this.#eachGroup([this.#addValues()]),
        this.#position.set(i32.add(this.#position, int(BLOCK))),
      ]),
      when(i32.eq(fields.parts, int(1)), [
        this.#eachGroup([this.#block.find(), finishGroup(this.#block, this.#places, this.#kept)]),
      ]),
    ];
  }

  /** An equal part of what any query of the tile sees; the last ones may be empty. */
  #findPart(): Body {
    const { fields, scope } = this.#context;
    const { to } = this.#block;
    const share = scope.local("i32", "share");
    const parts = i32.mul(fields.parts, int(PART_STEP));
    const seen = i32.add(i32.sub(to, this.#from), i32.sub(parts, int(1)));
    return [
      share.set(i32.mul(i32.div_u(seen, parts), int(PART_STEP))),
      this.#position.set(i32.add(this.#from, i32.mul(share, this.#places.part))),
      this.#end.set(i32.add(this.#position, share)),
      when(i32.gt_s(this.#end, to), [this.#end.set(to)]),
    ];
  }

  #eachGroup(body: Body): Body {
    return [
      this.#kept.set(this.#places.kept),
      this.#weights.set(this.#places.weights),
      forRange(this.#group, this.#places.first, this.#places.end, [
        body,
        advance(this.#kept, this.#places.keptBytes),
        advance(this.#weights, WEIGHTS),
      ]),
    ];
  }

  /** What a group keeps before the first block: its queries, and sums of nothing. */
  #begin(): Body {
    const { q, constants, firsts, lasts, from: first } = this.#block;
    const { scope, fields } = this.#context;
    const to = scope.local("ptr", "to");
    const zero = constants.words(0);
    const from = scope.localArray("ptr", "from", q.length);
    return [
      when(i32.eq(this.#group, this.#places.first), [this.#from.set(first)]),
      v128.store(this.#kept, constants.floats(NONE_YET), KEPT.largest),
      v128.store(this.#kept, zero, KEPT.totals),
      v128.store(this.#kept, firsts, KEPT.firsts),
      v128.store(this.#kept, lasts, KEPT.lasts),
      to.set(ptr.add(this.#kept, size(KEPT.queries))),
      repeat(scope.local("i32", "left"), i32.mul(this.#places.quads, int(2 * q.length)), [
        v128.store(to, zero),
        advance(to, VECTOR),
      ]),
      to.set(ptr.add(this.#kept, size(KEPT.queries))),
      from.map((pointer, j) => pointer.set(q[j]!)),
      forLanes({ scope, constants, count: fields.headDim, pointers: from.map((p) => [p] as const) }, (lanes) => [
        from.map((pointer, j) => lanes.store(ptr.add(to, size(VECTOR * j)), lanes.load(pointer))),
        advance(to, lanes.count === 4 ? this.#places.quadBytes : 4),
      ]),
    ];
  }

  /** The block's rows of a cache as floats: [head][position][quads], the rest of the last quad 0. */
  #unpack(cache: Local<"ptr">, scales: Local<"ptr"> | null): Body {
    const { scope, fields, shape } = this.#context;
    const { constants } = this.#block;
    const from = scope.local("ptr", "from");
    const to = scope.local("ptr", "to");
    const target = scope.local("ptr", "target");
    const row = scope.local("ptr", "row");
    const scaleAt = scope.local("ptr", "scale_at");
    const scale = shape.cache === "int8" && scales ? scope.local("v128", "scale") : null;
    const { rowBytes } = this.#places;
    const across = i32.sub(fields.kvHeads, fields.spanHeads);
    const first = i32.add(i32.mul(this.#position, fields.kvHeads), this.#places.head);
    return [
      from.set(cacheRow(cache, first, this.#context)),
      target.set(this.#places.floats),
      scale && scales ? scaleAt.set(elementAt(scales, first, 4)) : [],
      forRange(scope.local("i32", "count"), int(0), this.#count, [
        row.set(target),
        repeat(scope.local("i32", "left"), fields.spanHeads, [
          to.set(row),
          when(i32.and(fields.headDim, int(3)), [
            v128.store(ptr.sub(ptr.add(row, rowBytes), size(VECTOR)), constants.words(0)),
          ]),
          scale ? [scale.set(v128.load32_splat(scaleAt)), advance(scaleAt, 4)] : [],
          copyRow({ scope, constants, cache: shape.cache }, { from, to, count: fields.headDim, scale }),
          advance(row, ptr.mul(rowBytes, size(BLOCK))),
        ]),
        advance(target, rowBytes),
        from.set(cacheRow(from, across, this.#context)),
        scale ? scaleAt.set(elementAt(scaleAt, across, 4)) : [],
      ]),
    ];
  }

  /** Where a group's rows of floats begin; sets its head. */
  #findRows(row: Local<"ptr">): Body {
    const { head } = this.#block;
    const { floats, head: first, rowBytes } = this.#places;
    return [
      head.set(i32.div_u(this.#group, this.#context.fields.blocks)),
      row.set(elementAt(floats, i32.mul(i32.sub(head, first), int(BLOCK)), rowBytes)),
    ];
  }

  /** Runs `work` for `most`, and then one, of `total` at a time. */
  #inTurn(total: Local<"i32">, most: number, work: (count: number) => Body): Body {
    const left = this.#context.scope.local("i32", "left");
    const some = (count: number) =>
      whileDo(i32.ge_u(left, int(count)), [work(count), left.set(i32.sub(left, int(count)))]);
    return [left.set(total), most > 1 ? some(most) : [], some(1)];
  }

  #computeScores(): Body {
    const { firsts, lasts } = this.#block;
    const { scope } = this.#context;
    const key = scope.local("ptr", "key");
    const score = scope.local("ptr", "score");
    const position = scope.local("i32", "position");
    return [
      this.#findRows(key),
      firsts.set(v128.load(this.#kept, KEPT.firsts)),
      lasts.set(v128.load(this.#kept, KEPT.lasts)),
      score.set(this.#weights),
      position.set(this.#position),
      this.#inTurn(this.#count, Math.max(2, REGISTER_SUMS / (2 * this.#queries)), (count) => [
        this.#dots(key, score, position, count),
        advance(score, count * VECTOR),
        position.set(i32.add(position, int(count))),
      ]),
    ];
  }

  /** Scores of `count` positions; `key` moves on to the next row. */
  #dots(key: Local<"ptr">, score: Local<"ptr">, position: Local<"i32">, count: number): Body {
    const { constants } = this.#block;
    const { scope, shape } = this.#context;
    const sums = Array.from({ length: count }, (_, p) => scope.localArray("v128", `dot${p}_`, this.#queries));
    const keys = [key, ...scope.localArray("ptr", "next_key", count - 1)];
    const query = scope.local("ptr", "query");
    const part = scope.local("v128", "part");
    const parts = scope.localArray("v128", "part", count);
    const value = scope.local("v128", "value");
    const quad = (v: number) => [
      parts.map((local, p) => local.set(v128.load(keys[p]!, VECTOR * v))),
      Array.from({ length: this.#queries }, (_, j) => [
        part.set(v128.load(query, this.#places.quadBytes * v + VECTOR * j)),
        parts.map((local, p) => sums[p]![j]!.set(multiplyAdd(shape.isRelaxed, part, local, sums[p]![j]!))),
      ]),
    ];
    return [
      sums.flat().map((sum) => sum.set(constants.words(0))),
      keys.slice(1).map((next, p) => next.set(ptr.add(keys[p]!, this.#places.rowBytes))),
      query.set(ptr.add(this.#kept, size(KEPT.queries))),
      this.#inTurn(this.#places.quads, 2, (vectors) => [
        Array.from({ length: vectors }, (_, v) => quad(v)),
        keys.map((pointer) => advance(pointer, VECTOR * vectors)),
        advance(query, this.#places.quadBytes * vectors),
      ]),
      count > 1 ? key.set(keys.at(-1)!) : [],
      sums.map((locals, p) => {
        const rows = [...locals, ...Array<Expr<"v128">>(4 - locals.length).fill(constants.words(0))];
        const [a, b, c, d] = transposed(rows) as [Expr<"v128">, Expr<"v128">, Expr<"v128">, Expr<"v128">];
        return [
          value.set(f32x4.add(f32x4.add(a, b), f32x4.add(c, d))),
          this.#block.finish(value, position, p),
          v128.store(score, value, VECTOR * p),
        ];
      }),
    ];
  }

  /** Scores to weights, the largest of which is 1 over all blocks so far. */
  #weigh(): Body {
    const { math } = this.#block;
    const { scope } = this.#context;
    const at = scope.local("ptr", "at");
    const value = scope.local("v128", "weight");
    const before = scope.local("v128", "before");
    const largest = scope.local("v128", "largest");
    const total = scope.local("v128", "total");
    const each = (body: Body) => [
      at.set(this.#weights),
      repeat(scope.local("i32", "left"), this.#count, [body, advance(at, VECTOR)]),
    ];
    return [
      largest.set(before.tee(v128.load(this.#kept, KEPT.largest))),
      each([largest.set(f32x4.pmax(largest, v128.load(at)))]),
      math.exp(f32x4.sub(before, largest), value),
      v128.store(this.#weights, value, FACTOR),
      total.set(f32x4.mul(v128.load(this.#kept, KEPT.totals), value)),
      each([
        math.exp(f32x4.sub(v128.load(at), largest), value),
        v128.store(at, value),
        total.set(f32x4.add(total, value)),
      ]),
      v128.store(this.#kept, largest, KEPT.largest),
      v128.store(this.#kept, total, KEPT.totals),
    ];
  }

  /** Values times weights onto the sums, as many dimensions at a time as there are registers for. */
  #addValues(): Body {
    const { scope } = this.#context;
    const value = scope.local("ptr", "value");
    const sum = scope.local("ptr", "sum");
    const factors = scope.localArray("v128", "factor", this.#queries);
    return [
      this.#findRows(value),
      sum.set(this.#places.sums(this.#kept)),
      factors.map((factor, j) => factor.set(v128.load32_splat(this.#weights, FACTOR + 4 * j))),
      this.#inTurn(this.#places.quads, REGISTER_SUMS / this.#queries, (vectors) => [
        this.#mix(value, sum, factors, vectors),
        advance(value, VECTOR * vectors),
        advance(sum, this.#places.quadBytes * vectors),
      ]),
    ];
  }

  #mix(value: Local<"ptr">, sum: Local<"ptr">, factors: readonly Local<"v128">[], vectors: number): Body {
    const { scope, shape } = this.#context;
    const sums = scope.localArray("v128", "mix", vectors * factors.length);
    const at = [scope.local("ptr", "at"), scope.local("ptr", "next")] as const;
    const weights = scope.local("ptr", "weight_at");
    const weight = scope.local("v128", "weight");
    const values = scope.localArray("v128", "value", vectors);
    const one = (p: number) => [
      values.map((local, v) => local.set(v128.load(at[p]!, VECTOR * v))),
      factors.map((_, j) => [
        weight.set(v128.load32_splat(weights, VECTOR * p + 4 * j)),
        values.map((local, v) => {
          const own = sums[v * factors.length + j]!;
          return own.set(multiplyAdd(shape.isRelaxed, weight, local, own));
        }),
      ]),
    ];
    return [
      sums.map((local, i) => local.set(f32x4.mul(v128.load(sum, VECTOR * i), factors[i % factors.length]!))),
      at[0].set(value),
      weights.set(this.#weights),
      this.#inTurn(this.#count, 2, (count) => [
        count === 2 ? at[1].set(ptr.add(at[0], this.#places.rowBytes)) : [],
        Array.from({ length: count }, (_, p) => one(p)),
        at[0].set(ptr.add(at[count - 1]!, this.#places.rowBytes)),
        advance(weights, count * VECTOR),
      ]),
      sums.map((local, i) => v128.store(sum, local, VECTOR * i)),
    ];
  }
}

/** Address of a row of a head, by its number, in a cache. */
function cacheRow(cache: Local<"ptr">, row: Expr<"i32">, { fields, shape }: BlockContext): Expr<"ptr"> {
  return elementAt(cache, row, elementAt(size(0), fields.headDim, storedBytes[shape.cache]));
}
