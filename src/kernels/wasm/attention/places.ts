/** What a tile of attention works on, and where in its scratch it keeps what. */
import { type Body, type Expr, type Local, when } from "../assembler/expression.ts";
import { i32, int, ptr, size } from "../assembler/instructions.ts";
import { elementAt } from "../generate/loops.ts";
import type { BlockContext } from "./block.ts";

/** Bytes of a vector. */
export const VECTOR = 16;
/** Positions that are worked on before the next ones are: as many rows of a cache fit the first-level cache together. */
export const BLOCK = 16;
/** A group's weights of a block, then the factor of its earlier sums. */
export const WEIGHTS = VECTOR * (BLOCK + 1);
export const FACTOR = VECTOR * BLOCK;
/** What a group keeps: largest scores, totals, first and last positions, then queries, then sums. */
export const KEPT = { largest: 0, totals: 16, firsts: 32, lasts: 48, queries: 64 } as const;

/** Bytes of the scratch of `groups` groups of queries of some heads of keys. */
export function tileBytes(headDim: number, { groups, heads, queries }: Record<"groups" | "heads" | "queries", number>) {
  const rowBytes = VECTOR * Math.ceil(headDim / 4);
  return groups * (KEPT.queries + 2 * queries * rowBytes + WEIGHTS) + heads * BLOCK * rowBytes;
}

/** A tile is a part of the positions times a span of groups: those of all heads, or some of one head. */
export class TilePlaces {
  readonly part: Local<"i32">;
  /** Groups from `first` to before `end`, of heads from `head` on. */
  readonly first: Local<"i32">;
  readonly end: Local<"i32">;
  readonly head: Local<"i32">;
  /** Vectors of a row. */
  readonly quads: Local<"i32">;
  /** Bytes of a row of floats, and of what a group keeps. */
  readonly rowBytes: Local<"ptr">;
  readonly keptBytes: Local<"ptr">;
  /** Where the first group keeps things, where its weights are, and the block's rows as floats. */
  readonly kept: Local<"ptr">;
  readonly weights: Local<"ptr">;
  readonly floats: Local<"ptr">;
  readonly #context: BlockContext;

  constructor(context: BlockContext) {
    const { scope } = context;
    this.#context = context;
    this.part = scope.local("i32", "part");
    this.first = scope.local("i32", "first");
    this.end = scope.local("i32", "last");
    this.head = scope.local("i32", "head");
    this.quads = scope.local("i32", "quads");
    this.rowBytes = scope.local("ptr", "row_bytes");
    this.keptBytes = scope.local("ptr", "kept_bytes");
    this.kept = scope.local("ptr", "kept");
    this.weights = scope.local("ptr", "weights");
    this.floats = scope.local("ptr", "floats");
  }

  /** Bytes of four dimensions of the queries, and of their sums. */
  get quadBytes(): number {
    return VECTOR * this.#context.shape.queries;
  }

  findSizes(): Body {
    const { shape, fields } = this.#context;
    return [
      this.quads.set(i32.shr_u(i32.add(fields.headDim, int(3)), int(2))),
      this.rowBytes.set(elementAt(size(0), this.quads, VECTOR)),
      this.keptBytes.set(ptr.add(ptr.mul(this.rowBytes, size(2 * shape.queries)), size(KEPT.queries))),
    ];
  }

  /** What the tile works on; parts have scratch of their own, else threads. */
  findTile(): Body {
    const { scope, fields, tile, thread } = this.#context;
    const { kvHeads, blocks, parts, spans, spanGroups, spanHeads } = fields;
    const span = scope.local("i32", "span");
    const owner = scope.local("i32", "owner");
    const spansOfHead = i32.div_u(spans, i32.div_u(kvHeads, spanHeads));
    const last = i32.mul(i32.add(this.head, spanHeads), blocks);
    return [
      this.part.set(i32.div_u(tile, spans)),
      span.set(i32.rem_u(tile, spans)),
      this.head.set(i32.div_u(span, spansOfHead)),
      this.first.set(i32.add(i32.mul(this.head, blocks), i32.mul(i32.rem_u(span, spansOfHead), spanGroups))),
      this.end.set(i32.add(this.first, spanGroups)),
      when(i32.gt_u(this.end, last), [this.end.set(last)]),
      owner.set(thread),
      when(i32.gt_u(parts, int(1)), [owner.set(this.part)]),
      this.kept.set(this.scratchOf(owner)),
      this.weights.set(elementAt(this.kept, i32.sub(this.end, this.first), this.keptBytes)),
      this.floats.set(elementAt(this.weights, i32.sub(this.end, this.first), WEIGHTS)),
    ];
  }

  scratchOf(owner: Expr<"i32">): Expr<"ptr"> {
    return elementAt(this.#context.fields.scratch, owner, this.#context.fields.scratchBytes);
  }

  /** Where the sums of a group are that keeps things at an address. */
  sums(kept: Expr<"ptr">): Expr<"ptr"> {
    const queries = ptr.mul(this.rowBytes, size(this.#context.shape.queries));
    return ptr.add(ptr.add(kept, size(KEPT.queries)), queries);
  }
}
