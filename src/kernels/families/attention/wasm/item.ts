/**
 * Work items. Of a short run, an item is all queries of some KV heads, or of all heads over a part of the positions (split-K).
 * Of a longer run, it is some groups of queries of one KV head. Threads take items in any order; the results do not depend on
 * it.
 */
import { type Body, type Expr, type Local, when, whileDo, widen } from "../../../wasm/assembler/expression.ts";
import { f32, float, i32, int, ptr } from "../../../wasm/assembler/instructions.ts";
import type { Scope } from "../../../wasm/assembler/module.ts";
import { advance, elementAt, forRange } from "../../../wasm/generate/loops.ts";
import { forRuns, type Run } from "../../../wasm/generate/runs.ts";
import type { GroupContext, QueryGroup } from "./group.ts";
import { type AttentionFields, BLOCK, CHUNK, SHORT_ROWS, SPAN_GROUPS, WEIGHTS } from "./shape.ts";

const CHUNK_SHIFT = Math.log2(CHUNK);

export const isShort = (run: Run): Expr<"i32"> => i32.le_u(run.count, int(SHORT_ROWS));

/** Runs `take` for the items tile, tile + tiles, ... of all runs. */
export function forItems(
  scope: Scope,
  fields: AttentionFields,
  tile: Local<"i32">,
  visit: {
    countItems(run: Run, items: Local<"i32">): Body;
    take(run: Run, at: Local<"ptr">, item: Local<"i32">): Body;
  },
): Body {
  const item = scope.local("i32", "item");
  const items = scope.local("i32", "items");
  return [
    item.set(tile),
    forRuns(scope, fields, (run, at) => [
      visit.countItems(run, items),
      whileDo(i32.lt_u(item, items), [visit.take(run, at, item), item.set(i32.add(item, fields.tiles))]),
      item.set(i32.sub(item, items)),
    ]),
  ];
}

/** Fills results of rows that belong to no run with NaN: kernels cannot raise errors. */
export function fillOthers(scope: Scope, fields: AttentionFields): Body {
  const { y, rows, kvHeads, ratio, headDim } = fields;
  const filled = scope.local("i32", "filled");
  const to = scope.local("ptr", "fill_at");
  const width = i32.mul(i32.mul(kvHeads, ratio), headDim);
  const fill = (end: Expr<"i32">) => [
    when(i32.lt_s(filled, end), [
      to.set(elementAt(y, i32.mul(filled, width), 4)),
      forRange(scope.local("i32", "i"), int(0), i32.mul(i32.sub(end, filled), width), [
        f32.store(to, float(Number.NaN)),
        advance(to, 4),
      ]),
    ]),
  ];
  return [
    filled.set(int(0)),
    forRuns(scope, fields, (run) => [fill(run.first), filled.set(i32.add(run.first, run.count))]),
    fill(rows),
  ];
}

/** Input of `Chunks.find`: a run, and whether attention has a sliding window. */
export interface SeenBy extends Pick<GroupContext, "fields" | "run" | "scope"> {
  readonly shape: Pick<GroupContext["shape"], "hasWindow">;
}

/** Chunks of the positions that some rows of a run see. */
export class Chunks {
  /** Positions that some query sees: from .. to - 1. */
  readonly from: Local<"i32">;
  readonly to: Local<"i32">;
  /** The first chunk, and how many there are. */
  readonly first: Local<"i32">;
  readonly count: Local<"i32">;

  constructor(scope: Scope) {
    this.from = scope.local("i32", "seen_from");
    this.to = scope.local("i32", "seen_to");
    this.first = scope.local("i32", "first_chunk");
    this.count = scope.local("i32", "chunks");
  }

