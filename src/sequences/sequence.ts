/** A sequence of tokens: its ids, and the pages that hold its keys and values. */
import { checkIds } from "../arguments.ts";
import { ContextLengthError, InvalidArgumentError } from "../errors.ts";
import { type PrefixScope, publicLength } from "../prefix-scope.ts";
import type { PageArchive } from "./archive.ts";
import { loadPages } from "./load.ts";
import type { Page } from "./page.ts";
import { firstPageKept, firstPageRead, isReadFrom, type PageStore, usablePosition } from "./page-store.ts";
import type { RestoredSequence } from "./restore.ts";
import type { State } from "./state.ts";

/** Branch, scope and context length of a sequence, and callbacks. */
export interface SequencePlace {
  readonly branch: string;
  readonly scope: PrefixScope;
  readonly contextLength: number;
  onOpen(sequence: Sequence): void;
  /** Called with the number of tokens that were found in the prefix cache. */
  onMatch(tokens: number): void;
  onDispose(sequence: Sequence): void;
}

/**
 * A sequence of tokens whose keys and values are in a paged store. It may share pages with other sequences. `SequenceStore`
 * makes sequences; whoever gets one disposes of it.
 */
export class Sequence {
  /** Namespace of its pages: only sequences of one branch share pages. */
  readonly branch: string;
  /** Owner of its pages: sequences with other salts do not find them. */
  readonly salt: string;
  /** Internal: index of the first page that differs from those in the block table. */
  changedFrom = 0;
  readonly #store: PageStore;
  readonly #place: SequencePlace;
  readonly #root: Page;
  readonly #ids: number[] = [];
  readonly #pages: Page[] = [];
  /** By kind: the first page whose block it reads. */
  readonly #first: number[];
  /** State after the last position (null at first); `#nextState`: the one that the next step writes. */
  #state: State | null = null;
  #nextState: State | null = null;
  /** Position and state at the start of the last step, while the sequence can be truncated to there. */
  #earlier: { readonly position: number; readonly state: State } | null = null;
  /** Tokens of the last step that are not committed. */
  #computed = 0;
  /** Number of leading positions that are public, since they are those of public prompts. */
  #publicEnd = 0;
  #isInStep = false;
  #isDisposed = false;

  /** Internal: `SequenceStore.open` makes sequences. */
  constructor(store: PageStore, place: SequencePlace) {
    this.branch = place.branch;
    this.salt = place.scope.salt;
    this.#store = store;
    this.#place = place;
    this.#root = store.root(place.branch);
    this.#first = store.shape.kinds.map(() => 0);
    place.onOpen(this);
  }

  /** Ids of the tokens whose keys and values it holds. */
  get ids(): readonly number[] {
    return this.#ids;
  }

  /** Number of tokens that it holds, which is the position of the next one. */
  get position(): number {
    return this.#ids.length;
  }

  get isDisposed(): boolean {
    return this.#isDisposed;
  }

  /** Whether it holds neither tokens nor reserved pages, so that `release` frees nothing. */
  get isEmpty(): boolean {
    return this.#pages.length === 0 && !this.#state && !this.#nextState && !this.#earlier;
  }

  /**
   * Where the next page begins. A step that ends there leaves a recurrent state to continue from, so prompts are best
   * divided there.
   */
  get nextBoundary(): number {
    const { positions } = this.#store.shape;
    return (Math.floor(this.position / positions) + 1) * positions;
  }

