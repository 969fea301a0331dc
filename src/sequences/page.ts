/** A page of the KV cache, and the known pages that follow it. */
import type { Block } from "./block-pool.ts";
import type { State } from "./state.ts";

/**
 * Keys and values of consecutive positions of a sequence, a block for each kind of layers. A known page (`isKnown`) never
 * changes: any sequence with the same ids before and in it can share it.
 */
export class Page {
  /** The page before it, once it is known; null before that, and for the root. */
  parent: Page | null = null;
  /** Token ids of its positions, as far as they are computed. */
  readonly ids: number[];
  /** Blocks by kind; null where the window has moved past the page. */
  readonly blocks: (Block | null)[];
  /** By kind: number of sequences that read its block. */
  readonly readers: number[];
  /** Number of sequences that hold it. */
  holders = 0;
  isKnown = false;
  /** Namespace (salt) of a known page; "" for pages that all share. */
  salt = "";
  /** Key of a known page in the archive; null until it was computed. */
  key: string | null = null;
  /** Whether its blocks were given to the archive; then, whether its state was. */
  isArchived = false;
  isStateArchived = false;
  /** Recurrent state after its last position. */
  state: State | null = null;
  /** Known pages that follow it, by their first id. */
  readonly #next = new Map<number, Page[]>();

  constructor(blocks: readonly (Block | null)[], ids: readonly number[] = []) {
    this.ids = [...ids];
    this.blocks = [...blocks];
    this.readers = blocks.map(() => 0);
  }

  /**
   * The known page that follows and shares most ids with `ids` from `at` on, and the number of these, among the pages of
   * `salt` and public pages within the first `publicEnd` ids.
   */
  follower(
    ids: readonly number[],
    at: number,
    end: number,
    { salt, publicEnd }: { readonly salt: string; readonly publicEnd: number },
  ): { page: Page; length: number } | null {
    let best: { page: Page; length: number } | null = null;
    for (const page of this.#next.get(ids[at]!) ?? []) {
      if (page.salt !== salt && page.salt !== "") continue;
      const length = sameIds(page.ids, ids, at, page.salt === salt ? end : Math.min(end, publicEnd));
      if (length > (best?.length ?? 0)) best = { page, length };
    }
    return best;
  }

  /** The known page that follows with the same ids and salt as another; undefined when there is none. */
  same({ ids, salt }: Page): Page | undefined {
    const all = this.#next.get(ids[0]!);
    return all?.find((page) => page.salt === salt && sameIds(page.ids, ids, 0, ids.length) === ids.length);
  }

  /** Whether several known pages follow it, so that sequences part here. */
  get isFork(): boolean {
    let followers = 0;
    for (const pages of this.#next.values()) followers += pages.length;
    return followers > 1;
  }

  add(page: Page): void {
    const known = this.#next.get(page.ids[0]!);
    if (known) known.push(page);
    else this.#next.set(page.ids[0]!, [page]);
    page.parent = this;
    page.isKnown = true;
  }

  remove(page: Page): void {
    const known = this.#next.get(page.ids[0]!)!;
    known.splice(known.indexOf(page), 1);
    if (known.length === 0) this.#next.delete(page.ids[0]!);
    page.parent = null;
    page.isKnown = false;
  }

  /** Known pages after it, each before those that follow it. */
  *known(): Generator<Page> {
    const open: Page[] = [this];
    for (let page = open.pop(); page; page = open.pop()) {
      if (page !== this) yield page;
      for (const followers of page.#next.values()) open.push(...followers);
    }
  }
}

/** Number of leading ids of a page that equal `ids` from `at` on, before `end`. */
function sameIds(page: readonly number[], ids: readonly number[], at: number, end: number): number {
  const length = Math.min(page.length, end - at);
  let same = 0;
  while (same < length && page[same] === ids[at + same]) same++;
  return same;
}
