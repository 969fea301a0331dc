/**
 * Text to token ids and back, over @huggingface/tokenizers and the two files of a model folder.
 * It adds what that library leaves to its callers: control tokens that users type stay text, decoding never tidies
 * spaces, nothing decodes to "", and wrong ids and wrong files are errors.
 */
import * as tokenizers from "@huggingface/tokenizers";
import { checkIds, checkString } from "../arguments.ts";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import { type AddedToken, AddedTokenMatcher, namedTokens, tokenText, withConfigTokens } from "./added-tokens.ts";
import {
  addByteFallback,
  type DecoderConfig,
  keepByteOrderMarks,
  type LibraryDecoder,
  type LibraryPreTokenizer,
  useUnicodeClasses,
  withoutSpaceDropped,
} from "./library-gaps.ts";
import { type PreTokenizerConfig, TokenBudget, type WatchedPreTokenizer } from "./token-budget.ts";

/** The part of the library that is used, typed here because its own declarations do not resolve under `nodenext`. */
interface Library {
  model: LibraryModel | null;
  readonly decoder: LibraryDecoder | null;
  readonly pre_tokenizer: (WatchedPreTokenizer & LibraryPreTokenizer) | null;
  encode(text: string, options: { add_special_tokens: boolean }): { ids: (number | undefined)[]; tokens: string[] };
  decode(ids: number[], options: { skip_special_tokens: boolean; clean_up_tokenization_spaces: boolean }): string;
  token_to_id(token: string): number | undefined;
}

interface LibraryModel {
  (words: string[]): string[];
  /** Tokens by id; with holes where ids are unused. */
  readonly vocab: (string | undefined)[];
  readonly tokens_to_ids: ReadonlyMap<string, number>;
  readonly unk_token_id: number | undefined;
  /** What a call of the model begins with, before it joins neighbouring unknown tokens. */
  encode(words: string[]): string[];
}

const Library = tokenizers.Tokenizer as unknown as new (file: object, config: object) => Library;

interface TokenizerFile {
  readonly model: {
    readonly type?: string;
    readonly vocab: Record<string, number> | readonly unknown[];
    readonly byte_fallback?: boolean;
  };
  readonly decoder: DecoderConfig | null;
  readonly pre_tokenizer: PreTokenizerConfig | null;
  readonly added_tokens: readonly AddedToken[];
}

export interface EncodeOptions {
  /** Add what the tokenizer puts around a text, such as BOS. Default true; false for a rendered chat template. */
  readonly addSpecialTokens?: boolean | undefined;
  /** Turn the text of a special token into that token. Default true; false for text that users write. */
  readonly allowControlTokens?: boolean | undefined;
  /** Tokens that there is room for; ContextLengthError, without encoding all, when a long text has more. Default: any. */
  readonly contextLength?: number | undefined;
}

export interface DecodeOptions {
  /** Leave special tokens out. Default false. */
  readonly skipSpecialTokens?: boolean | undefined;
}

/** A token that tokenizer_config.json names, such as BOS. */
export interface NamedToken {
  readonly text: string;
  readonly id: number;
}

/** No known vocabulary has a sixteenth of this; ids index an array, so a lie would cost memory. */
const ID_LIMIT = 1 << 24;

const OPTIONAL_PARTS = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };

export class Tokenizer {
  /** One more than the largest id. */
  readonly vocabSize: number;
  readonly bos: NamedToken | null;
  readonly eos: NamedToken | null;
  /** Finds the text of every added token, special or not. */
  readonly addedTokens: AddedTokenMatcher;
  readonly #file: TokenizerFile;
  readonly #config: object;
  readonly #library: Library;
  readonly #specialIds: ReadonlySet<number>;
  /** Id of an added token to its place in the file. */
  readonly #places: ReadonlyMap<number, number>;
  readonly #budget: TokenBudget;
  #plain: Library | undefined;

