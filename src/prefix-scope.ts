/** Scopes of the prefix cache: who shares keys and values of prompts. */

/** Sequences with the same salt share the prefix cache of their beginnings; other salts share nothing with it. */
export interface PrefixScope {
  /** Owner, such as a tenant; "" for sequences without a scope. */
  readonly salt: string;
  /**
   * Most pages of this owner that are cached without a sequence that holds them, in memory and as many again on disk.
   * Default: unlimited.
   */
  readonly pages?: number | undefined;
  /**
   * Prompts, as token ids, that are no secret: keys and values of their beginnings are shared by all scopes. Default: none.
   */
  readonly publicPrompts?: readonly (readonly number[])[] | undefined;
}

/** The scope of sequences without one. */
export const everyone: PrefixScope = { salt: "" };

/** Number of leading ids that are a public prompt's beginning. */
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