  /** Finds the positions that rows row .. lastRow of a run see. */
  find({ shape, fields, run }: SeenBy, row: Expr<"i32">, lastRow: Expr<"i32">): Body {
    return [
      this.from.set(int(0)),
      shape.hasWindow
        ? [
            this.from.set(i32.add(i32.sub(i32.add(run.position, row), fields.window), int(1))),
            when(i32.lt_s(this.from, int(0)), [this.from.set(int(0))]),
          ]
        : [],
      this.to.set(i32.add(i32.add(run.position, lastRow), int(1))),
      this.first.set(i32.shr_u(this.from, int(CHUNK_SHIFT))),
      this.count.set(i32.sub(i32.shr_u(i32.add(this.to, int(CHUNK - 1)), int(CHUNK_SHIFT)), this.first)),
    ];
  }
}

/**
 * How a short run is split into items. Where there are many runs it is one item, which reads the rows of all heads in order.
 * Otherwise an item is a part of the positions with all heads (split-K), if there is a chunk for each part or only one span of
 * heads; else it is a span of heads.
 */
export class RunSplit {
  readonly spanHeads: Local<"i32">;
  readonly headSpans: Local<"i32">;
  readonly parts: Local<"i32">;
  readonly #context: SeenBy;
  readonly #chunks: Chunks;

  constructor(context: SeenBy) {
    const { scope } = context;
    this.#context = context;
    this.#chunks = new Chunks(scope);
    this.spanHeads = scope.local("i32", "span_heads");
    this.headSpans = scope.local("i32", "head_spans");
    this.parts = scope.local("i32", "parts");
  }

