/**
 * Encodes text to token ids and decodes it by tokenizer.json and tokenizer_config.json, as Rust's tokenizers and transformers
 * do. In addition, control tokens that users type stay text, and the work that an untrusted file may cause is limited.
 */
import { checkIds, checkOptions, checkString, checkWhole, shown } from "../arguments.ts";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import {
  type AddedToken,
  AddedTokenMatcher,
  namedTokens,
  readAddedTokens,
  tokenText,
  withConfigTokens,
} from "./added-tokens.ts";
import { completeLimits } from "./limits.ts";
import { TokenBudget } from "./token-budget.ts";
import { AddedVocabulary, type Protection } from "./tokenizer/added-vocabulary.ts";
import { type Decoder, isByteLevelDecoder, readDecoder } from "./tokenizer/decoders.ts";
import { Field } from "./tokenizer/field.ts";
import type { Model } from "./tokenizer/model.ts";
import { readModel } from "./tokenizer/models.ts";
import { type Normalizer, readNormalizer } from "./tokenizer/normalizers.ts";
import { type Padding, pad, readPadding } from "./tokenizer/padding.ts";
import { type PostProcessor, readPostProcessor } from "./tokenizer/post-processors.ts";
import { type PreTokenizer, readPreTokenizer } from "./tokenizer/pre-tokenizers.ts";
import { readTruncation, type Truncation, truncate } from "./tokenizer/truncation.ts";
import { DEFAULT_LIMITS, type TokenizerLimits, Work } from "./tokenizer/work-limit.ts";

/** Options of `Tokenizer.encode`. */
export interface EncodeTextOptions {
  /** Add the special tokens around a text, such as BOS. Default true; false for a rendered chat template. */
  readonly addSpecialTokens?: boolean | undefined;
  /** Turn the text of a special token into that token. Default true; false for text that users write. */
  readonly allowControlTokens?: boolean | undefined;
  /** Context length; ContextLengthError, without encoding all, when a long text has more tokens. Default: no limit. */
  readonly contextLength?: number | undefined;
  /** A second text, put after the first as the tokenizer's post-processor defines for pairs. Default: none. */
  readonly pair?: string | undefined;
  /**
   * Truncate to this many ids, special tokens around texts included, whatever the section `truncation` says: the longer of two
   * texts loses its last ids. Default: no.
   */
  readonly maxTokens?: number | undefined;
  /** Truncate as the section `truncation` of tokenizer.json says, if it has one. Default true. */
  readonly truncation?: boolean | undefined;
  /** Pad as the section `padding` of tokenizer.json says, if it has one. Default true. */
  readonly padding?: boolean | undefined;
}

/** Ids of two texts. */
export interface EncodedPair {
  /** Ids of both texts and of the special tokens around them. */
  readonly ids: number[];
  /** Index of the first id of the second text. */
  readonly secondFrom: number;
}

/** Options of `Tokenizer.decode`. */
export interface DecodeOptions {
  /** Leave special tokens out. Default false. */
  readonly skipSpecialTokens?: boolean | undefined;
  /**
   * Decode as for a stream: of byte tokens that are not valid UTF-8, only the invalid bytes become U+FFFD. Default false: all
   * bytes of the run do, as in Rust's library.
   */
  readonly stream?: boolean | undefined;
}

/** Options of `encode` for texts that must stay as they are, such as prompts. */
export const WHOLE_TEXT = { truncation: false, padding: false } as const;

/** A token that tokenizer_config.json names, such as BOS. */
export interface NamedToken {
  /** Text of the token. */
  readonly text: string;
  /** Id of the token. */
  readonly id: number;
}

/**
 * A model's tokenizer, made from the contents of its tokenizer.json and tokenizer_config.json, as in `LanguageModel.tokenizer`.
 */
