/** Pages of a prefix that an archive has and the memory of a store has not. */
import { blockName, type PageArchive, stateName } from "./archive.ts";
import type { Page } from "./page.ts";
import { firstPageRead, isReadFrom, type PageStore } from "./page-store.ts";
import type { State } from "./state.ts";

/** A prefix that begins with what is in memory. */
export interface Prefix {
  readonly branch: string;
  /** Whose a page is that ends at a position. */
  readonly saltAt: (end: number) => string;
  /** Ids of its full pages. */
  readonly ids: readonly number[];
  /** Full pages of it that a sequence holds, from the first on. */
  readonly held: readonly Page[];
}

/** Pages behind those that are held, which nobody holds yet, and the state after them. */
export interface LoadedPages {
  readonly ids: readonly number[];
  readonly pages: readonly Page[];
  /** By kind of layers: the first page that has its block. */
  readonly firstPages: readonly number[];
  readonly state: State | null;
}

/**
 * Reads the pages with which the longest prefix can be gone on from. Null where there are none, or no room for them. Blocks
 * of the store must stay where they are meanwhile.
 */
export async function loadPages(store: PageStore, archive: PageArchive, prefix: Prefix): Promise<LoadedPages | null> {
  const known = new Known(archive, prefix, store.shape.positions);
  // A name that turns out to be of no use is known to be so in the next try.
  for (;;) {
    const count = await usablePages(store, known, prefix);
    if (count <= prefix.held.length) return null;
    const found = await readAll(store, known, prefix, count);
    if (found !== "again") return found;
  }
}

/** Keys of a prefix's pages, and what the archive has of them. */
class Known {
  readonly archive: PageArchive;
  readonly keys: readonly string[];
  readonly #has = new Map<string, Promise<boolean>>();

  constructor(archive: PageArchive, { branch, saltAt, ids }: Prefix, positions: number) {
    this.archive = archive;
    let key = archive.rootKey(branch);
    const keys: string[] = [];
    for (let start = 0; start < ids.length; start += positions) {
      key = archive.keyOf(key, ids.slice(start, start + positions), saltAt(start + positions));
      keys.push(key);
    }
    this.keys = keys;
  }

  has(name: string): Promise<boolean> {
    const found = this.#has.get(name) ?? this.archive.has(name);
    this.#has.set(name, found);
    return found;
  }

  async read(name: string, target: Uint8Array): Promise<boolean> {
    const isRead = await this.archive.read(name, target);
    if (!isRead) this.#has.set(name, Promise.resolve(false));
    return isRead;
  }
}

/** So many pages ahead, it is asked whether the archive has them. */
const ASKED_AHEAD = 16;

/** Most pages, those held included, after which a sequence can go on with what is held and what the archive has. */
async function usablePages({ shape }: PageStore, known: Known, { held }: Prefix): Promise<number> {
  const { keys } = known;
  const hasBlock = async (page: number, kind: number) =>
    (page < held.length && held[page]!.blocks[kind] !== null) || (await known.has(blockName(keys[page]!, kind)));
  const whole = shape.kinds.flatMap(({ window }, kind) => (window === 0 ? [kind] : []));
  let count = whole.length > 0 ? held.length : keys.length;
  const hasWhole = async (page: number) => {
    // An answer of a busy machine takes long, however little it is.
    if (page + ASKED_AHEAD < keys.length) for (const kind of whole) void hasBlock(page + ASKED_AHEAD, kind);
    for (const kind of whole) if (!(await hasBlock(page, kind))) return false;
    return true;
  };
  while (count < keys.length && (await hasWhole(count))) count++;
  for (; count > held.length; count--) {
    if (shape.stateBytes > 0 && !(await known.has(stateName(keys[count - 1]!)))) continue;
    if (await hasWindows(shape, count, hasBlock)) return count;
  }
  return count;
}

async function hasWindows(
  shape: PageStore["shape"],
  count: number,
  hasBlock: (page: number, kind: number) => Promise<boolean>,
): Promise<boolean> {
  for (const [kind, { window }] of shape.kinds.entries()) {
    if (window === 0) continue;
    const first = firstPageRead(shape, kind, count * shape.positions);
    for (let page = 0; page < count; page++)
      if (isReadFrom(shape, kind, first, page) && !(await hasBlock(page, kind))) return false;
  }
  return true;
}

/** Reads what is needed of `count` pages; "again" where something of it could not be read, which is known then. */
async function readAll(
  store: PageStore,
  known: Known,
  { ids, held }: Prefix,
  count: number,
): Promise<LoadedPages | "again" | null> {
  const { shape } = store;
  const { positions, kinds, stateBytes } = shape;
  const firstPages = kinds.map((_, kind) => firstPageRead(shape, kind, count * positions));
  const pages: Page[] = [];
  const state = stateBytes > 0 ? store.newState() : null;
  const giveBack = () => {
    for (const page of pages) store.giveBack(page);
    store.releaseState(state);
  };
  for (let i = held.length; i < count; i++) {
    const page = store.newPage(ids.slice(i * positions, (i + 1) * positions), (kind) =>
      isReadFrom(shape, kind, firstPages[kind]!, i),
    );
    if (page) pages.push(page);
  }
  if (pages.length < count - held.length || (stateBytes > 0 && !state)) {
    giveBack();
    return null;
  }
  const reads = pages.flatMap((page, i) =>
    page.blocks.flatMap((block, kind) => {
      const name = blockName(known.keys[held.length + i]!, kind);
      return block ? [{ name, target: block.bytes.subarray(0, kinds[kind]!.byteLength) }] : [];
    }),
  );
  if (state) reads.push({ name: stateName(known.keys[count - 1]!), target: state.block.bytes.subarray(0, stateBytes) });
  if (!(await readSome(known, reads))) {
    giveBack();
    return "again";
  }
  for (const page of pages) page.isArchived = true;
  return { ids: ids.slice(held.length * positions, count * positions), pages, firstPages, state };
}

/** Reads under way at once: as many as Node has threads for files. */
const READS = 4;

/** Fills all targets; false, with no read under way, where one cannot be filled. */
async function readSome(known: Known, reads: readonly { name: string; target: Uint8Array }[]): Promise<boolean> {
  let next = 0;
  let isRead = true;
  const reader = async () => {
    while (isRead && next < reads.length) {
      const { name, target } = reads[next++]!;
      if (!(await known.read(name, target))) isRead = false;
    }
  };
  await Promise.all(Array.from({ length: READS }, reader));
  return isRead;
}
