/** Where pages and states are kept beyond the memory of a store: found by what they hold. */
import type { Page } from "./page.ts";

/**
 * Keeps bytes by names that say what they are of. It may forget any of them at any time, and gives what it gives whole: bytes
 * that are damaged or another's are as good as forgotten.
 */
export interface PageArchive {
  /** The key of what is in front of the first page of a branch. */
  rootKey(branch: string): string;
  /** The key of the page of these ids behind another, by whose it is. */
  keyOf(previous: string, ids: readonly number[], salt: string): string;
  /** Whether there are bytes of a name. */
  has(name: string): Promise<boolean>;
  /** Fills `target` with the bytes of a name; false, with anything in it, where they are not to be had whole. */
  read(name: string, target: Uint8Array): Promise<boolean>;
  /** Keeps a copy of bytes, some time later: `bytes` is asked for them then, and gives null where they are gone. */
  write(name: string, bytes: () => Uint8Array | null): void;
  /** Keeps no more bytes than so many of what is someone's. */
  limit(salt: string, bytes: number): void;
  /** Notes that names are of use, the first ones most. */
  touch(names: readonly string[]): void;
  /** Resolves when all is written that was given so far. */
  flush(): Promise<void>;
}

/** The name of a page's block of a kind of layers. */
export function blockName(key: string, kind: number): string {
  return `${key}-${kind}`;
}

/** The name of the state after a page. */
export function stateName(key: string): string {
  return `${key}-s`;
}

/** The key of a known page. */
export function keyOfPage(archive: PageArchive, page: Page): string {
  const unnamed: Page[] = [];
  let named = page;
  for (; named.key === null; named = named.parent!) unnamed.push(named);
  for (const next of unnamed.reverse()) next.key = archive.keyOf(next.parent!.key!, next.ids, next.salt);
  return page.key!;
}
