/** Pages of all sequences: allocated under a byte limit, found by their ids, evicted when no sequence holds them. */
import type { KernelMemory } from "../kernels/contract.ts";
import { blockName, keyOfPage, type PageArchive, stateName } from "./archive.ts";
import { type Block, BlockPool } from "./block-pool.ts";
import { FairPages } from "./fair-pages.ts";
import { Page } from "./page.ts";
import type { State } from "./state.ts";

/** A page's part for the layers of one kind. */
interface PageKind {
  /** Sliding window: positions that a query sees; 0 for all. */
  readonly window: number;
  /** Bytes of the layers' keys and values in a page. */
  readonly byteLength: number;
  /**
   * Whether it is the f16 residual of an int4 kind, which is not needed once the page is full and the sequence has left it, but for
   * the first page, which stays.
   */
  readonly isResidual: boolean;
}

export interface PageShape {
  /** Positions of a page, a power of two. */
  readonly positions: number;
  readonly kinds: readonly PageKind[];
  /** Bytes of all recurrent layers' state of one sequence; 0 without any. */
  readonly stateBytes: number;
}

/**
 * Pages before a window that are kept, so that a sequence can be truncated a little; fewer of residuals, which are larger.
 */
const SPARE_PAGES = 2;
const SPARE_RESIDUALS = 1;

/** The first page that the token at `position` reads in layers of a kind. */
export function firstPageRead({ positions, kinds }: PageShape, kind: number, position: number): number {
  const { window } = kinds[kind]!;
  return window === 0 ? 0 : Math.floor(Math.max(0, position - window + 1) / positions);
}

/** Whether a page's block of a kind is one of those that are read from page `first` on. */
export function isReadFrom({ kinds }: PageShape, kind: number, first: number, page: number): boolean {
  return page >= first || (page === 0 && kinds[kind]!.isResidual);
}

/** The first page that is kept for layers of a kind while a sequence grows beyond `position`. */
export function firstPageKept(shape: PageShape, kind: number, position: number): number {
  const spare = shape.kinds[kind]!.isResidual ? SPARE_RESIDUALS : SPARE_PAGES;
  return Math.max(0, firstPageRead(shape, kind, position) - spare);
}

/**
 * The last position, at most `position`, from which a sequence with these pages can go on: the pages of its windows are
 * there, and the state of recurrent layers, which exists at the ends of pages or at `stateAt`.
 */
export function usablePosition(shape: PageShape, pages: readonly Page[], position: number, stateAt?: number): number {
  let usable = position;
  for (let before = -1; before !== usable; ) {
    before = usable;
    if (shape.stateBytes > 0 && usable !== stateAt) {
      const ofPages = lastWithState(shape, pages, usable);
      usable = stateAt !== undefined && stateAt < usable ? Math.max(stateAt, ofPages) : ofPages;
    }
    for (const kind of shape.kinds.keys()) {
      const first = firstPageRead(shape, kind, usable);
      const end = Math.ceil(usable / shape.positions);
      if (shape.kinds[kind]!.window === 0) continue;
      const isMissing = ({ blocks }: Page, page: number) => !blocks[kind] && isReadFrom(shape, kind, first, page);
      const missing = pages.slice(0, end).findLastIndex(isMissing);
      if (missing >= 0) usable = missing * shape.positions;
    }
  }
  return usable;
}

function lastWithState({ positions }: PageShape, pages: readonly Page[], position: number): number {
  let count = Math.floor(position / positions);
  while (count > 0 && !pages[count - 1]!.state) count--;
  return count * positions;
}

export class PageStore {
  readonly shape: PageShape;
  /** Number of steps and file reads under way, during which blocks must not move. */
  uses = 0;
  evictedPages = 0;
  #archive: PageArchive | null = null;
  readonly #pool: BlockPool;
  /** Root of the tree of known pages, by branch. */
  readonly #roots = new Map<string, Page>();
  /** Known pages that no sequence holds, by time of last use; pages come after those that follow them. */
  readonly #idle = new FairPages();
  /** Known pages with a recurrent state, by time of its last use. */
  readonly #withState = new FairPages();
  /** Most pages of a salt that are kept without a sequence that holds them. */
  readonly #quotas = new Map<string, number>();
  #time = 0;
  #zeroState: State | null = null;

  constructor(memory: KernelMemory, cacheBytes: number, shape: PageShape) {
    this.shape = shape;
    this.#pool = new BlockPool(memory, cacheBytes, blockSizes(shape));
  }

