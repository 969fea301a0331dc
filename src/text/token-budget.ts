/** Ends the encoding of a long text as soon as it is sure to have more tokens than its context has room for. */
import { ContextLengthError } from "../errors.ts";

/** A model of @huggingface/tokenizers, as far as it is watched. */
interface WatchedModel {
  /** Tokens of words, one word's after the other's. */
  encode(words: string[]): string[];
  readonly tokens_to_ids: ReadonlyMap<string, number>;
  readonly end_of_word_suffix?: string | null;
  readonly continuing_subword_suffix?: string | null;
}

/** A pre-tokenizer of the library: the words of a text. */
export interface WatchedPreTokenizer {
  /** What a call of it does. */
  _call(text: string, options?: unknown): string[];
}

/** An entry of `pre_tokenizer` in tokenizer.json, as far as it is looked at. */
export interface PreTokenizerConfig {
  readonly type?: unknown;
  readonly behavior?: unknown;
  readonly invert?: unknown;
  readonly pretokenizers?: readonly PreTokenizerConfig[];
}

/** UTF-16 units up to which a text is encoded to its end, so that the error can say how many tokens it has. */
const COUNTED_LENGTH = 1 << 16;

/** `tokens`: how many they are, in words. */
export function promptTooLong(tokens: string, contextLength: number): ContextLengthError {
  return new ContextLengthError(
    `prompt: ${tokens} do not fit the context length of ${contextLength}; ` +
      "shorten the prompt or export the program for a longer context",
  );
}

export class TokenBudget {
  readonly #model: WatchedModel;
  readonly #isCounted: (id: number) => boolean;
  /** Whether words are made of tokens of the vocabulary wherever their characters are. */
  readonly #hasBound: boolean;
  #longestToken: number | undefined;
  #contextLength = Number.POSITIVE_INFINITY;
  #count = 0;

  /**
   * Watches a model of a `type` of tokenizer.json. `isCounted`: whether a token is one of the result for sure; not so
   * unknown ones, which may be joined.
   */
  constructor(model: WatchedModel, type: string | undefined, isCounted: (id: number) => boolean) {
    this.#model = model;
    this.#isCounted = isCounted;
    const hasSuffix = model.end_of_word_suffix || model.continuing_subword_suffix;
    this.#hasBound = (type === "BPE" || type === "Unigram") && !hasSuffix;
    const encode = model.encode.bind(model);
    model.encode = (words) =>
      this.#contextLength === Number.POSITIVE_INFINITY ? encode(words) : this.#take(words, encode);
  }

  /** `encode`, which encodes `text`; ContextLengthError, early, for more tokens than `contextLength`. */
  run<R>(text: string, contextLength: number, encode: () => R): R {
    if (text.length <= COUNTED_LENGTH) return encode();
    this.#contextLength = contextLength;
    this.#count = 0;
    try {
      return encode();
    } finally {
      this.#contextLength = Number.POSITIVE_INFINITY;
    }
  }

  /** Texts that come to a pre-tokenizer of `config` are watched before they are cut into words. */
  watch(preTokenizer: WatchedPreTokenizer | null, config: PreTokenizerConfig | null): void {
    if (!preTokenizer || !this.#hasBound || !givesAllBytes(config)) return;
    const cut = preTokenizer._call.bind(preTokenizer);
    if (!cut(ALL_BYTES).every((word) => [...word].every((byte) => this.#isKnown(byte)))) return;
    preTokenizer._call = (text, options) => {
      if (text.length > this.#enough) this.#check(text.length / this.#longest);
      return cut(text, options);
    };
  }

  #take(words: string[], encode: (words: string[]) => string[]): string[] {
    const tokens: string[] = [];
    for (const word of words) {
      this.#check(this.#leastTokens(word));
      for (const token of encode([word])) {
        tokens.push(token);
        if (this.#isKnown(token)) this.#count++;
      }
      this.#check(0);
    }
    return tokens;
  }

  #check(more: number): void {
    const length = this.#contextLength;
    if (this.#count + more > length) throw promptTooLong(`more than ${length} tokens`, length);
  }

  /** UTF-16 units of the longest token. */
  get #longest(): number {
    this.#longestToken ??= longestOf(this.#model.tokens_to_ids.keys());
    return this.#longestToken;
  }

  /** UTF-16 units of known characters that are surely too many when there are more. */
  get #enough(): number {
    return (this.#contextLength - this.#count) * this.#longest;
  }

  /** As if all known characters were in tokens of the greatest length. Merges make tokens of the vocabulary only. */
  #leastTokens(word: string): number {
    const enough = this.#enough;
    if (!this.#hasBound || word.length <= enough) return 0;
    let units = 0;
    for (const character of word) {
      if (this.#isKnown(character)) units += character.length;
      if (units > enough) break;
    }
    return units / this.#longest;
  }

  #isKnown(token: string): boolean {
    const id = this.#model.tokens_to_ids.get(token);
    return id !== undefined && this.#isCounted(id);
  }
}

/** UTF-16 units of the longest text. */
function longestOf(texts: Iterable<string>): number {
  let longest = 1;
  for (const { length } of texts) longest = Math.max(longest, length);
  return longest;
}

/** Characters whose UTF-8 has each byte that there is in any. */
const ALL_BYTES = String.fromCodePoint(
  ...Array.from({ length: 0x800 }, (_, code) => code),
  ...Array.from({ length: 16 }, (_, lead) => Math.max(0x800, lead << 12)),
  ...[0x10000, 0x40000, 0x80000, 0xc0000, 0x100000],
);

/** Whether words have a character for each byte of a text. */
function givesAllBytes(config: PreTokenizerConfig | null): boolean {
  const parts = config?.type === "Sequence" ? (config.pretokenizers ?? []) : [config];
  const keepsAll = (part: PreTokenizerConfig | null) =>
    part?.type === "Split" && !part.invert && `${part.behavior}`.toLowerCase() !== "removed";
  return parts.at(-1)?.type === "ByteLevel" && parts.slice(0, -1).every(keepsAll);
}