  find(): Body {
    const { fields, run } = this.#context;
    const { kvHeads, runs, manyRuns } = fields;
    const hasChunks = i32.or(i32.ge_u(this.#chunks.count, fields.parts), i32.eq(fields.headSpans, int(1)));
    const allHeads = [this.spanHeads.set(kvHeads), this.headSpans.set(int(1))];
    return [
      this.#chunks.find(this.#context, int(0), i32.sub(run.count, int(1))),
      this.spanHeads.set(fields.spanHeads),
      this.headSpans.set(fields.headSpans),
      this.parts.set(int(1)),
      when(i32.ge_u(i32.load(runs), manyRuns), allHeads, [
        when(i32.and(i32.gt_u(fields.parts, int(1)), hasChunks), [allHeads, this.parts.set(fields.parts)]),
      ]),
    ];
  }

  /** Number of items of a short run. */
  get items(): Expr<"i32"> {
    return i32.mul(this.headSpans, this.parts);
  }
}

/** Number of items of a longer run: one for each SPAN_GROUPS groups of each KV head. */
export function longItems({ count }: Run, { ratio, kvHeads }: AttentionFields): Expr<"i32"> {
  const groups = i32.add(i32.mul(count, ratio), int(4 * SPAN_GROUPS - 1));
  return i32.mul(i32.div_u(groups, int(4 * SPAN_GROUPS)), kvHeads);
}

/** Address, in the slots, of the state of a group's first chunk. */
export function slotOf(
  { fields, run }: GroupContext,
  { head, group }: Pick<QueryGroup, "head" | "group">,
): Expr<"ptr"> {
  const { slots, slotBytes, slotGroups, slotChunks, rows } = fields;
  const first = i32.mul(run.first, i32.div_u(slotGroups, rows));
  const index = i32.add(i32.add(i32.mul(head, slotGroups), first), group);
  return elementAt(slots, index, ptr.mul(widen(slotChunks), slotBytes));
}

/** Heads, groups and chunks of an item, and the layout of its data in the thread's scratch. */
export class ItemPlaces {
  /** `heads` heads from `head` on, and of each `groups` groups from `group` on. */
  readonly head: Local<"i32">;
  readonly heads: Local<"i32">;
  readonly group: Local<"i32">;
  readonly groups: Local<"i32">;
  /** Chunks chunk .. chunkEnd - 1. */
  readonly chunk: Local<"i32">;
  readonly chunkEnd: Local<"i32">;
  readonly chunks: Chunks;
  /** Whether the item is one part of a split run (split-K), whose chunk states are kept in slots for the merge. */
  readonly isPart: Local<"i32">;
  /** Addresses: kept data of the groups, their weights, scales of the block's keys, and the block's rows as floats. */
  readonly kept: Local<"ptr">;
  readonly weights: Local<"ptr">;
  readonly scales: Local<"ptr">;
  readonly floats: Local<"ptr">;
  readonly #context: GroupContext;
  readonly #split: RunSplit;

  constructor(context: GroupContext) {
    const { scope } = context;
    const number = (name: string) => scope.local("i32", name);
    const place = (name: string) => scope.local("ptr", name);
    this.#context = context;
    this.#split = new RunSplit(context);
    this.head = number("first_head");
    this.heads = number("item_heads");
    this.group = number("first_group");
    this.groups = number("item_groups");
    this.chunk = number("chunk");
    this.chunkEnd = number("chunk_end");
    this.chunks = new Chunks(scope);
    this.isPart = number("is_part");
    this.kept = place("first_kept");
    this.weights = place("first_weights");
    this.scales = place("first_scales");
    this.floats = place("floats");
  }

  find(group: QueryGroup, item: Local<"i32">, thread: Local<"i32">): Body {
    const { fields, scope, run, shape } = this.#context;
    const total = scope.local("i32", "all_groups");
    const part = scope.local("i32", "part");
    const last = scope.local("i32", "last_query");
    const ratio = fields.ratio;
    const share = (turn: Expr<"i32">) =>
      i32.add(this.chunks.first, i32.div_u(i32.mul(this.chunks.count, turn), this.#split.parts));
    return [
      this.groups.set(group.groups),
      this.group.set(int(0)),
      shape.queries === 4 ? when(isShort(run), this.#short(item, part), this.#span(item)) : this.#short(item, part),
      last.set(i32.mul(i32.add(this.group, this.groups), int(shape.queries))),
      when(i32.gt_u(last, i32.mul(run.count, ratio)), [last.set(i32.mul(run.count, ratio))]),
      this.chunks.find(
        this.#context,
        i32.div_u(i32.mul(this.group, int(shape.queries)), ratio),
        i32.div_u(i32.sub(last, int(1)), ratio),
      ),
      this.chunk.set(this.chunks.first),
      this.chunkEnd.set(i32.add(this.chunk, this.chunks.count)),
      when(this.isPart, [this.chunk.set(share(part)), this.chunkEnd.set(share(i32.add(part, int(1))))]),
      total.set(i32.mul(this.heads, this.groups)),
      this.kept.set(elementAt(fields.scratch, thread, fields.threadBytes)),
      this.weights.set(elementAt(this.kept, total, group.keptBytes)),
      this.scales.set(elementAt(this.weights, total, WEIGHTS)),
      this.floats.set(elementAt(this.scales, this.heads, 4 * BLOCK)),
    ];
  }

  /** An item of a short run: all groups of some heads, or a part of the positions. */
  #short(item: Local<"i32">, part: Local<"i32">): Body {
    const { kvHeads } = this.#context.fields;
    const { parts, spanHeads } = this.#split;
    return [
      this.#split.find(),
      this.isPart.set(i32.gt_u(parts, int(1))),
      part.set(i32.rem_u(item, parts)),
      this.head.set(i32.mul(i32.div_u(item, parts), spanHeads)),
      this.heads.set(i32.sub(kvHeads, this.head)),
      when(i32.gt_u(this.heads, spanHeads), [this.heads.set(spanHeads)]),
    ];
  }

  /** An item of a longer run: some groups of one head. */
  #span(item: Local<"i32">): Body {
    const { scope } = this.#context;
    const spans = scope.local("i32", "spans");
    return [
      this.isPart.set(int(0)),
      spans.set(i32.div_u(i32.add(this.groups, int(SPAN_GROUPS - 1)), int(SPAN_GROUPS))),
      this.head.set(i32.div_u(item, spans)),
      this.heads.set(int(1)),
      this.group.set(i32.mul(i32.rem_u(item, spans), int(SPAN_GROUPS))),
      this.groups.set(i32.sub(this.groups, this.group)),
      when(i32.gt_u(this.groups, int(SPAN_GROUPS)), [this.groups.set(int(SPAN_GROUPS))]),
    ];
  }
}
