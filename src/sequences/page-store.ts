/** The pages of all sequences: taken within a limit of bytes, found by their ids, evicted when nobody holds them. */
import type { KernelMemory } from "../kernels/contract.ts";
import { blockName, keyOfPage, type PageArchive, stateName } from "./archive.ts";
import { type Block, BlockPool } from "./block-pool.ts";
import { FairPages } from "./fair-pages.ts";
import { Page } from "./page.ts";
import type { State } from "./state.ts";

/** What a page holds for the layers of one kind. */
interface PageKind {
  /** Last positions that a query sees; 0 for all. */
  readonly window: number;
  /** Bytes of the layers' keys and values in a page. */
  readonly byteLength: number;
  /**
   * Whether it is what another kind is made of, page by page: it is of no use once a page is full and left behind, but for the
   * first page, which all rows read here.
   */
  readonly isResidual: boolean;
}

export interface PageShape {
  /** Positions of a page, a power of two. */
  readonly positions: number;
  readonly kinds: readonly PageKind[];
  /** Bytes of all recurrent layers together, for one sequence; 0 without any. */
  readonly stateBytes: number;
}

/** Pages behind a window that stay, so that a sequence can be cut back a little; of larger ones, fewer. */
const SPARE_PAGES = 2;
const SPARE_RESIDUALS = 1;

/** The first page that a row at `position` reads in layers of a kind. */
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
 * The last position, at most `position`, that a sequence of these pages can go on from: what windows see from there is
 * held, and so is the state of recurrent layers, which is that at the end of a page, or at `stateAt`.
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
  /** Steps and reads from files under way, for which blocks must stay where they are. */
  uses = 0;
  evictedPages = 0;
  #archive: PageArchive | null = null;
  readonly #pool: BlockPool;
  /** What is in front of the first page, by branch. */
  readonly #roots = new Map<string, Page>();
  /** Known pages that no sequence holds, by when they were used; a page after its followers. */
  readonly #idle = new FairPages();
  /** Known pages with a state, by when it was used. */
  readonly #withState = new FairPages();
  /** Most pages of salts that no sequence holds. */
  readonly #quotas = new Map<string, number>();
  #time = 0;
  #zeroState: State | null = null;

  constructor(memory: KernelMemory, cacheBytes: number, shape: PageShape) {
    this.shape = shape;
    this.#pool = new BlockPool(memory, cacheBytes, blockSizes(shape));
  }

  /** Where full pages are kept, too, from now on. */
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
   * A page that nobody holds yet, with blocks of the kinds that it needs, whose bytes mean nothing; null when there is no
   * room.
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

  /** A page that nobody came to hold. */
  giveBack(page: Page): void {
    this.#free(page);
  }

  /** A page of its own with what another holds at its first `length` positions; null when there is no room. */
  copyPage(page: Page, length: number): Page | null {
    const copy = this.newPage(page.ids.slice(0, length));
    if (!copy) return null;
    for (const [kind, block] of page.blocks.entries()) if (block) copy.blocks[kind]!.bytes.set(block.bytes);
    return copy;
  }

  hold(page: Page): void {
    if (page.holders++ === 0) this.#idle.delete(page);
  }

  /** One that is known stays until it is evicted, when nobody holds it any more. */
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

  /** Keeps no more pages of a salt than so many when no sequence holds them, nor in the archive. */
  limit(salt: string, pages: number): void {
    this.#quotas.set(salt, pages);
    this.#archive?.limit(salt, pages * blockSizes(this.shape).reduce((sum, bytes) => sum + bytes, 0));
  }

  /** The sequence does not read the page's block of a kind any more, though it still holds the page. */
  leaveBehind(page: Page, kind: number): void {
    page.readers[kind]!--;
    this.#giveUnread(page);
  }

  /**
   * Makes a page known after another: a full one, or the last of a sequence that was restored. Where the same is known
   * already, that one is given, with the blocks that it lacks: it takes the page's place.
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
    // What others hold of the page stays theirs, and one that is not full has too little for one that is.
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

  /** Of the kinds that others are made of, the first page of a sequence alone. */
  #isArchived(kind: number, page: Page): boolean {
    return !this.shape.kinds[kind]!.isResidual || page.parent!.parent === null;
  }

  /** Gives the states of known pages to the archive: those that are left when others were thinned. */
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

  /** Tells the archive that pages are of use. */
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

  /** Keeps a state as that after a page's last position, unless there is one. */
  keepState(page: Page, state: State): void {
    if (page.state) return;
    page.state = this.holdState(state);
    if (page.isKnown) this.#noteState(page);
  }

  #noteState(page: Page): void {
    this.#withState.delete(page);
    this.#withState.add(page, this.#time++);
    this.#thinStates(page);
  }

  /**
   * Of the states before a page's, drops those whose neighbours are no farther from each other than the page is from the
   * nearer one: a long sequence keeps as many as its length has digits. Those where sequences part stay.
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
    return page.state && this.holdState(page.state);
  }

  /** A state to be written by a step; null when there is no room. */
  newState(): State | null {
    const block = this.#take(this.shape.kinds.length);
    return block && { block, holders: 1 };
  }

  /** The state before the first position; null when there is no room. */
  zeroState(): State | null {
    if (!this.#zeroState) {
      this.#zeroState = this.newState();
      this.#zeroState?.block.bytes.fill(0);
    }
    return this.#zeroState && this.holdState(this.#zeroState);
  }

  holdState(state: State): State {
    state.holders++;
    return state;
  }

  releaseState(state: State | null): void {
    if (state && --state.holders === 0) this.#pool.give(state.block);
  }

  /** Forgets all pages that no sequence holds. */
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
   * Gives up a little of what is kept for later only, the least recently used of whoever has most; false when there is
   * nothing of the sort.
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
    // Others' that follow it, which are as idle as it is, could not be found without it.
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

  /** Blocks of a page that some sequence holds and none reads. */
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

/** Bytes of the blocks that the pool gives: of each kind of layers, then of states. */
export function blockSizes({ kinds, stateBytes }: PageShape): number[] {
  return [...kinds.map(({ byteLength }) => byteLength), ...(stateBytes > 0 ? [stateBytes] : [])];
}
