/** Added tokens (control tokens and the like): read from tokenizer.json and tokenizer_config.json, and matched in a string. */
import { shown } from "../arguments.ts";
import { InvalidFileError } from "../errors.ts";
import type { Field } from "./tokenizer/field.ts";
import { Trie } from "./tokenizer/pair-table.ts";
import type { Vocabulary } from "./tokenizer/vocabulary.ts";
import type { Work } from "./tokenizer/work-limit.ts";

/** An entry of `added_tokens` in tokenizer.json. */
export interface AddedToken {
  /** Id of the token. */
  readonly id: number;
  /** Text that becomes the token. */
  readonly content: string;
  /** Whether the token is special: left out of decoded text that skips special tokens, and never typed by users. */
  readonly special?: boolean | undefined;
  /** Whether the token matches only where no letter or digit is next to it. */
  readonly single_word?: boolean | undefined;
  /** Whether white space before the token belongs to it. */
  readonly lstrip?: boolean | undefined;
  /** Whether white space after the token belongs to it. */
  readonly rstrip?: boolean | undefined;
  /** Whether the token's content is normalized and matched in the normalized text. */
  readonly normalized?: boolean | undefined;
}

/** Ids are unsigned integers of 32 bits in Rust's library. */
const ID_MAX = 2 ** 32 - 1;

const FLAGS = ["special", "single_word", "lstrip", "rstrip", "normalized"] as const;

/**
 * Reads the list `added_tokens`. A token's id is its id in the vocabulary, or else the next free one after it, whatever the
 * list says: so does Rust's library.
 */
export function readAddedTokens(field: Field, { ids, size }: Vocabulary): AddedToken[] {
  const tokens = new Map<string, AddedToken>();
  let next = size;
  for (const item of field.items()) {
    const content = item.get("content").text();
    const given = item.get("id").value;
    if (!Number.isInteger(given) || (given as number) < 0 || (given as number) > ID_MAX)
      throw item.invalid(
        `token ${JSON.stringify(content)}: expected an id from 0 to ${ID_MAX} but found ${shown(given)}`,
      );
    const flags = Object.fromEntries(FLAGS.map((flag) => [flag, item.optional(flag)?.boolean()]));
    if (content === "") continue;
    const id = tokens.get(content)?.id ?? ids.get(content) ?? next++;
    tokens.set(content, { ...flags, normalized: flags.normalized ?? !flags.special, content, id });
  }
  return [...tokens.values()];
}

/** Finds the text of added tokens in chat templates and messages. */
export class AddedTokenMatcher {
  readonly #tokens: readonly AddedToken[];
  /** Trie of the tokens' contents and of their normalized forms; a value is the token's index in `#tokens`. */
  readonly #contents: Trie;
  readonly #forms: Trie | null;
  readonly #allForms: ReadonlyMap<number, string>;
  readonly #makeWork: (length: number) => Work;

  /** `forms` maps the ids of normalized tokens to their normalized contents. `makeWork` begins the work limit of a call. */
  constructor(tokens: readonly AddedToken[], forms: ReadonlyMap<number, string>, makeWork: (length: number) => Work) {
    this.#tokens = tokens;
    this.#allForms = forms;
    const contents = tokens.map(({ content }, place) => [content, place] as const);
    const normalized = tokens.flatMap(({ id }, place) => (forms.get(id) ? [[forms.get(id)!, place] as const] : []));
    this.#contents = new Trie([...normalized, ...contents]);
    this.#forms = normalized.length > 0 ? new Trie(normalized) : null;
    this.#makeWork = makeWork;
  }