  /**
   * Takes the longest prefix of `ids` in the prefix cache, except for the last token, whose logits must be computed. Gives
   * the number of tokens that it then holds. It must hold none before.
   */
  match(ids: readonly number[]): number {
    this.#checkIdle("match");
    checkIds("sequence.match", ids);
    if (this.position > 0)
      throw new InvalidArgumentError(`sequence.match: expected a sequence without tokens but found ${this.position}`);
    const { shape } = this.#store;
    const publicEnd = publicLength(this.#place.scope, ids);
    const end = Math.min(ids.length - 1, this.#place.contextLength);
    const { pages, length } = longestKnown(this.#root, ids, end, { salt: this.salt, publicEnd });
    const usable = usablePosition(shape, pages, length);
    this.#clear();
    this.#publicEnd = publicEnd;
    this.#readFrom(firstPageRead, usable);
    for (const page of pages.slice(0, Math.ceil(usable / shape.positions))) this.#push(page);
    for (let i = 0; i < usable; i++) this.#ids.push(ids[i]!);
    this.#state = this.#stateOfLastPage();
    this.#store.touch(this.#pages);
    this.#place.onMatch(usable);
    return usable;
  }

  /** Makes another sequence with the same tokens, which goes on by itself. */
  fork(): Sequence {
    this.#checkOpen("fork");
    const fork = new Sequence(this.#store, this.#place);
    fork.#publicEnd = this.#publicEnd;
    for (const [kind, first] of this.#first.entries()) fork.#first[kind] = first;
    for (const page of this.#pages.slice(0, this.#pagesInUse)) fork.#push(page);
    for (const id of this.#ids) fork.#ids.push(id);
    fork.#state = this.#state && this.#store.retainState(this.#state);
    return fork;
  }

  /**
   * Forgets the tokens from `position` on, or more where the rest cannot be continued: a window's pages are gone, or
   * recurrent states exist only at the ends of pages and where a step committed with `keepsStart` began. Gives the number
   * of tokens that it then holds.
   */
  truncate(position: number): number {
    this.#checkIdle("truncate");
    if (!Number.isInteger(position) || position < 0 || position > this.position)
      throw new InvalidArgumentError(
        `sequence.truncate: expected a position from 0 to ${this.position} but found ${position}`,
      );
    const { shape } = this.#store;
    const earlier = this.#earlier;
    const usable =
      position === this.position ? position : usablePosition(shape, this.#pages, position, earlier?.position);
    while (this.#pages.length > Math.ceil(usable / shape.positions)) this.#pop();
    this.#computed = 0;
    if (usable === this.position) return usable;
    this.#ids.length = usable;
    this.#publicEnd = this.salt === "" ? this.#publicEnd : Math.min(this.#publicEnd, usable);
    this.#readFrom((_, kind) => Math.min(this.#first[kind]!, firstPageRead(shape, kind, usable)), usable);
    this.#store.releaseState(this.#state);
    this.#state = usable === earlier?.position ? this.#store.retainState(earlier.state) : this.#stateOfLastPage();
    this.#forgetEarlier();
    return usable;
  }

  /** Forgets all tokens and gives up its pages; full ones stay in the prefix cache until they are evicted. */
  release(): void {
    this.#checkIdle("release");
    this.archiveStates();
    this.#clear();
  }

  /** Ends the sequence. Its pages are given up at once or, during a step, after it. */
  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    if (!this.#isInStep) this.#end();
  }

  /**
   * Reserves pages for a step of `count` tokens, evicting others. False, with nothing reserved, when there is no room.
   * ContextLengthError beyond the context length.
   */
  reserve(count: number): boolean {
    this.#checkIdle("reserve");
    if (!Number.isInteger(count) || count < 1)
      throw new InvalidArgumentError(`sequence.reserve: expected at least one token but found ${count}`);
    const end = this.position + count;
    if (end > this.#place.contextLength)
      throw new ContextLengthError(`expected at most ${this.#place.contextLength} tokens but found ${end}`);
    this.#forgetEarlier();
    return this.#ownLastPage() && this.#takeStates() && this.#takePages(end);
  }

  /**
   * Appends the first tokens that the last step has computed; all of them where layers are recurrent. With `keepsStart`,
   * the sequence can be truncated to the start of that step until the next one, even with recurrent layers.
   */
  commit(ids: readonly number[], { keepsStart = false }: { readonly keepsStart?: boolean } = {}): void {
    this.#checkIdle("commit");
    checkIds("sequence.commit", ids);
    const isWhole = this.#store.shape.stateBytes > 0;
    if (ids.length > this.#computed || (isWhole && ids.length < this.#computed))
      throw new InvalidArgumentError(
        `sequence.commit: expected ${isWhole ? "" : "at most "}${this.#computed} tokens, those of the last step, but found ${ids.length}`,
      );
    this.#computed = 0;
    const start = this.position;
    for (const id of ids) this.#append(id);
    if (isWhole && ids.length > 0) this.#swapStates(keepsStart ? start : null);
    this.#readFrom(
      (shape, kind, position) => Math.max(this.#first[kind]!, firstPageKept(shape, kind, position)),
      this.position,
    );
  }

  /** Internal: writes the recurrent states at the ends of its pages to the archive. */
  archiveStates(): void {
    this.#store.archiveStates(this.#pages);
  }

  /** Internal: takes what the archive has of `ids`, as `match` takes what is in memory; it must hold no tokens before. */
  async load(ids: readonly number[], archive: PageArchive): Promise<void> {
    this.match(ids);
    const { positions } = this.#store.shape;
    const most = Math.floor(Math.min(ids.length - 1, this.#place.contextLength) / positions);
    const held = this.#pages.slice(0, Math.floor(this.position / positions));
    if (held.length >= most) return;
    const { branch } = this;
    const saltAt = (end: number) => this.#saltAt(end);
    const prefix = { branch, saltAt, ids: ids.slice(0, most * positions), held };
    const loaded = await loadPages(this.#store, archive, prefix);
    if (!loaded) return;
    const publicEnd = this.#publicEnd;
    // What memory held of the last page is also in the loaded one.
    if (!this.#isDisposed && this.truncate(held.length * positions) === held.length * positions) {
      this.#publicEnd = publicEnd;
      this.adopt(loaded);
      this.#place.onMatch(loaded.ids.length);
      return;
    }
    for (const page of loaded.pages) this.#store.giveBack(page);
    this.#store.releaseState(loaded.state);
  }

  /** Internal: its pages by index, reserved ones included. */
  get pages(): readonly Page[] {
    return this.#pages;
  }

  /** Internal: the recurrent states that a step reads and writes. */
  get states(): { readonly now: State | null; readonly next: State | null } {
    return { now: this.#state, next: this.#nextState };
  }

  /** Internal: why a step of `count` tokens cannot run now; null when it can. */
  refusal(count: number, ahead = 0): string | null {
    if (!Number.isInteger(count) || count < 1) return `${count} tokens`;
    if (this.#isDisposed) return "a sequence that was disposed of";
    if (this.#isInStep) return "a sequence that is in a step";
    // A step that only computes stored positions again needs no room.
    if (ahead + count <= 0) return null;
    const { shape } = this.#store;
    const isReserved = this.#pages.length * shape.positions >= this.position + ahead + count && this.#ownsLastPage();
    if (!isReserved || (shape.stateBytes > 0 && !this.#nextState)) return `no room reserved for ${count} tokens`;
    return null;
  }

  /** Internal: begins a step with some of its tokens. */
  beginStep(): void {
    this.#isInStep = true;
    this.#computed = 0;
  }

  /** Internal: ends the step, which has computed `computed` tokens. */
  endStep(computed: number): void {
    this.#isInStep = false;
    this.#computed = computed;
    if (this.#isDisposed) this.#end();
  }

  /** Internal: appends restored pages and state to a sequence that ends with a full page or has no tokens. */
  adopt(restored: Omit<RestoredSequence, "branch">): void {
    const { ids, pages, firstPages, state } = restored;
    this.#readFrom((_, kind) => firstPages[kind]!, this.position + ids.length);
    for (const id of ids) this.#ids.push(id);
    this.#store.releaseState(this.#state);
    this.#state = state;
    for (const page of pages) {
      this.#push(page);
      this.#know(this.#pages.length - 1);
    }
    if (state && this.position % this.#store.shape.positions === 0) this.#store.keepState(this.#pages.at(-1)!, state);
  }

  #checkOpen(what: string): void {
    if (this.#isDisposed)
      throw new InvalidArgumentError(`sequence.${what}: expected an open sequence but found one that was disposed of`);
  }

  #checkIdle(what: string): void {
    this.#checkOpen(what);
    if (this.#isInStep)
      throw new InvalidArgumentError(
        `sequence.${what}: expected a sequence that is not in a step; await the step first`,
      );
  }

  /** Number of pages with tokens; those after them are reserved. */
  get #pagesInUse(): number {
    return Math.ceil(this.position / this.#store.shape.positions);
  }

  #end(): void {
    this.archiveStates();
    this.#clear();
    this.#place.onDispose(this);
  }

  /** Salt of a page that ends at position `end`. */
  #saltAt(end: number): string {
    return end <= this.#publicEnd ? "" : this.salt;
  }

  #clear(): void {
    this.#publicEnd = 0;
    while (this.#pages.length > 0) this.#pop();
    this.#ids.length = 0;
    this.#first.fill(0);
    this.#computed = 0;
    this.#forgetEarlier();
    this.#store.releaseState(this.#state);
    this.#store.releaseState(this.#nextState);
    this.#state = null;
    this.#nextState = null;
  }

  #forgetEarlier(): void {
    this.#store.releaseState(this.#earlier?.state ?? null);
    this.#earlier = null;
  }

  #push(page: Page): void {
    const index = this.#pages.push(page) - 1;
    this.#enter(page, index);
  }

  #pop(): void {
    const page = this.#pages.pop()!;
    this.#leave(page, this.#pages.length);
  }

  #enter(page: Page, index: number): void {
    this.#store.retain(page);
    for (const [kind, first] of this.#first.entries())
      if (isReadFrom(this.#store.shape, kind, first, index)) page.readers[kind]!++;
    this.changedFrom = Math.min(this.changedFrom, index);
  }

  #leave(page: Page, index: number): void {
    for (const [kind, first] of this.#first.entries())
      if (isReadFrom(this.#store.shape, kind, first, index)) page.readers[kind]!--;
    this.#store.release(page);
    this.changedFrom = Math.min(this.changedFrom, index);
  }

  #replace(index: number, page: Page): void {
    const old = this.#pages[index]!;
    this.#enter(page, index);
    this.#pages[index] = page;
    this.#leave(old, index);
  }

  /** Moves the start of the blocks that are read, by kind, to the page that `first` gives. */
  #readFrom(first: typeof firstPageRead, position: number): void {
    const { shape } = this.#store;
    for (const [kind, old] of this.#first.entries()) {
      const now = first(shape, kind, position);
      if (now === old) continue;
      const end = this.#pages.length;
      for (let i = old; i < Math.min(now, end); i++)
        if (!isReadFrom(shape, kind, now, i)) this.#store.leaveBehind(this.#pages[i]!, kind);
      for (let i = now; i < Math.min(old, end); i++)
        if (!isReadFrom(shape, kind, old, i)) this.#pages[i]!.readers[kind]!++;
      if (now < old) this.changedFrom = Math.min(this.changedFrom, now);
      this.#first[kind] = now;
    }
  }

  #ownsLastPage(): boolean {
    const page = this.#pages[Math.floor(this.position / this.#store.shape.positions)];
    return !page || (page.holders === 1 && !page.isKnown);
  }

  /** Copies the last page where it is not full and not this sequence's own; false when there is no room. */
  #ownLastPage(): boolean {
    const { positions } = this.#store.shape;
    const length = this.position % positions;
    if (length === 0) return true;
    const index = Math.floor(this.position / positions);
    const page = this.#pages[index]!;
    if (this.#ownsLastPage()) return true;
    const copy = this.#store.copyPage(page, length);
    if (!copy) return false;
    this.#replace(index, copy);
    return true;
  }

  #takePages(end: number): boolean {
    const before = this.#pages.length;
    while (this.#pages.length * this.#store.shape.positions < end) {
      const page = this.#store.newPage();
      if (page) this.#push(page);
      else {
        while (this.#pages.length > before) this.#pop();
        return false;
      }
    }
    return true;
  }

  #takeStates(): boolean {
    if (this.#store.shape.stateBytes === 0) return true;
    this.#state ??= this.#store.zeroState();
    if (this.#state) this.#nextState ??= this.#store.newState();
    return this.#nextState !== null;
  }

  #append(id: number): void {
    const { positions } = this.#store.shape;
    const index = Math.floor(this.position / positions);
    const page = this.#pages[index]!;
    // Further ids of the page are those of truncated tokens.
    page.ids.length = this.position % positions;
    page.ids.push(id);
    this.#ids.push(id);
    if (page.ids.length === positions) this.#know(index);
  }

  /** Makes a page known, or replaces it by an equal page that is known. */
  #know(index: number): void {
    const page = this.#pages[index]!;
    page.salt = this.#saltAt((index + 1) * this.#store.shape.positions);
    const known = this.#store.know(page, this.#pages[index - 1] ?? this.#root);
    if (known !== page) this.#replace(index, known);
  }

  /** `start`: position whose state is kept to return to; null for none. */
  #swapStates(start: number | null): void {
    this.#forgetEarlier();
    if (start !== null && this.#state) this.#earlier = { position: start, state: this.#state };
    else this.#store.releaseState(this.#state);
    this.#state = this.#nextState;
    this.#nextState = null;
    const isBoundary = this.position % this.#store.shape.positions === 0;
    if (isBoundary) this.#store.keepState(this.#pages[this.#pagesInUse - 1]!, this.#state!);
  }

  /** The recurrent state at the end of the last page; null at position 0. */
  #stateOfLastPage(): State | null {
    const page = this.#pages[this.#pagesInUse - 1];
    return page ? this.#store.useState(page) : null;
  }
}

/** The known pages with the longest prefix of the first `end` of `ids`, and its length. */
function longestKnown(
  root: Page,
  ids: readonly number[],
  end: number,
  whose: { readonly salt: string; readonly publicEnd: number },
): { pages: Page[]; length: number } {
  const pages: Page[] = [];
  let length = 0;
  for (let page = root; length < end; ) {
    const next = page.follower(ids, length, end, whose);
    if (!next) break;
    pages.push(next.page);
    length += next.length;
    page = next.page;
    if (next.length < page.ids.length) break;
  }
  return { pages, length };
}
