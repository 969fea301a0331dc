/** Pages that may be evicted: the owner (salt) with most pages loses the least recently used first. */
import type { Page } from "./page.ts";

export class FairPages {
  /** By salt: pages and the times at which they were added, oldest first. */
  readonly #bySalt = new Map<string, Map<Page, number>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Adds a page that is not in the list. */
  add(page: Page, time: number): void {
    const own = this.#bySalt.get(page.salt) ?? new Map<Page, number>();
    this.#bySalt.set(page.salt, own);
    own.set(page, time);
    this.#size++;
  }

  /** Removes a page; whether it was in the list. */
  delete(page: Page): boolean {
    const own = this.#bySalt.get(page.salt);
    if (!own?.delete(page)) return false;
    if (own.size === 0) this.#bySalt.delete(page.salt);
    this.#size--;
    return true;
  }

  /** The page to evict next, and the time at which it was added. */
  get first(): { readonly page: Page; readonly since: number } | null {
    let most: Map<Page, number> | null = null;
    for (const own of this.#bySalt.values()) if (own.size > (most?.size ?? 0)) most = own;
    for (const [page, since] of most ?? []) return { page, since };
    return null;
  }

  /** Number of pages of a salt. */
  countOf(salt: string): number {
    return this.#bySalt.get(salt)?.size ?? 0;
  }

  /** The page of a salt to evict next; null where it has none. */
  firstOf(salt: string): Page | null {
    for (const page of this.#bySalt.get(salt)?.keys() ?? []) return page;
    return null;
  }

  clear(): void {
    this.#bySalt.clear();
    this.#size = 0;
  }
}