  /**
   * `file` is the parsed tokenizer.json, `config` the parsed tokenizer_config.json or null.
   * InvalidFileError naming `name` when the file is not a tokenizer that can be used.
   */
  constructor(file: unknown, config: unknown = null, name = "tokenizer.json") {
    this.#config = config !== null && typeof config === "object" ? config : {};
    const checked = checkFile(file, name);
    const added = withConfigTokens(checked.added_tokens, () => idsOf(checked), this.#config);
    this.#file = { ...checked, added_tokens: added };
    try {
      this.#library = new Library(this.#file, this.#config);
    } catch (cause) {
      throw new InvalidFileError(name, `cannot be used as a tokenizer: ${(cause as Error).message}`, { cause });
    }
    const { type, byte_fallback } = this.#file.model;
    if (type === "Unigram" && byte_fallback) addByteFallback(this.#library.model!);
    keepByteOrderMarks(this.#library.decoder);
    useUnicodeClasses(this.#library.pre_tokenizer, this.#file.pre_tokenizer);
    this.vocabSize = this.#library.model!.vocab.length;
    this.addedTokens = new AddedTokenMatcher(this.#file.added_tokens);
    this.#places = new Map(this.#file.added_tokens.map((token, place) => [token.id, place]));
    this.#specialIds = specialIds(this.#file.added_tokens, this.#config);
    const { unk_token_id } = this.#library.model!;
    this.#budget = new TokenBudget(this.#library.model!, type, (id) => id !== unk_token_id && !this.isSpecial(id));
    this.#budget.watch(this.#library.pre_tokenizer, this.#file.pre_tokenizer);
    this.bos = this.#named("bos_token");
    this.eos = this.#named("eos_token");
  }

  /** Token ids of a text. Lone surrogates become U+FFFD. */
  encode(text: string, options: EncodeOptions = {}): number[] {
    const { addSpecialTokens = true, allowControlTokens = true, contextLength = Number.POSITIVE_INFINITY } = options;
    checkString("text", text);
    const wellFormed = text.replace(/\p{Surrogate}/gu, "\uFFFD");
    if (allowControlTokens) {
      // Tokens that a model without unknown token cannot express have no id; Rust drops them too.
      const encode = () => this.#library.encode(wellFormed, { add_special_tokens: addSpecialTokens });
      const { ids } = this.#budget.run(wellFormed, contextLength, encode);
      return ids.filter((id) => id !== undefined);
    }
    const parts = this.addedTokens
      .split(wellFormed)
      .map((part) =>
        typeof part === "number" && this.isSpecial(part)
          ? this.#file.added_tokens[this.#places.get(part)!]!.content
          : part,
      );
    const ids = this.encodeParts(parts, { contextLength });
    if (!addSpecialTokens) return ids;
    const { before, after } = this.#surroundings();
    return [...before, ...ids, ...after];
  }

  /**
   * Ids of a text in which added tokens are given by id: strings are plain text in which no added token is looked for,
   * numbers are ids of added tokens. The result is the one of the whole text encoded at once. Adds no BOS or EOS.
   */
  encodeParts(
    parts: readonly (string | number)[],
    { contextLength = Number.POSITIVE_INFINITY }: Pick<EncodeOptions, "contextLength"> = {},
  ): number[] {
    const text = parts
      .map((part) => (typeof part === "number" ? this.#standIn(part) : part.replace(/\p{Surrogate}/gu, "\uFFFD")))
      .join("");
    const plain = this.#plain ?? this.#makePlain();
    this.#plain = plain;
    const encode = () => plain.encode(text, { add_special_tokens: false });
    const { ids, tokens } = this.#budget.run(text, contextLength, encode);
    const model = this.#library.model!;
    return ids.flatMap((id, i) => {
      if (id === undefined) return [];
      // Some models hold control tokens in their ordinary vocabulary, too; such a match is taken apart.
      const forged = this.#specialIds.has(id) && id !== model.unk_token_id && !isStandIn(tokens[i]!);
      if (!forged) return [id];
      return model([...tokens[i]!]).flatMap((token) => model.tokens_to_ids.get(token) ?? []);
    });
  }

  /** Text of token ids; InvalidArgumentError for ids outside 0 .. vocabSize-1. */
  decode(ids: ArrayLike<number>, options: DecodeOptions = {}): string {
    checkIds("ids", ids);
    const vocab = this.#library.model!.vocab;
    const kept: number[] = [];
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i]!;
      if (!Number.isInteger(id) || id < 0 || id >= this.vocabSize)
        throw new InvalidArgumentError(
          `decode: expected token ids from 0 to ${this.vocabSize - 1} but found ${id} at index ${i}`,
        );
      if (options.skipSpecialTokens && this.isSpecial(id)) continue;
      if (vocab[id] !== undefined) kept.push(id);
    }
    if (kept.length === 0) return "";
    return this.#library.decode(kept, { skip_special_tokens: false, clean_up_tokenization_spaces: false });
  }

  /** Whether an id is a control token, which `skipSpecialTokens` leaves out and users cannot type. */
  isSpecial(id: number): boolean {
    return this.#specialIds.has(id);
  }

  /** Id of a token as the vocabulary spells it, undefined when there is none. */
  tokenToId(token: string): number | undefined {
    return this.#library.token_to_id(token);
  }

  #named(key: string): NamedToken | null {
    const text = tokenText((this.#config as Record<string, unknown>)[key]);
    const id = text === null ? undefined : this.tokenToId(text);
    return text === null || id === undefined ? null : { text, id };
  }

  /** The ids that the tokenizer puts around a text, found from a probe. */
  #surroundings(): { before: number[]; after: number[] } {
    const bare = this.encode("a", { addSpecialTokens: false });
    const full = this.encode("a");
    const start = full.findIndex((_, i) => bare.every((id, j) => full[i + j] === id));
    return { before: full.slice(0, start), after: full.slice(start + bare.length) };
  }

  /**
   * The same tokenizer with every added token renamed to a stand-in that no text can hold. It shares the model, so
   * it costs little: its own is an empty one.
   */
  #makePlain(): Library {
    const renamed = this.#file.added_tokens.map((token) => ({
      ...token,
      content: this.#standIn(token.id),
      normalized: false,
    }));
    const emptyModel = { type: "BPE", vocab: {}, merges: [] };
    const plain = new Library({ ...this.#file, model: emptyModel, added_tokens: renamed }, this.#config);
    plain.model = this.#library.model;
    useUnicodeClasses(plain.pre_tokenizer, this.#file.pre_tokenizer);
    this.#budget.watch(plain.pre_tokenizer, this.#file.pre_tokenizer);
    return plain;
  }

  /** Two high surrogates, which well-formed text never has in a row: the token's place in base 1024. */
  #standIn(addedId: number): string {
    const place = this.#places.get(addedId);
    if (place === undefined)
      throw new InvalidArgumentError(`encodeParts: expected the id of an added token but found ${addedId}`);
    return String.fromCharCode(0xd800 + (place >> 10), 0xd800 + (place & 1023));
  }
}

function isStandIn(token: string): boolean {
  return /^[\uD800-\uDBFF]{2}$/.test(token);
}

/** Added tokens that are special by themselves or because the configuration names them. */
function specialIds(added: readonly AddedToken[], config: object): Set<number> {
  const named = namedTokens(config).map(({ content }) => content);
  return new Set(added.filter((token) => token.special || named.includes(token.content)).map((token) => token.id));
}

/** Ids of the model's tokens: a list has them in their order, with scores. */
function idsOf({ model: { vocab } }: TokenizerFile): ReadonlyMap<string, number> {
  if (!Array.isArray(vocab)) return new Map(Object.entries(vocab as Record<string, number>));
  return new Map(vocab.map((entry, id) => [Array.isArray(entry) ? String(entry[0]) : "", id]));
}

/** The file with its optional parts filled in; InvalidFileError when what ids depend on is missing or out of range. */
function checkFile(file: unknown, name: string): TokenizerFile {
  const parts = { added_tokens: [], ...OPTIONAL_PARTS, ...(file as Partial<TokenizerFile> | null) };
  const vocab = parts.model?.vocab;
  if (vocab === null || typeof vocab !== "object")
    throw new InvalidFileError(name, `expected a tokenizer.json with "model.vocab" but found none`);
  if (!Array.isArray(parts.added_tokens))
    throw new InvalidFileError(name, `expected "added_tokens" to be a list but found ${typeof parts.added_tokens}`);
  const checkId = (token: unknown, id: unknown) => {
    if (typeof token !== "string" || !Number.isInteger(id) || (id as number) < 0 || (id as number) >= ID_LIMIT)
      throw new InvalidFileError(
        name,
        `token ${JSON.stringify(token)}: expected an id from 0 to ${ID_LIMIT - 1} but found ${id}`,
      );
  };
  if (!Array.isArray(vocab))
    for (const token of Object.keys(vocab)) checkId(token, (vocab as Record<string, number>)[token]);
  for (const token of parts.added_tokens) checkId(token?.content, token?.id);
  return { ...parts, decoder: withoutSpaceDropped(parts.decoder) } as TokenizerFile;
}