export class Tokenizer {
  /** One more than the largest id. */
  readonly vocabSize: number;
  /** BOS, the token that begins a text; null when tokenizer_config.json names none. */
  readonly bos: NamedToken | null;
  /** EOS, the token that ends a text; null when tokenizer_config.json names none. */
  readonly eos: NamedToken | null;
  /** Truncation of `encode` by tokenizer.json; null for none. Generation never truncates a prompt. */
  readonly truncation: Truncation | null;
  /** Padding of `encode` by tokenizer.json; null for none. Generation never pads. */
  readonly padding: Padding | null;
  /** Whether tokens are spelled in GPT-2's alphabet, a character for each byte. */
  readonly isByteLevel: boolean;
  /** Finds the text of every added token, special or not. */
  readonly addedTokens: AddedTokenMatcher;
  readonly #name: string;
  readonly #model: Model;
  readonly #normalizer: Normalizer | null;
  readonly #preTokenizer: PreTokenizer | null;
  readonly #postProcessor: PostProcessor | null;
  readonly #decoder: Decoder | null;
  readonly #streamDecoder: Decoder | null;
  readonly #added: AddedVocabulary;
  readonly #addedIds: ReadonlyMap<string, number>;
  readonly #specialIds: ReadonlySet<number>;
  /** Texts of added tokens by id. */
  readonly #addedTexts: ReadonlyMap<number, string>;
  #limits: TokenizerLimits;

