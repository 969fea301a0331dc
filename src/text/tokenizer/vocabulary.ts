/** Tokens and their ids as tokenizer.json lists them. */
import type { Field } from "./field.ts";

/** Exclusive limit of ids. No known vocabulary reaches a sixteenth; ids index an array, so a false one would cost memory. */
export const ID_LIMIT = 1 << 24;

/** Ids by token, of a map or of stored tables. */
export type TokenIds = Pick<ReadonlyMap<string, number>, "get" | "keys">;

export class Vocabulary {
  readonly ids: TokenIds;
  /** The token of an id; undefined where it is unused. */
  readonly token: (id: number) => string | undefined;
  /** Exclusive limit of the ids. */
  readonly limit: number;
  /** Number of tokens; one that is listed twice counts twice. */
  readonly size: number;

  constructor(ids: TokenIds, token: Vocabulary["token"], limit: number, size: number) {
    this.ids = ids;
    this.token = token;
    this.limit = limit;
    this.size = size;
  }

  /** Ids of the byte tokens (such as `<0xE2>`) of a text's UTF-8; null when one is missing. */
  byteIds(text: string): number[] | null {
    const ids: number[] = [];
    for (const byte of new TextEncoder().encode(text)) {
      const id = this.ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
      if (id === undefined) return null;
      ids.push(id);
    }
    return ids;
  }
}

function tokensById(ids: ReadonlyMap<string, number>): readonly (string | undefined)[] {
  const tokens: (string | undefined)[] = [];
  ids.forEach((id, token) => {
    while (tokens.length < id) tokens.push(undefined);
    tokens[id] ??= token;
  });
  return tokens;
}

/** Reads an object that maps tokens to ids, or takes what `tables.ts` has read already. */
export function readVocabulary(field: Field): Vocabulary {
  const { value } = field;
  if (value instanceof Vocabulary) return value;
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw field.expected("an object of tokens with their ids");
  const ids = new Map<string, number>();
  // A list of pairs would take as long as all the rest.
  for (const token of Object.keys(value)) {
    const id = (value as Record<string, number>)[token]!;
    if (!Number.isInteger(id) || id < 0 || id >= ID_LIMIT)
      throw field.invalid(
        `token ${JSON.stringify(token)}: expected an id from 0 to ${ID_LIMIT - 1} but found ${shown(id)}`,
      );
    ids.set(token, id);
  }
  const tokens = tokensById(ids);
  return new Vocabulary(ids, (id) => tokens[id], tokens.length, ids.size);
}

function shown(value: unknown): string {
  return typeof value === "object" && value !== null ? "an object" : String(value);
}
