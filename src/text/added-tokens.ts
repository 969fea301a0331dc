/** Added tokens (control tokens and the like): those of a tokenizer's two files, and their text found in a text. */
import { InvalidFileError } from "../errors.ts";

/** An entry of `added_tokens` in tokenizer.json, as far as it is used here. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly special?: boolean;
}

interface TokenText {
  readonly id: number;
  readonly content: string;
}

export class AddedTokenMatcher {
  /** First character (UTF-16 unit) to the tokens that begin with it, longest first. */
  readonly #byFirst = new Map<string, TokenText[]>();
  readonly #maxLength: number;

  constructor(tokens: readonly TokenText[]) {
    for (const token of tokens) {
      const first = token.content[0];
      if (first === undefined) continue;
      const siblings = this.#byFirst.get(first);
      if (siblings) siblings.push(token);
      else this.#byFirst.set(first, [token]);
    }
    for (const siblings of this.#byFirst.values()) siblings.sort((a, b) => b.content.length - a.content.length);
    this.#maxLength = Math.max(0, ...tokens.map((token) => token.content.length));
  }

  /** The text cut at added tokens: strings between them and the tokens' ids, leftmost and longest first. */
  split(text: string): (string | number)[] {
    const parts: (string | number)[] = [];
    let start = 0;
    for (let i = 0; i < text.length; ) {
      const token = this.#byFirst.get(text[i]!)?.find(({ content }) => text.startsWith(content, i));
      if (!token) {
        i++;
        continue;
      }
      if (i > start) parts.push(text.slice(start, i));
      parts.push(token.id);
      i += token.content.length;
      start = i;
    }
    if (start < text.length) parts.push(text.slice(start));
    return parts;
  }

  /**
   * Where, in ascending order, a token that `counts` begins, overlapping ones included. A beginning that the end of
   * the text (white space apart) cuts off counts, because what follows the text might complete it.
   */
  starts(text: string, counts: (id: number) => boolean): number[] {
    const end = text.trimEnd().length;
    const starts: number[] = [];
    for (let i = 0; i < text.length; i++) {
      const siblings = this.#byFirst.get(text[i]!);
      if (!siblings) continue;
      const tail = end - i < this.#maxLength && end > i ? text.slice(i, end) : null;
      const begins = ({ id, content }: TokenText) =>
        counts(id) && (text.startsWith(content, i) || (tail !== null && content.startsWith(tail)));
      if (siblings.some(begins)) starts.push(i);
    }
    return starts;
  }
}

/** Keys of tokenizer_config.json whose tokens are special, in the order in which transformers adds what only they name. */
const NAMED_TOKENS = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/** The text of a token in tokenizer_config.json: a string, or an object with `content`. */
export function tokenText(value: unknown): string | null {
  if (typeof value === "string") return value;
  const content = (value as { content?: unknown } | null | undefined)?.content;
  return typeof content === "string" ? content : null;
}

/** Tokens that tokenizer_config.json names as special, by a key of their own or in a list of more. */
export function namedTokens(config: object): Omit<AddedToken, "id">[] {
  const entries = config as Record<string, unknown>;
  const lists = [entries.extra_special_tokens, entries.additional_special_tokens].map((list) =>
    typeof list === "object" && list !== null ? Object.values(list) : [],
  );
  const more = lists.find((list) => list.length > 0) ?? [];
  const flags = { lstrip: false, rstrip: false, normalized: false, single_word: false };
  return [...NAMED_TOKENS.map((key) => entries[key]), ...more].flatMap((value) => {
    const content = tokenText(value);
    return content ? [{ ...flags, ...(typeof value === "object" && value), content, special: true }] : [];
  });
}

/**
 * The added tokens with those of tokenizer_config.json, as transformers adds them: those of `added_tokens_decoder` in the
 * order of the ids that it gives them, where what it says of a known token counts, then those that are only named. A new one
 * gets its id in the vocabulary or the next one that is free. Unlike there, words of the vocabulary that are only named, as
 * some that pad, stay ordinary. InvalidFileError for entries that are no tokens.
 */
export function withConfigTokens(
  added: readonly AddedToken[],
  vocabulary: () => ReadonlyMap<string, number>,
  config: object,
): AddedToken[] {
  const { added_tokens_decoder: decoder = {} } = config as { added_tokens_decoder?: unknown };
  const fail = (problem: string): never => {
    throw new InvalidFileError("tokenizer_config.json", `added_tokens_decoder: ${problem}`);
  };
  if (typeof decoder !== "object" || decoder === null || Array.isArray(decoder))
    return fail(`expected an object but found ${JSON.stringify(decoder)}`);
  const tokens = [...added];
  const places = new Map(added.map(({ content }, place) => [content, place]));
  /** Large, and made for new tokens only. */
  let ids: ReadonlyMap<string, number> | undefined;
  let next = added.reduce((least, { id }) => Math.max(least, id + 1), 0);
  const vocabularyIds = (): ReadonlyMap<string, number> => {
    if (!ids) {
      ids = vocabulary();
      for (const id of ids.values()) next = Math.max(next, id + 1);
    }
    return ids;
  };
  const idOf = (content: string): number => vocabularyIds().get(content) ?? next++;
  const put = (token: Omit<AddedToken, "id">) => {
    const place = places.get(token.content) ?? tokens.length;
    places.set(token.content, place);
    tokens[place] = { ...token, id: tokens[place]?.id ?? idOf(token.content) };
  };
  for (const [key, entry] of Object.entries(decoder).sort(([a], [b]) => Number(a) - Number(b))) {
    const { content } = (entry ?? {}) as { content?: unknown };
    if (typeof content !== "string" || content === "")
      return fail(`expected a token with its content at ${key} but found ${JSON.stringify(entry)}`);
    put({ ...(entry as object), content });
  }
  for (const token of namedTokens(config))
    if (!places.has(token.content) && !vocabularyIds().has(token.content)) put(token);
  return tokens;
}
