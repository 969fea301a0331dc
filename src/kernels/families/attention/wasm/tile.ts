/**
 * Attention with an online softmax (Milakov & Gimelshein 2018), block by block of the positions, so that the KV cache is read
 * once and in order: a few queries of several heads at once, or many queries of one head. Blocks begin at multiples of their
 * length and are added to the state of a chunk; chunks are merged in order. So the sums of a query do not depend on what is
 * computed beside it. Keys and values of a block become floats in scratch, each head apart. Lanes of vectors are dimensions;
 * from scores to attention probabilities they are queries.
 */
import { type Body, type Expr, type Local, select, when, whileDo } from "../../../wasm/assembler/expression.ts";
import { f32, f32x4, i32, int, ptr, size, v128 } from "../../../wasm/assembler/instructions.ts";
import { multiplyAdd, storedBytes, transposed } from "../../../wasm/generate/lanes.ts";
import { advance, elementAt, repeat } from "../../../wasm/generate/loops.ts";
import { type KernelCode, kernelFunction } from "../../../wasm/kernel-code.ts";
import { copyRow } from "./cache-rows.ts";
import { type GroupContext, QueryGroup } from "./group.ts";
import { fillOthers, forItems, ItemPlaces, isShort, longItems, RunSplit, slotOf } from "./item.ts";
import { callForRun, groupShapes, itemFunction } from "./item-code.ts";
import { PagePlace } from "./pages.ts";
import {
  type AttentionShape,
  attentionBlock,
  attentionKey,
  BLOCK,
  CHUNK,
  FACTOR,
  type GroupShape,
  KEPT,
  STATE,
  VECTOR,
  WEIGHTS,
} from "./shape.ts";

/** Vectors of sums computed at once: enough to hide the latency of a multiply-add, and registers are left for operands. */
const REGISTER_SUMS = 8;

/** The phase that computes attention. Tile t takes items t, t + tiles, ...; the first tile fills rows that belong to no run. */
export function attendCode(shape: AttentionShape): KernelCode {
  const key = attentionKey(shape);
  const attend = (name: string, group: GroupShape) =>
    itemFunction(name, group, (context, item, thread) => new AttentionGenerator(context).build(item, thread));
  return {
    key,
    build: () => {
      const shapes = groupShapes(shape);
      const codes = {
        single: attend(`${key}_item`, shapes.single),
        longer: shapes.longer && attend(`${key}_longer_item`, shapes.longer),
      };
      const main = kernelFunction(key, attentionBlock, (fields, { args, tile, thread }, scope) => [
        when(i32.eqz(tile), [fillOthers(scope, fields)]),
        forItems(scope, fields, tile, {
          countItems: (run, items) => {
            const split = new RunSplit({ shape, fields, scope, run });
            const short = [split.find(), items.set(split.items)];
            return shape.hasLonger ? [when(isShort(run), short, [items.set(longItems(run, fields))])] : short;
          },
          take: (run, at, item) => callForRun(run, codes, { args, run: at, item, thread }),
        }),
      ]);
      return [main, codes.single, ...(codes.longer ? [codes.longer] : [])];
    },
  };
}

class AttentionGenerator {
  readonly #context: GroupContext;
  readonly #group: QueryGroup;
  readonly #places: ItemPlaces;
  readonly #queries: number;
  /** Addresses for the current group: its kept data, chunk state, block of weights, its head's floats and key scales. */
  readonly #kept: Local<"ptr">;
  readonly #state: Local<"ptr">;
  readonly #weights: Local<"ptr">;
  readonly #rows: Local<"ptr">;
  readonly #scales: Local<"ptr">;
  /** Chunk state of the first group; bytes from a group's state to the next one's; bytes added to that between heads. */
  readonly #firstState: Local<"ptr">;
  readonly #stateStep: Local<"ptr">;
  readonly #headStep: Local<"ptr">;
  /** Positions of the block: position .. end - 1. */
  readonly #position: Local<"i32">;
  readonly #end: Local<"i32">;
  /** Positions of the block that the group sees: the first, how many, and whether some query does not see all of them. */
  readonly #low: Local<"i32">;
  readonly #count: Local<"i32">;
  readonly #isRagged: Local<"i32">;

