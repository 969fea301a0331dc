/** What Rust's tokenizers does and @huggingface/tokenizers does not, made good on the library's own objects. */
import type { PreTokenizerConfig } from "./token-budget.ts";

/** A model of the library as far as it is mended. */
interface Model {
  encode(words: string[]): string[];
  readonly tokens_to_ids: ReadonlyMap<string, number>;
}

/** A decoder of the library as far as it is mended. */
export interface LibraryDecoder {
  text_decoder?: TextDecoder;
  readonly decoders?: readonly LibraryDecoder[];
}

/** An entry of `decoder` in tokenizer.json, as far as it is used here. */
export interface DecoderConfig {
  readonly type?: unknown;
  readonly replacement?: unknown;
  readonly prepend_scheme?: unknown;
  readonly decoders?: readonly DecoderConfig[];
}

/** A pre-tokenizer of the library as far as it is mended. */
export interface LibraryPreTokenizer {
  pattern?: RegExp;
  pre_tokenize_text?(text: string): string[];
  readonly tokenizers?: readonly LibraryPreTokenizer[];
}

const SPACE = "\\p{White_Space}";
const WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200C\\u200D";
const PUNCTUATION = "\\p{P}\\u0021-\\u002F\\u003A-\\u0040\\u005B-\\u0060\\u007B-\\u007E";
const gpt2 = new RegExp(
  `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|${SPACE}+(?!\\P{White_Space})|${SPACE}+`,
  "gu",
);
const words = new Map<unknown, RegExp>([
  ["Whitespace", new RegExp(`[${WORD}]+|[^${WORD}${SPACE}]+`, "gu")],
  ["WhitespaceSplit", new RegExp(`[^${SPACE}]+`, "gu")],
  ["BertPreTokenizer", new RegExp(`[^${SPACE}${PUNCTUATION}]+|[${PUNCTUATION}]`, "gu")],
]);

/**
 * Words and white space are Unicode's. The library has JavaScript's, where U+FEFF is white space and U+0085 is not, and
 * where "é" is no part of a word.
 */
export function useUnicodeClasses(preTokenizer: LibraryPreTokenizer | null, config: PreTokenizerConfig | null): void {
  if (!preTokenizer || !config) return;
  const pattern = words.get(config.type);
  if (pattern) preTokenizer.pre_tokenize_text = (text) => text.match(pattern) ?? [];
  if (config.type === "ByteLevel") preTokenizer.pattern = gpt2;
  for (const [i, part] of (preTokenizer.tokenizers ?? []).entries())
    useUnicodeClasses(part, config.pretokenizers?.[i] ?? null);
}

/** Unigram models with `byte_fallback`: characters without a token become the tokens of their bytes, where all exist. */
export function addByteFallback(model: Model): void {
  const encode = model.encode.bind(model);
  const utf8 = new TextEncoder();
  const bytesOf = (piece: string) =>
    Array.from(utf8.encode(piece), (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  model.encode = (words) =>
    encode(words).flatMap((piece) => {
      if (model.tokens_to_ids.has(piece)) return [piece];
      const bytes = bytesOf(piece);
      return bytes.every((byte) => model.tokens_to_ids.has(byte)) ? bytes : [piece];
    });
}

/** Byte tokens of U+FEFF decode to it; the library's decoder of bytes takes it for a byte order mark and drops it. */
export function keepByteOrderMarks(decoder: LibraryDecoder | null): void {
  if (decoder?.text_decoder) decoder.text_decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  for (const part of decoder?.decoders ?? []) keepByteOrderMarks(part);
}

/** A Metaspace decoder that never had a space put before a text drops none: the library would drop the first. */
export function withoutSpaceDropped(config: DecoderConfig | null): DecoderConfig | null {
  if (Array.isArray(config?.decoders))
    return { ...config, decoders: config.decoders.map((d) => withoutSpaceDropped(d)!) };
  if (config?.type !== "Metaspace" || config.prepend_scheme !== "never") return config;
  return { type: "Replace", pattern: { String: config.replacement ?? "▁" }, content: " " } as DecoderConfig;
}