  /** Ids of the tokens whose text occurs in a text, the longest match at each place. */
  idsIn(text: string): Set<number> {
    const ids = new Set<number>();
    for (let start = 0; start < text.length; start++) {
      let longest = -1;
      let end = start;
      for (let node = 0, at = start; at < text.length; ) {
        node = this.#contents.child(node, text.charCodeAt(at++));
        if (node < 0) break;
        if (this.#contents.value(node) < 0) continue;
        longest = this.#contents.value(node);
        end = at;
      }
      if (longest < 0) continue;
      ids.add(this.#tokens[longest]!.id);
      start = end - 1;
    }
    return ids;
  }

  /**
   * Offsets at which tokens that `counts` accepts begin, ascending, overlapping ones included. A token that the end of the text
   * cuts off (white space apart) is included, because what follows the text might complete it.
   */
  starts(text: string, counts: (id: number) => boolean): number[] {
    return this.#starts(text, this.#contents, counts);
  }

  /**
   * Whether a normalized text contains the normalized form of a token that `counts` accepts, or ends with the beginning of one.
   */
  isSpelledIn(normalizedText: () => string, counts: (id: number) => boolean): boolean {
    return this.#forms !== null && this.#starts(normalizedText(), this.#forms, counts).length > 0;
  }

  #starts(text: string, trie: Trie, counts: (id: number) => boolean): number[] {
    const work = this.#makeWork(text.length);
    const end = text.trimEnd().length;
    const starts: number[] = [];
    let steps = 0;
    for (let start = 0; start < text.length; start++) {
      let node = 0;
      let at = start;
      let found = false;
      while (at < text.length && !found) {
        node = trie.child(node, text.charCodeAt(at++));
        if (node < 0) break;
        const place = trie.value(node);
        found =
          (place >= 0 && counts(this.#tokens[place]!.id)) ||
          (at === end && this.#begins(text.slice(start, end), counts));
      }
      if (found) starts.push(start);
      steps += at - start;
      if (steps > 4096) {
        work.add(steps);
        steps = 0;
      }
    }
    return starts;
  }

  #begins(text: string, counts: (id: number) => boolean): boolean {
    return this.#tokens.some(
      ({ id, content }) => counts(id) && (content.startsWith(text) || this.#allForms.get(id)?.startsWith(text)),
    );
  }
}

/**
 * Keys of tokenizer_config.json that name special tokens, in the order in which transformers adds those that are not yet known.
 */
const NAMED_TOKENS = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/** The text of a token in tokenizer_config.json: a string, or an object with `content`. */
export function tokenText(value: unknown): string | null {
  if (typeof value === "string") return value;
  const content = (value as { content?: unknown } | null | undefined)?.content;
  return typeof content === "string" ? content : null;
}

/** Tokens that tokenizer_config.json names as special, under their own keys or in its lists of extra special tokens. */
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
 * Adds the tokens of tokenizer_config.json to those of tokenizer.json as transformers does: first those of
 * `added_tokens_decoder`, ordered by the ids given there, whose flags replace those of a known token; then those that are only
 * named. A new token gets its id in the vocabulary, or the next free one. Unlike in transformers, words of the vocabulary that
 * are only named (some padding tokens) stay ordinary. InvalidFileError for entries that are not tokens.
 */
export function withConfigTokens(
  added: readonly AddedToken[],
  { ids, limit }: Pick<Vocabulary, "ids" | "limit">,
  config: object,
): AddedToken[] {
  const { added_tokens_decoder: decoder = {} } = config as { added_tokens_decoder?: unknown };
  const fail = (problem: string): never => {
    throw new InvalidFileError("tokenizer_config.json", `added_tokens_decoder: ${problem}`);
  };
  if (typeof decoder !== "object" || decoder === null || Array.isArray(decoder))
    return fail(`expected an object but found ${shown(decoder)}`);
  const tokens = [...added];
  const places = new Map(added.map(({ content }, place) => [content, place]));
  let next = added.reduce((least, { id }) => Math.max(least, id + 1), limit);
  const idOf = (content: string): number => ids.get(content) ?? next++;
  const put = (token: Omit<AddedToken, "id">) => {
    const place = places.get(token.content) ?? tokens.length;
    places.set(token.content, place);
    tokens[place] = { ...token, id: tokens[place]?.id ?? idOf(token.content) };
  };
  for (const [key, entry] of Object.entries(decoder).sort(([a], [b]) => Number(a) - Number(b))) {
    const { content } = (entry ?? {}) as { content?: unknown };
    if (typeof content !== "string" || content === "")
      return fail(`expected a token with its content at ${key} but found ${shown(entry)}`);
    const { special = false, normalized = !special } = entry as { special?: boolean; normalized?: boolean };
    put({ ...(entry as object), content, special, normalized });
  }
  for (const token of namedTokens(config))
    if (!places.has(token.content) && ids.get(token.content) === undefined) put(token);
  return tokens;
}