  /** Sets the archive, to which full pages are written from now on. */
  set archive(archive: PageArchive | null) {
    this.#archive = archive;
    for (const [branch, root] of this.#roots) root.key = archive?.rootKey(branch) ?? null;
    for (const page of this.known()) page.key = null;
  }

  get archive(): PageArchive | null {
    return this.#archive;
  }

  get pool(): BlockPool {
    return this.#pool;
  }

  get idlePages(): number {
    return this.#idle.size;
  }

  root(branch: string): Page {
    let root = this.#roots.get(branch);
    if (!root) {
      root = new Page([]);
      root.isKnown = true;
      root.key = this.#archive?.rootKey(branch) ?? null;
      this.#roots.set(branch, root);
    }
    return root;
  }

  /**
   * A new page that nobody holds yet, with blocks (of undefined contents) for the kinds that it needs; null when there is
   * no room.
   */
  newPage(ids: readonly number[] = [], needs: (kind: number) => boolean = () => true): Page | null {
    const page = new Page(
      this.shape.kinds.map(() => null),
      ids,
    );
    for (const kind of this.shape.kinds.keys()) {
      if (!needs(kind)) continue;
      page.blocks[kind] = this.#take(kind);
      if (page.blocks[kind]) continue;
      this.#free(page);
      return null;
    }
    return page;
  }

  /** Frees a page that nobody came to hold. */
  giveBack(page: Page): void {
    this.#free(page);
  }

  /** A copy of a page's first `length` positions; null when there is no room. */
  copyPage(page: Page, length: number): Page | null {
    const copy = this.newPage(page.ids.slice(0, length));
    if (!copy) return null;
    for (const [kind, block] of page.blocks.entries()) if (block) copy.blocks[kind]!.bytes.set(block.bytes);
    return copy;
  }

  retain(page: Page): void {
    if (page.holders++ === 0) this.#idle.delete(page);
  }

  /** Gives up a page. A known page stays until it is evicted, when nobody holds it any more. */
  release(page: Page): void {
    page.holders--;
    if (page.holders > 0) this.#giveUnread(page);
    else if (page.isKnown) this.#keepIdle(page);
    else this.#free(page);
  }

  #keepIdle(page: Page): void {
    this.#idle.add(page, this.#time++);
    const { salt } = page;
    const most = this.#quotas.get(salt) ?? Number.POSITIVE_INFINITY;
    for (let next = this.#idle.firstOf(salt); next && this.#idle.countOf(salt) > most; next = this.#idle.firstOf(salt))
      this.#evict(next);
  }

  /** Sets the most pages of a salt that are kept without a holder, in memory and in the archive. */
  limit(salt: string, pages: number): void {
    this.#quotas.set(salt, pages);
    this.#archive?.limit(salt, pages * blockSizes(this.shape).reduce((sum, bytes) => sum + bytes, 0));
  }

  /** Notes that a sequence no longer reads the page's block of a kind, though it still holds the page. */
  leaveBehind(page: Page, kind: number): void {
    page.readers[kind]!--;
    this.#giveUnread(page);
  }

  /**
   * Makes a page known after page `previous`: a full page, or the last page of a restored sequence. Where an equal page is
   * known already, that one is returned to be held instead, completed with the blocks that it lacks.
   */
  know(page: Page, previous: Page): Page {
    if (!previous.isKnown) return page;
    const same = previous.same(page);
    if (!same) {
      previous.add(page);
      if (page.state) this.#noteState(page);
      this.#archivePage(page);
      return page;
    }
    const lacking = same.blocks.flatMap((block, kind) => (block ? [] : [kind]));
    // A page that others hold keeps its blocks, and a page that is not full has too little for a full one.
    if (lacking.length > 0 && (page.holders > 1 || page.ids.length < same.ids.length)) return page;
    for (const kind of lacking) {
      same.blocks[kind] = page.blocks[kind]!;
      page.blocks[kind] = null;
    }
    if (page.state) this.keepState(same, page.state);
    return same;
  }

  #archivePage(page: Page): void {
    const archive = this.#archive;
    if (!archive || page.isArchived || page.ids.length < this.shape.positions) return;
    page.isArchived = true;
    const key = keyOfPage(archive, page);
    for (const [kind, { byteLength }] of this.shape.kinds.entries())
      if (this.#isArchived(kind, page))
        archive.write(blockName(key, kind), () => page.blocks[kind]?.bytes.slice(0, byteLength) ?? null);
  }

  /** Whether a block is written to the archive: of residuals, that of the first page alone. */
  #isArchived(kind: number, page: Page): boolean {
    return !this.shape.kinds[kind]!.isResidual || page.parent!.parent === null;
  }

  /** Writes the states of known pages to the archive, after thinning has left those that are kept. */
  archiveStates(pages: readonly Page[]): void {
    const archive = this.#archive;
    if (!archive || this.shape.stateBytes === 0) return;
    for (const page of pages) {
      if (!page.state || !page.isKnown || page.isStateArchived || page.ids.length < this.shape.positions) continue;
      page.isStateArchived = true;
      const name = stateName(keyOfPage(archive, page));
      archive.write(name, () => page.state?.block.bytes.slice(0, this.shape.stateBytes) ?? null);
    }
  }

  /** Marks pages as used in the archive. */
  touch(pages: readonly Page[]): void {
    const archive = this.#archive;
    if (!archive) return;
    const names = pages.flatMap((page) => {
      if (!page.isArchived || !page.isKnown) return [];
      const key = keyOfPage(archive, page);
      const blocks = this.shape.kinds.flatMap((_, kind) =>
        this.#isArchived(kind, page) ? [blockName(key, kind)] : [],
      );
      return page.isStateArchived ? [...blocks, stateName(key)] : blocks;
    });
    if (names.length > 0) archive.touch(names);
  }

