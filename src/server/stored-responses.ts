/**
 * Stored responses that later requests can continue: a bounded number, each visible to its key only, in memory and
 * optionally in a file.
 */

import type { ResponseFile } from "./response-file.ts";
import type { InputItem } from "./schemas/responses.ts";
import type { StoredResponse } from "./stored-response.ts";

interface Entry extends StoredResponse {
  readonly bytes: number;
}

export class StoredResponses {
  readonly #most: number;
  readonly #mostBytes: number;
  /** By id, the longest unused first. */
  readonly #entries = new Map<string, Entry>();
  readonly #file: ResponseFile | null;
  #bytes = 0;

  constructor(
    { responses, responseBytes }: { readonly responses: number; readonly responseBytes: number },
    file: ResponseFile | null = null,
  ) {
    this.#most = responses;
    this.#mostBytes = responseBytes;
    this.#file = file;
    for (const response of file?.found ?? []) this.#add(response);
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Bytes of all stored responses, as JSON. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Stores a response; the longest unused are removed where there is no room. */
  keep(response: StoredResponse): void {
    if (this.#add(response)) this.#file?.write({ kept: response }, () => this.#all());
  }

  #add(response: StoredResponse): boolean {
    const bytes = Buffer.byteLength(JSON.stringify([response.input, response.body]));
    if (bytes > this.#mostBytes) return false;
    this.#entries.set(response.id, { ...response, bytes });
    this.#bytes += bytes;
    for (const [id] of this.#entries) {
      if (this.#entries.size <= this.#most && this.#bytes <= this.#mostBytes) break;
      this.#remove(id);
    }
    return true;
  }

  *#all(): Generator<StoredResponse> {
    for (const { bytes: _, ...response } of this.#entries.values()) yield response;
  }

  /** The stored response of an owner; null where there is none. */
  get(id: string, owner: string): StoredResponse | null {
    const entry = this.#entries.get(id);
    return entry?.owner === owner ? entry : null;
  }

  /** All items of a conversation up to a response, oldest first; null where a response of it is not stored any more. */
  itemsOf(id: string, owner: string): InputItem[] | null {
    const chain: Entry[] = [];
    for (let next: string | null = id; next !== null; ) {
      const entry = this.#entries.get(next);
      if (entry?.owner !== owner) return null;
      chain.push(entry);
      next = entry.previousId;
    }
    // Responses that others continue count as used after those, so that they are not removed before them.
    for (const entry of chain) {
      this.#entries.delete(entry.id);
      this.#entries.set(entry.id, entry);
    }
    return chain.reverse().flatMap(({ input, output }) => [...input, ...output]);
  }

  /** An item of an owner's responses; null where there is none. */
  itemOf(id: string, owner: string): InputItem | null {
    for (const entry of this.#entries.values()) {
      if (entry.owner !== owner) continue;
      const found = [...entry.output, ...entry.input].find((item) => item.id === id && item.type !== "item_reference");
      if (found) return found;
    }
    return null;
  }

  /** Removes a response; whether the owner had it. */
  delete(id: string, owner: string): boolean {
    if (this.get(id, owner) === null) return false;
    this.#file?.write({ forgotten: id }, () => this.#all());
    return this.#remove(id);
  }

  #remove(id: string): boolean {
    this.#bytes -= this.#entries.get(id)!.bytes;
    return this.#entries.delete(id);
  }
}