  /**
   * `file` is the parsed tokenizer.json, `config` the parsed tokenizer_config.json or null, `limits` the work that a call may
   * do. InvalidFileError or UnsupportedError, naming `name` and the field, when the file is invalid or uses an unsupported
   * feature.
   */
  constructor(file: unknown, config: unknown = null, name = "tokenizer.json", limits: Partial<TokenizerLimits> = {}) {
    this.#name = name;
    this.#limits = completeLimits(limits, DEFAULT_LIMITS);
    if (typeof (file as { model?: { vocab?: unknown } } | null)?.model?.vocab !== "object")
      throw new InvalidFileError(name, `expected a tokenizer.json with "model.vocab" but found none`);
    const root = new Field(name, "", file);
    const part = <T>(key: string, read: (field: Field) => T): T | null => {
      const field = root.optional(key);
      return field && read(field);
    };
    this.#model = readModel(root.get("model"));
    this.#normalizer = part("normalizer", readNormalizer);
    this.#preTokenizer = part("pre_tokenizer", readPreTokenizer);
    this.#postProcessor = part("post_processor", readPostProcessor);
    this.truncation = part("truncation", readTruncation);
    this.padding = part("padding", readPadding);
    this.#decoder = part("decoder", (field) => readDecoder(field, "replaceAll"));
    this.isByteLevel = part("decoder", isByteLevelDecoder) ?? false;
    this.#streamDecoder = part("decoder", (field) => readDecoder(field, "replaceWrong"));
    const settings = config !== null && typeof config === "object" ? config : {};
    const { vocabulary } = this.#model;
    const listed = part("added_tokens", (field) => readAddedTokens(field, vocabulary)) ?? [];
    const added = withConfigTokens(listed, vocabulary, settings);
    const length = added.reduce((sum, { content }) => sum + content.length, 0);
    this.#added = new AddedVocabulary(added, this.#normalizer, new Work(name, this.#limits, length));
    this.#addedIds = new Map(added.map(({ content, id }) => [content, id]));
    this.#specialIds = specialIds(added, settings);
    const makeWork = (length: number) => new Work(name, this.#limits, length);
    this.addedTokens = new AddedTokenMatcher(added, this.#added.normalizedForms, makeWork);
    const { normalizedForms } = this.#added;
    this.#addedTexts = new Map(added.map(({ id, content }) => [id, normalizedForms.get(id) ?? content]));
    this.vocabSize = added.reduce((limit, { id }) => Math.max(limit, id + 1), vocabulary.limit);
    this.bos = this.#named(settings, "bos_token");
    this.eos = this.#named(settings, "eos_token");
  }

  /** Limits on the work of one call; raise them for a trusted file, or lower them for a server that must answer sooner. */
  get limits(): TokenizerLimits {
    return this.#limits;
  }

  set limits(limits: Partial<TokenizerLimits>) {
    this.#limits = completeLimits(limits, DEFAULT_LIMITS);
  }

  /**
   * Token ids of a text, or of a pair, as Rust's library gives them: truncated and padded where tokenizer.json asks for it and
   * the options do not turn it off. Lone surrogates become U+FFFD.
   *
   * @throws LimitError when the tokenizer's patterns and rules take more than `limits` allow.
   * @throws InvalidArgumentError when the texts cannot be truncated as tokenizer.json asks.
   */
  encode(text: string, options: EncodeTextOptions = {}): number[] {
    return this.#encodeAssets(text, options).ids;
  }

  /**
   * Token ids of a pair of texts, as `encode` gives them, and the index of the second one's first id. Errors are those of
   * `encode`.
   */
  encodePair(first: string, second: string, options: EncodeTextOptions = {}): EncodedPair {
    return this.#encodeAssets(first, { ...options, pair: second });
  }

  #encodeAssets(text: string, options: EncodeTextOptions): EncodedPair {
    checkOptions(options);
    const { addSpecialTokens = true, allowControlTokens = true, contextLength = Number.POSITIVE_INFINITY } = options;
    checkString("text", text);
    if (options.maxTokens !== undefined) checkWhole("maxTokens", options.maxTokens, 0);
    const texts = options.pair === undefined ? [text] : [text, options.pair];
    const truncation =
      options.maxTokens !== undefined
        ? ({ maxLength: options.maxTokens, strategy: "LongestFirst", direction: "Right", stride: 0 } as const)
        : options.truncation === false
          ? null
          : this.truncation;
    const most = truncation && truncation.maxLength <= contextLength ? Number.POSITIVE_INFINITY : contextLength;
    const protection = allowControlTokens ? null : { skips: (id: number) => this.isSpecial(id), mark: null };
    const length = texts.reduce((sum, { length }) => sum + length, 0);
    const work = new Work(this.#name, this.#limits, length);
    const lists = texts.map((one) => this.#encode(wellFormed(one), protection, most, work));
    const kept = truncation ? this.#truncate(lists, truncation, addSpecialTokens) : lists;
    const pieces = this.#postProcessor?.process(kept, addSpecialTokens, work) ?? kept;
    const ids = pieces.flat();
    // Some post-processors keep the second text's list among others, some return one list for each text.
    const place = pieces.indexOf(kept[1]!);
    const before = pieces.slice(0, place < 0 ? 1 : place);
    const secondFrom = before.reduce((sum, { length }) => sum + length, 0);
    return { ids: this.padding && options.padding !== false ? pad(ids, this.padding, work) : ids, secondFrom };
  }

  /**
   * Encodes a text in which `mark`, a character that is not part of it, stands inside whatever must not become an added token.
   * Adds no BOS or EOS.
   */
  encodeMarked(
    text: string,
    mark: string,
    { contextLength = Number.POSITIVE_INFINITY }: EncodeTextOptions = {},
  ): number[] {
    const work = new Work(this.#name, this.#limits, text.length);
    return this.#encode(wellFormed(text), { skips: () => false, mark }, contextLength, work);
  }

  /** Decodes token ids. InvalidArgumentError for ids outside 0 .. vocabSize-1. */
  decode(ids: ArrayLike<number>, options: DecodeOptions = {}): string {
    checkIds("ids", ids);
    checkOptions(options);
    const tokens: string[] = [];
    let length = 0;
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i]!;
      if (!Number.isInteger(id) || id < 0 || id >= this.vocabSize)
        throw new InvalidArgumentError(
          `decode: expected token ids from 0 to ${this.vocabSize - 1} but found ${shown(id)} at index ${i}`,
        );
      const token = this.idToToken(id);
      if (token === undefined || (options.skipSpecialTokens && this.isSpecial(id))) continue;
      tokens.push(token);
      length += token.length;
    }
    if (tokens.length === 0) return "";
    const decoder = options.stream ? this.#streamDecoder : this.#decoder;
    return withBytes(decoder ? decoder(tokens, new Work(this.#name, this.#limits, length)).join("") : tokens.join(" "));
  }

  /** Whether an id is a special token, which `skipSpecialTokens` leaves out and users cannot type. */
  isSpecial(id: number): boolean {
    return this.#specialIds.has(id);
  }

  /** Id of a token as the vocabulary spells it, undefined when there is none. */
  tokenToId(token: string): number | undefined {
    return this.#addedIds.get(token) ?? this.#model.vocabulary.ids.get(token);
  }

  /** A token as the vocabulary spells it, undefined where the id is unused. */
  idToToken(id: number): string | undefined {
    return this.#addedTexts.get(id) ?? this.#model.vocabulary.token(id);
  }

  /** A text as the tokenizer normalizes it. */
  normalize(text: string): string {
    const work = new Work(this.#name, this.#limits, text.length);
    return this.#added.normalize(wellFormed(text), work);
  }

  #truncate(lists: number[][], truncation: Truncation, addSpecialTokens: boolean): number[][] {
    const added = addSpecialTokens ? (this.#postProcessor?.added(lists.length as 1 | 2) ?? 0) : 0;
    // In Rust's library this difference wraps around and nothing is truncated; we match its ids.
    if (added > truncation.maxLength) return lists;
    return truncate(lists, truncation, truncation.maxLength - added, this.#name);
  }

  #named(config: object, key: string): NamedToken | null {
    const text = tokenText((config as Record<string, unknown>)[key]);
    const id = text === null ? undefined : this.tokenToId(text);
    return text === null || id === undefined ? null : { text, id };
  }

  /**
   * Encodes without special tokens around the text. With a protection, special tokens that the model itself finds are split up.
   */
  #encode(text: string, protection: Protection | null, contextLength: number, work: Work): number[] {
    const budget = new TokenBudget(this.#model, text.length, contextLength);
    const ids: number[] = [];
    for (const part of this.#added.split(text, protection ?? UNPROTECTED, work)) {
      if (typeof part === "number") {
        ids.push(part);
        continue;
      }
      const words = this.#preTokenizer ? this.#preTokenizer([part], work) : [part];
      for (const { text: word } of words) {
        budget.checkWord(word, ids.length);
        const before = ids.length;
        this.#model.encode(word, work, ids);
        if (protection) this.#takeApart(ids, before, work);
        budget.check(ids.length);
      }
    }
    return ids;
  }

  /**
   * Some models also have control tokens in their ordinary vocabulary: from an index on, splits such ids into their characters'
   * ids.
   */
  #takeApart(ids: number[], from: number, work: Work): void {
    const isForged = (id: number) => id !== this.#model.unknownId && this.isSpecial(id);
    if (!ids.some((id, i) => i >= from && isForged(id))) return;
    for (const id of ids.splice(from)) {
      if (!isForged(id)) ids.push(id);
      else for (const letter of this.#model.vocabulary.token(id) ?? "") this.#model.encode(letter, work, ids);
    }
  }
}

const UNPROTECTED: Protection = { skips: () => false, mark: null };

function wellFormed(text: string): string {
  return /\p{Surrogate}/u.test(text) ? text.replace(/\p{Surrogate}/gu, "\uFFFD") : text;
}

/** Replaces U+DC80 to U+DCFF, which stand for the bytes of byte tokens, by their UTF-8 text, invalid bytes by U+FFFD. */
function withBytes(text: string): string {
  return text.replace(/[\uDC80-\uDCFF]+/gu, (run) => bytes.decode(Uint8Array.from(run, byteOf)));
}

const bytes = new TextDecoder("utf-8", { ignoreBOM: true });
const byteOf = (unit: string) => unit.charCodeAt(0) & 0xff;

/** Ids of added tokens that are special by their own flag or because the configuration names them. */
function specialIds(added: readonly AddedToken[], config: object): Set<number> {
  const named = new Set(namedTokens(config).map(({ content }) => content));
  return new Set(added.filter((token) => token.special || named.has(token.content)).map((token) => token.id));
}