  /** Keeps the state after a page's last position, unless the page has one. */
  keepState(page: Page, state: State): void {
    if (page.state) return;
    page.state = this.retainState(state);
    if (page.isKnown) this.#noteState(page);
  }

  #noteState(page: Page): void {
    this.#withState.delete(page);
    this.#withState.add(page, this.#time++);
    this.#thinStates(page);
  }

  /**
   * Thins out the states before a page: a state is dropped where its two neighbours are no farther from each other than the
   * nearer one is from the page, which leaves O(log n) states of a sequence of n pages. States where sequences part stay.
   */
  #thinStates(last: Page): void {
    let [nearer, candidate]: ({ page: Page; distance: number } | null)[] = [{ page: last, distance: 0 }, null];
    let distance = 0;
    for (let page = last.parent; page; page = page.parent) {
      distance++;
      if (!page.state) continue;
      if (candidate && !candidate.page.isFork && distance - nearer!.distance <= nearer!.distance)
        this.#dropState(candidate.page);
      else if (candidate) nearer = candidate;
      candidate = { page, distance };
    }
  }

  /** The state after a page's last position, for a sequence that goes on from there; null when there is none. */
  useState(page: Page): State | null {
    if (this.#withState.delete(page)) this.#withState.add(page, this.#time++);
    return page.state && this.retainState(page.state);
  }

  /** A state for a step to write; null when there is no room. */
  newState(): State | null {
    const block = this.#take(this.shape.kinds.length);
    return block && { block, holders: 1 };
  }

  /** The zero state before the first position; null when there is no room. */
  zeroState(): State | null {
    if (!this.#zeroState) {
      this.#zeroState = this.newState();
      this.#zeroState?.block.bytes.fill(0);
    }
    return this.#zeroState && this.retainState(this.#zeroState);
  }

  retainState(state: State): State {
    state.holders++;
    return state;
  }

  releaseState(state: State | null): void {
    if (state && --state.holders === 0) this.#pool.give(state.block);
  }

  /** Evicts all pages that no sequence holds. */
  clear(): void {
    for (let next = this.#idle.first; next; next = this.#idle.first) this.#evict(next.page);
  }

  /** Gives memory back, a little at a time, while much of it is free. */
  trim(): void {
    if (this.uses === 0) this.#pool.trim();
  }

  /** All known pages. */
  *known(): Generator<Page> {
    for (const root of this.#roots.values()) yield* root.known();
  }

  dispose(): void {
    this.#idle.clear();
    this.#withState.clear();
    this.#roots.clear();
    this.#zeroState = null;
    this.#pool.dispose();
  }

  #take(kind: number): Block | null {
    for (;;) {
      const block = this.#pool.take(kind);
      if (block) return block;
      const isRoom = (this.uses === 0 && this.#pool.compact(kind)) || this.#makeRoom();
      if (!isRoom) return null;
    }
  }

  /**
   * Evicts a page, block or state that is only cached, the least recently used of the salt with most; false when there is
   * none.
   */
  #makeRoom(): boolean {
    const idle = this.#idle.first;
    const kept = this.#withState.first;
    if (idle && !(kept && kept.since < idle.since)) this.#evict(idle.page);
    else if (kept) this.#dropState(kept.page);
    else return this.#giveAllUnread();
    return true;
  }

  #giveAllUnread(): boolean {
    let found = false;
    for (const page of this.known()) found = this.#giveUnread(page) || found;
    return found;
  }

  #evict(page: Page): void {
    // Pages that follow it are idle, too, and could not be found without it.
    for (const follower of [...page.known()].reverse()) this.#evictAlone(follower);
    this.#evictAlone(page);
  }

  #evictAlone(page: Page): void {
    this.#idle.delete(page);
    page.parent!.remove(page);
    this.#free(page);
    this.evictedPages++;
  }

  #free(page: Page): void {
    for (const [kind, block] of page.blocks.entries()) {
      if (block) this.#pool.give(block);
      page.blocks[kind] = null;
    }
    this.#dropState(page);
  }

  #dropState(page: Page): void {
    this.releaseState(page.state);
    page.state = null;
    this.#withState.delete(page);
  }

  /** Frees the blocks of a held page that no sequence reads; whether there were any. */
  #giveUnread(page: Page): boolean {
    let found = false;
    for (const [kind, block] of page.blocks.entries()) {
      if (!block || page.readers[kind]! > 0) continue;
      this.#pool.give(block);
      page.blocks[kind] = null;
      found = true;
    }
    return found;
  }
}

/** Bytes of the pool's blocks: one size for each kind of layers, then that of states. */
export function blockSizes({ kinds, stateBytes }: PageShape): number[] {
  return [...kinds.map(({ byteLength }) => byteLength), ...(stateBytes > 0 ? [stateBytes] : [])];
}
