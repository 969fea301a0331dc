/** The decoders of tokenizer.json, which turn tokens into texts to concatenate. */
import { fromByteCharacters } from "./byte-alphabet.ts";
import type { Field } from "./field.ts";
import { readPattern } from "./pattern.ts";
import { readMetaspaceFields } from "./pre-tokenizers.ts";
import type { Work } from "./work-limit.ts";

export type Decoder = (tokens: readonly string[], work: Work) => string[];

/** Matches a byte token; Rust parses "+F", too. */
const BYTE = /^<0x([0-9a-fA-F]{2}|\+[0-9a-fA-F])>$/;

const lossy = new TextDecoder("utf-8", { ignoreBOM: true });

/**
 * How runs of byte tokens that are not valid UTF-8 decode: U+FFFD for each byte, as in Rust's library, or only for the invalid
 * ones, so that text already emitted stays as it is when an invalid byte follows.
 */
export type ByteErrors = "replaceAll" | "replaceWrong";

const readers: Record<string, (field: Field, errors: ByteErrors) => Decoder> = {
  BPEDecoder: readBpeDecoder,
  ByteFallback: (_, errors) => (tokens) => decodeByteTokens(tokens, errors),
  ByteLevel: () => decodeByteLevel,
  CTC: readCtc,
  Fuse: () => (tokens) => [tokens.join("")],
  Metaspace: readMetaspace,
  Replace: readReplace,
  Sequence(field, errors) {
    const parts = field
      .get("decoders")
      .items()
      .map((part) => readDecoder(part, errors));
    return (tokens, work) => parts.reduce<string[]>((result, part) => part(result, work), [...tokens]);
  },
  Strip: readStrip,
  WordPiece: readWordPiece,
};

/** Reads a decoder. InvalidFileError for an unknown type. */
export function readDecoder(field: Field, errors: ByteErrors): Decoder {
  const type = field.get("type").text();
  if (!Object.hasOwn(readers, type)) throw field.get("type").invalid(`"${type}" is no decoder`);
  const decode = readers[type]!(field, errors);
  return (tokens, work) => {
    work.add(tokens.length);
    const result = decode(tokens, work);
    let length = 0;
    for (const text of result) length += text.length;
    work.checkLength(length);
    return result;
  };
}

/** Whether a decoder, or a part of its sequence, decodes GPT-2's byte alphabet. */
export function isByteLevelDecoder(field: Field): boolean {
  const type = field.get("type").text();
  return type === "ByteLevel" || (type === "Sequence" && field.get("decoders").items().some(isByteLevelDecoder));
}

function decodeByteLevel(tokens: readonly string[]): string[] {
  const bytes: number[] = [];
  for (const token of tokens)
    for (const byte of fromByteCharacters(token) ?? new TextEncoder().encode(token)) bytes.push(byte);
  return [lossy.decode(Uint8Array.from(bytes))];
}

function decodeByteTokens(tokens: readonly string[], errors: ByteErrors): string[] {
  const result: string[] = [];
  let bytes: number[] = [];
  const flush = () => {
    if (bytes.length === 0) return;
    const text = lossy.decode(Uint8Array.from(bytes));
    // The encoded bytes of U+FFFD itself are not an error.
    const isWrong = text.includes("\uFFFD") && new TextEncoder().encode(text).some((byte, i) => byte !== bytes[i]);
    if (isWrong && errors === "replaceAll") for (const _ of bytes) result.push("\uFFFD");
    else result.push(text);
    bytes = [];
  };
  for (const token of tokens) {
    const byte = BYTE.exec(token)?.[1];
    if (byte !== undefined) {
      bytes.push(Number.parseInt(byte, 16));
      continue;
    }
    flush();
    result.push(token);
  }
  flush();
  return result;
}

function readBpeDecoder(field: Field): Decoder {
  const suffix = field.get("suffix").text();
  return (tokens, work) =>
    tokens.map((token, i) => replaceAll(token, suffix, i === tokens.length - 1 ? "" : " ", work));
}

/** Replaces every occurrence of a text; the empty text occurs before each character and at the end. */
function replaceAll(text: string, wanted: string, content: string, work: Work): string {
  work.add(text.length);
  if (wanted !== "") return text.replaceAll(wanted, () => content);
  return content + [...text].map((character) => character + content).join("");
}

const tidied = [
  [" .", "."],
  [" ?", "?"],
  [" !", "!"],
  [" ,", ","],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [" do not", " don't"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
] as const;

function tidy(text: string): string {
  return tidied.reduce((result, [from, to]) => result.replaceAll(from, to), text);
}

function readCtc(field: Field): Decoder {
  const pad = field.get("pad_token").text();
  const delimiter = field.get("word_delimiter_token").text();
  const tidies = field.get("cleanup").boolean();
  return (tokens, work) =>
    tokens
      .filter((token, i) => i === 0 || token !== tokens[i - 1])
      .map((token) => {
        const text = replaceAll(token, pad, "", work);
        return tidies ? replaceAll(tidy(text), delimiter, " ", work) : text;
      })
      .filter((text) => text !== "");
}

function readMetaspace(field: Field): Decoder {
  const { replacement, scheme } = readMetaspaceFields(field);
  return (tokens) => tokens.map((token, i) => token.replaceAll(replacement, i === 0 && scheme !== "never" ? "" : " "));
}

function readReplace(field: Field): Decoder {
  const find = readPattern(field.get("pattern"));
  const content = field.get("content").text();
  return (tokens, work) =>
    tokens.map((token) => {
      if (token === "") return token;
      const pieces: string[] = [];
      let done = 0;
      let length = 0;
      find(token, work, (start, end) => {
        pieces.push(token.slice(done, start), content);
        length += start - done + content.length;
        work.checkLength(length);
        done = end;
      });
      return pieces.join("") + token.slice(done);
    });
}

function readStrip(field: Field): Decoder {
  const content = field.get("content").character();
  const start = field.get("start").count(0, Number.MAX_SAFE_INTEGER);
  const stop = field.get("stop").count(0, Number.MAX_SAFE_INTEGER);
  return (tokens) =>
    tokens.map((token) => {
      let from = 0;
      let to = token.length;
      for (let i = 0; i < start && token.startsWith(content, from); i++) from += content.length;
      for (let i = 0; i < stop && to > from && token.endsWith(content, to); i++) to -= content.length;
      return token.slice(from, to);
    });
}

function readWordPiece(field: Field): Decoder {
  const prefix = field.get("prefix").text();
  const tidies = field.get("cleanup").boolean();
  return (tokens) =>
    tokens.map((token, i) => {
      const text = i === 0 ? token : token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
      return tidies ? tidy(text) : text;
    });
}
