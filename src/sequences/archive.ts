/**
 * Interface of archives: pages and states of the KV cache that are kept beyond the memory of a store, by names of their
 * content.
 */
import type { Page } from "./page.ts";

/**
 * Keeps bytes by names that identify their content. It may forget any of them at any time; bytes that are damaged or of
 * another name count as forgotten.
 */
export interface PageArchive {
  /** The key of what precedes the first page of a branch. */
  rootKey(branch: string): string;
  /** The key of a page with these ids after page `previous`, in the namespace `salt`. */
  keyOf(previous: string, ids: readonly number[], salt: string): string;
  /** Whether there are bytes of this name. */
  has(name: string): Promise<boolean>;
  /** Fills `target` with the bytes of a name; false, with undefined contents, where they are missing or damaged. */
  read(name: string, target: Uint8Array): Promise<boolean>;
  /** Queues bytes to be written; `bytes` is called when they are, and gives null where they are gone by then. */
  write(name: string, bytes: () => Uint8Array | null): void;
  /** Sets a quota of bytes for the namespace `salt`. */
  limit(salt: string, bytes: number): void;
  /** Marks names as used now, the first ones as the most recent. */
  touch(names: readonly string[]): void;
  /** Resolves when all queued bytes are written. */
  flush(): Promise<void>;
}

/** The name of a page's block for one kind of layers. */
export function blockName(key: string, kind: number): string {
  return `${key}-${kind}`;
}

/** The name of the recurrent state after a page. */
export function stateName(key: string): string {
  return `${key}-s`;
}

/** The key of a known page, computed from those of the pages before it. */
export function keyOfPage(archive: PageArchive, page: Page): string {
  const unnamed: Page[] = [];
  let named = page;
  for (; named.key === null; named = named.parent!) unnamed.push(named);
  for (const next of unnamed.reverse()) next.key = archive.keyOf(next.parent!.key!, next.ids, next.salt);
  return page.key!;
}
