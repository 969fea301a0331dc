/** Loads pages of a prefix that the archive has and the store's memory has not. */
import { blockName, type PageArchive, stateName } from "./archive.ts";
import type { Page } from "./page.ts";
import { firstPageRead, isReadFrom, type PageStore } from "./page-store.ts";
import type { State } from "./state.ts";

/** A prefix whose first pages are in memory. */
export interface Prefix {
  readonly branch: string;
  /** Namespace (salt) of a page that ends at position `end`. */
  readonly saltAt: (end: number) => string;
  /** Ids of the prefix's full pages. */
  readonly ids: readonly number[];
  /** Full pages that the sequence holds already, from the first on. */
  readonly held: readonly Page[];
}

/** Loaded pages, which nobody holds yet, their ids, and the state after them. */
export interface LoadedPages {
  readonly ids: readonly number[];
  readonly pages: readonly Page[];
  /** By kind of layers: the first page whose block was loaded, or was held before. */
  readonly firstPages: readonly number[];
  readonly state: State | null;
}

/**
 * Reads the pages of the longest prefix from which the sequence can go on. Null where there are none, or no room for them.
 * Blocks must not move meanwhile.
 */
export async function loadPages(store: PageStore, archive: PageArchive, prefix: Prefix): Promise<LoadedPages | null> {
  const known = new Known(archive, prefix, store.shape.positions);
  // Names that cannot be read are remembered, so that the next try asks for a shorter prefix.
  for (;;) {
    const count = await usablePages(store, known, prefix);
    if (count <= prefix.held.length) return null;
    const found = await readAll(store, known, prefix, count);
    if (found !== "again") return found;
  }
}

/** Keys of a prefix's pages, and which of them the archive has. */
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

/** Number of pages ahead for which the archive is asked. */
const ASKED_AHEAD = 16;

/** Most pages, held ones included, after which a sequence can go on with what is held and what the archive has. */
async function usablePages({ shape }: PageStore, known: Known, { held }: Prefix): Promise<number> {
  const { keys } = known;
  const hasBlock = async (page: number, kind: number) =>
    (page < held.length && held[page]!.blocks[kind] !== null) || (await known.has(blockName(keys[page]!, kind)));
  const whole = shape.kinds.flatMap(({ window }, kind) => (window === 0 ? [kind] : []));
  let count = whole.length > 0 ? held.length : keys.length;
  const hasWhole = async (page: number) => {
    // On a busy machine each answer takes long, so that later pages are asked for ahead.
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

/** Reads what is needed of `count` pages; "again" where a part could not be read, which `known` then remembers. */
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

/** Reads at the same time: as many as Node has threads for files. */
const READS = 4;

/** Fills all targets; false, after all reads have ended, where one cannot be filled. */
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