  constructor(context: GroupContext) {
    const { scope } = context;
    const number = (name: string) => scope.local("i32", name);
    const place = (name: string) => scope.local("ptr", name);
    this.#context = context;
    this.#queries = context.shape.queries;
    this.#group = new QueryGroup(context);
    this.#places = new ItemPlaces(context);
    this.#kept = place("kept");
    this.#state = place("state");
    this.#weights = place("weights");
    this.#rows = place("rows");
    this.#scales = place("scales");
    this.#firstState = place("first_state");
    this.#stateStep = place("state_step");
    this.#headStep = place("head_step");
    this.#position = number("position");
    this.#end = number("end");
    this.#low = number("low");
    this.#count = number("count");
    this.#isRagged = number("is_ragged");
  }

  build(item: Local<"i32">, thread: Local<"i32">): { body: Body; constants: Body } {
    const group = this.#group;
    const places = this.#places;
    const { isPart, chunk, chunkEnd } = places;
    const whole = this.#context.scope.local("ptr", "whole_state");
    const all = whole.set(ptr.add(this.#kept, group.stateBytes));
    return {
      constants: group.constants.prepare,
      body: [
        group.findSizes(),
        places.find(group, item, thread),
        this.#findStates(),
        this.#eachGroup([group.find(), group.keep(this.#kept), when(i32.eqz(isPart), [all, group.begin(whole)])]),
        whileDo(i32.lt_s(chunk, chunkEnd), [
          this.#chunk(),
          when(
            i32.eqz(isPart),
            [this.#eachGroup([all, group.fold(this.#state, whole)])],
            [advance(this.#firstState, this.#context.fields.slotBytes)],
          ),
          chunk.set(i32.add(chunk, int(1))),
        ]),
        when(i32.eqz(isPart), [this.#eachGroup([group.find(), all, group.finish(whole)])]),
      ],
    };
  }

  /** Finds the chunk states: within the group's kept data, or in slots if the item is a part of a split run. */
  #findStates(): Body {
    const { fields } = this.#context;
    const { head, group, stateBytes, keptBytes } = this.#group;
    const { isPart, kept, chunk, chunks, groups } = this.#places;
    const first = elementAt(slotOf(this.#context, { head, group }), i32.sub(chunk, chunks.first), fields.slotBytes);
    const others = i32.sub(fields.slotGroups, groups);
    return [
      this.#firstState.set(ptr.add(kept, ptr.add(stateBytes, stateBytes))),
      this.#stateStep.set(keptBytes),
      this.#headStep.set(size(0)),
      when(isPart, [
        head.set(this.#places.head),
        group.set(this.#places.group),
        this.#firstState.set(first),
        this.#stateStep.set(elementAt(size(0), fields.slotChunks, fields.slotBytes)),
        this.#headStep.set(elementAt(size(0), others, this.#stateStep)),
      ]),
    ];
  }

  #eachGroup(body: Body): Body {
    const { scope } = this.#context;
    const { head, group, rowBytes, keptBytes } = this.#group;
    const places = this.#places;
    return [
      this.#kept.set(places.kept),
      this.#state.set(this.#firstState),
      this.#weights.set(places.weights),
      this.#rows.set(places.floats),
      this.#scales.set(places.scales),
      head.set(places.head),
      repeat(scope.local("i32", "heads_left"), places.heads, [
        group.set(places.group),
        repeat(scope.local("i32", "groups_left"), places.groups, [
          body,
          advance(this.#kept, keptBytes),
          advance(this.#state, this.#stateStep),
          advance(this.#weights, WEIGHTS),
          group.set(i32.add(group, int(1))),
        ]),
        advance(this.#state, this.#headStep),
        advance(this.#rows, ptr.mul(rowBytes, size(BLOCK))),
        advance(this.#scales, 4 * BLOCK),
        head.set(i32.add(head, int(1))),
      ]),
    ];
  }

  #chunk(): Body {
    const { fields, scope } = this.#context;
    const { chunk, chunks } = this.#places;
    const chunkEnd = scope.local("i32", "chunk_to");
    const start = i32.mul(chunk, int(CHUNK));
    return [
      this.#eachGroup([this.#group.clear(this.#state)]),
      this.#position.set(select(i32.lt_s(start, chunks.from), chunks.from, start)),
      chunkEnd.set(i32.add(start, int(CHUNK))),
      when(i32.gt_s(chunkEnd, chunks.to), [chunkEnd.set(chunks.to)]),
      whileDo(i32.lt_s(this.#position, chunkEnd), [
        this.#end.set(i32.add(i32.or(this.#position, int(BLOCK - 1)), int(1))),
        when(i32.gt_s(this.#end, chunkEnd), [this.#end.set(chunkEnd)]),
        this.#unpack(fields.keyOffset, fields.keyScaleOffset, true),
        this.#eachGroup(this.#clipped([this.#computeScores(), this.#weigh()])),
        this.#unpack(fields.valueOffset, fields.valueScaleOffset, false),
        this.#eachGroup(this.#clipped([this.#addValues()])),
        this.#position.set(this.#end),
      ]),
    ];
  }

  /** Runs `body` if the group sees positions of the block; sets `#low`, `#count` and `#isRagged`. */
  #clipped(body: Body): Body {
    const { shape, scope } = this.#context;
    const most = this.#queries - 1;
    const high = scope.local("i32", "high");
    const kept = (offset: number, query: number) => i32.load(this.#kept, offset + 4 * query);
    return [
      this.#low.set(this.#position),
      high.set(i32.add(kept(KEPT.lasts, most), int(1))),
      when(i32.gt_s(high, this.#end), [high.set(this.#end)]),
      shape.hasWindow ? when(i32.gt_s(kept(KEPT.firsts, 0), this.#low), [this.#low.set(kept(KEPT.firsts, 0))]) : [],
      this.#count.set(i32.sub(high, this.#low)),
      shape.isMixed
        ? this.#isRagged.set(
            i32.or(i32.gt_s(high, i32.add(kept(KEPT.lasts, 0), int(1))), i32.lt_s(this.#low, kept(KEPT.firsts, most))),
          )
        : [],
      when(i32.gt_s(this.#count, int(0)), body),
    ];
  }

  /** Converts the block's keys or values to floats [heads, positions, 4 * quads], padded with zeros. */
  #unpack(offset: Local<"ptr">, scaleOffset: Local<"ptr">, isKey: boolean): Body {
    const { scope, fields, shape, run } = this.#context;
    const at = new PagePlace(scope);
    const rows = scope.local("i32", "page_rows");
    const done = scope.local("i32", "unpacked");
    const target = scope.local("ptr", "target");
    const scales = scope.local("ptr", "key_scales");
    const from = scope.local("ptr", "from");
    const scaleAt = scope.local("ptr", "scale_at");
    const { rowBytes } = this.#group;
    const row = i32.add(i32.mul(at.place, fields.kvHeads), this.#places.head);
    const across = i32.sub(fields.kvHeads, this.#places.heads);
    const cacheRow = (base: Expr<"ptr">, index: Expr<"i32">) =>
      elementAt(base, index, elementAt(size(0), fields.headDim, storedBytes[shape.cache]));
    const isScaled = shape.cache === "int8";
    return [
      done.set(this.#position),
      target.set(this.#places.floats),
      isScaled && isKey ? scales.set(this.#places.scales) : [],
      whileDo(i32.lt_s(done, this.#end), [
        at.find(fields, run.slot, done),
        from.set(cacheRow(ptr.add(at.page, offset), row)),
        isScaled ? scaleAt.set(elementAt(ptr.add(at.page, scaleOffset), row, 4)) : [],
        rows.set(i32.sub(fields.pagePositions, at.place)),
        when(i32.gt_s(rows, i32.sub(this.#end, done)), [rows.set(i32.sub(this.#end, done))]),
        done.set(i32.add(done, rows)),
        repeat(rows, rows, [
          this.#unpackRow({ from, target, scaleAt, keyScales: isKey ? scales : null }),
          advance(target, rowBytes),
          from.set(cacheRow(from, across)),
          isScaled ? scaleAt.set(elementAt(scaleAt, across, 4)) : [],
          isScaled && isKey ? advance(scales, 4) : [],
        ]),
      ]),
    ];
  }

  /** Converts one position for all heads of the item. Values are scaled at once; scales of keys are kept for the scores. */
  #unpackRow({ from, target, scaleAt, keyScales }: UnpackedRow): Body {
    const { scope, fields, shape } = this.#context;
    const { constants, rowBytes } = this.#group;
    const row = scope.local("ptr", "row");
    const to = scope.local("ptr", "to");
    const scaleTo = scope.local("ptr", "scale_to");
    const isScaled = shape.cache === "int8";
    const scale = isScaled && !keyScales ? scope.local("v128", "scale") : null;
    return [
      row.set(target),
      isScaled && keyScales ? scaleTo.set(keyScales) : [],
      repeat(scope.local("i32", "left"), this.#places.heads, [
        to.set(row),
        when(i32.and(fields.headDim, int(3)), [
          v128.store(ptr.sub(ptr.add(row, rowBytes), size(VECTOR)), constants.words(0)),
        ]),
        scale ? scale.set(v128.load32_splat(scaleAt)) : [],
        isScaled && keyScales ? [f32.store(scaleTo, f32.load(scaleAt)), advance(scaleTo, 4 * BLOCK)] : [],
        isScaled ? advance(scaleAt, 4) : [],
        copyRow({ scope, constants, cache: shape.cache }, { from, to, count: fields.headDim, scale }),
        advance(row, ptr.mul(rowBytes, size(BLOCK))),
      ]),
    ];
  }

  /** Points `row` at the first row of floats that the group sees. */
  #findRow(row: Local<"ptr">): Body[number] {
    return row.set(elementAt(this.#rows, i32.sub(this.#low, this.#position), this.#group.rowBytes));
  }

  /** Runs `work` over `total` elements, `most` at a time and then one by one. */
  #inTurn(total: Local<"i32">, most: number, work: (count: number) => Body): Body {
    const left = this.#context.scope.local("i32", "left");
    const some = (count: number) =>
      whileDo(i32.ge_u(left, int(count)), [work(count), left.set(i32.sub(left, int(count)))]);
    return [left.set(total), most > 1 ? some(most) : [], some(1)];
  }

  #computeScores(): Body {
    const { firsts, lasts } = this.#group;
    const { scope, shape } = this.#context;
    const key = scope.local("ptr", "key");
    const score = scope.local("ptr", "score");
    const scale = scope.local("ptr", "key_scale");
    const position = scope.local("i32", "position");
    return [
      this.#findRow(key),
      shape.isMixed
        ? [firsts.set(v128.load(this.#kept, KEPT.firsts)), lasts.set(v128.load(this.#kept, KEPT.lasts))]
        : [],
      score.set(this.#weights),
      scale.set(elementAt(this.#scales, i32.sub(this.#low, this.#position), 4)),
      position.set(this.#low),
      this.#inTurn(this.#count, Math.max(2, REGISTER_SUMS / (2 * this.#queries)), (count) => [
        this.#dots({ key, score, position, scale }, count),
        advance(score, count * VECTOR),
        advance(scale, 4 * count),
        position.set(i32.add(position, int(count))),
      ]),
    ];
  }

  /** Computes scores of `count` positions; `key` advances past them. */
  #dots({ key, score, position, scale }: ScoredRows, count: number): Body {
    const { constants, quads, quadBytes, rowBytes } = this.#group;
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
        part.set(v128.load(query, quadBytes * v + VECTOR * j)),
        parts.map((local, p) => sums[p]![j]!.set(multiplyAdd(shape.isRelaxed, part, local, sums[p]![j]!))),
      ]),
    ];
    return [
      sums.flat().map((sum) => sum.set(constants.words(0))),
      keys.slice(1).map((next, p) => next.set(ptr.add(keys[p]!, rowBytes))),
      query.set(ptr.add(this.#kept, size(KEPT.queries))),
      this.#inTurn(quads, 2, (vectors) => [
        Array.from({ length: vectors }, (_, v) => quad(v)),
        keys.map((pointer) => advance(pointer, VECTOR * vectors)),
        advance(query, quadBytes * vectors),
      ]),
      count > 1 ? key.set(keys.at(-1)!) : [],
      sums.map((locals, p) => {
        const rows = [...locals, ...Array<Expr<"v128">>(4 - locals.length).fill(constants.words(0))];
        const [a, b, c, d] = transposed(rows) as [Expr<"v128">, Expr<"v128">, Expr<"v128">, Expr<"v128">];
        return [
          value.set(f32x4.add(f32x4.add(a, b), f32x4.add(c, d))),
          this.#group.score(value, i32.add(position, int(p)), v128.load32_splat(scale, 4 * p)),
          v128.store(score, value, VECTOR * p),
        ];
      }),
    ];
  }

  /** Turns scores into weights exp(score - largest score of the chunk so far), and updates largest scores and totals. */
  #weigh(): Body {
    const { math } = this.#group;
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
      largest.set(before.tee(v128.load(this.#state, STATE.largest))),
      each([largest.set(f32x4.pmax(largest, v128.load(at)))]),
      math.exp(f32x4.sub(before, largest), value),
      v128.store(this.#weights, value, FACTOR),
      total.set(f32x4.mul(v128.load(this.#state, STATE.totals), value)),
      each([
        math.exp(f32x4.sub(v128.load(at), largest), value),
        v128.store(at, value),
        total.set(f32x4.add(total, value)),
      ]),
      v128.store(this.#state, largest, STATE.largest),
      v128.store(this.#state, total, STATE.totals),
    ];
  }

  /** Adds weights * values to the sums, as many dimensions at a time as registers allow. */
  #addValues(): Body {
    const { scope, shape } = this.#context;
    const { quads, quadBytes } = this.#group;
    const value = scope.local("ptr", "value");
    const sum = scope.local("ptr", "sum");
    const factors = scope.localArray("v128", "factor", this.#queries);
    const add = (isRagged: boolean) =>
      this.#inTurn(quads, REGISTER_SUMS / this.#queries, (vectors) => [
        this.#mix({ value, sum, factors, isRagged }, vectors),
        advance(value, VECTOR * vectors),
        advance(sum, quadBytes * vectors),
      ]);
    return [
      this.#findRow(value),
      sum.set(ptr.add(this.#state, size(STATE.sums))),
      factors.map((factor, j) => factor.set(v128.load32_splat(this.#weights, FACTOR + 4 * j))),
      shape.isMixed ? when(this.#isRagged, add(true), add(false)) : add(false),
    ];
  }

  #mix({ value, sum, factors, isRagged }: MixedRows, vectors: number): Body {
    const { scope, shape } = this.#context;
    const sums = scope.localArray("v128", "mix", vectors * factors.length);
    const at = [scope.local("ptr", "at"), scope.local("ptr", "next")] as const;
    const weights = scope.local("ptr", "weight_at");
    const weight = scope.local("v128", "weight");
    const values = scope.localArray("v128", "value", vectors);
    const position = scope.local("i32", "position");
    // Values that a query does not see may be infinite or NaN, which a weight of 0 does not hide.
    const isSeen = (p: number, j: number) =>
      i32.and(
        i32.ge_s(i32.load(this.#kept, KEPT.lasts + 4 * j), i32.add(position, int(p))),
        i32.ge_s(i32.add(position, int(p)), i32.load(this.#kept, KEPT.firsts + 4 * j)),
      );
    const one = (p: number) => [
      values.map((local, v) => local.set(v128.load(at[p]!, VECTOR * v))),
      factors.map((_, j) => {
        const own = (v: number) => sums[v * factors.length + j]!;
        const add = [
          weight.set(v128.load32_splat(weights, VECTOR * p + 4 * j)),
          values.map((local, v) => own(v).set(multiplyAdd(shape.isRelaxed, weight, local, own(v)))),
        ];
        return isRagged ? when(isSeen(p, j), add) : add;
      }),
    ];
    return [
      sums.map((local, i) => local.set(f32x4.mul(v128.load(sum, VECTOR * i), factors[i % factors.length]!))),
      at[0].set(value),
      weights.set(this.#weights),
      isRagged ? position.set(this.#low) : [],
      this.#inTurn(this.#count, 2, (count) => [
        count === 2 ? at[1].set(ptr.add(at[0], this.#group.rowBytes)) : [],
        Array.from({ length: count }, (_, p) => one(p)),
        at[0].set(ptr.add(at[count - 1]!, this.#group.rowBytes)),
        advance(weights, count * VECTOR),
        isRagged ? position.set(i32.add(position, int(count))) : [],
      ]),
      sums.map((local, i) => v128.store(sum, local, VECTOR * i)),
    ];
  }
}

interface UnpackedRow {
  readonly from: Local<"ptr">;
  readonly target: Local<"ptr">;
  readonly scaleAt: Local<"ptr">;
  /** Address for scales of keys; null for values, which are scaled at once. */
  readonly keyScales: Local<"ptr"> | null;
}

interface ScoredRows {
  readonly key: Local<"ptr">;
  readonly score: Local<"ptr">;
  readonly position: Local<"i32">;
  readonly scale: Local<"ptr">;
}

interface MixedRows {
  readonly value: Local<"ptr">;
  readonly sum: Local<"ptr">;
  readonly factors: readonly Local<"v128">[];
  readonly isRagged: boolean;
}
