/** Who shares what was computed of prompts. */

/** Texts of one salt find what was computed of each other's beginnings, and nothing of those of another. */
export interface PrefixScope {
  /** Whom it is of, such as a tenant; "" for whoever gives none. */
  readonly salt: string;
  /**
   * Most pages of its own that are kept in memory when no text holds them, and as many on disk. Default: as many as
   * there is room for.
   */
  readonly pages?: number | undefined;
  /** Prompts, as token ids, that are nobody's secret: what was computed of their beginnings is everyone's. Default: none. */
  readonly publicPrompts?: readonly (readonly number[])[] | undefined;
}

/** The scope of those who give none. */
export const everyone: PrefixScope = { salt: "" };

/** How many of the first ids are of beginnings that are everyone's. */
export function publicLength({ salt, publicPrompts = [] }: PrefixScope, ids: readonly number[]): number {
  if (salt === "") return Number.POSITIVE_INFINITY;
  let longest = 0;
  for (const prompt of publicPrompts) {
    let length = 0;
    while (length < prompt.length && length < ids.length && prompt[length] === ids[length]) length++;
    longest = Math.max(longest, length);
  }
  return longest;
}
