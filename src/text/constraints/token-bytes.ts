/** The bytes of tokens in GPT-2's byte alphabet, as the engine reads them. */
import { byteCharacters, toByteCharacters } from "../tokenizer/byte-alphabet.ts";
import type { Tokenizer } from "../tokenizer.ts";

const BYTE = /^<0x([0-9a-fA-F]{2})>$/;
const PROBES = 64;

/** Bytes of all tokens by id; "" for special tokens and unused ids, which no constraint allows. */
export function tokenBytes(tokenizer: Tokenizer, count: number): string[] {
  const bytesOf = tokenizer.isByteLevel ? (token: string) => token : textBytes(tokenizer);
  return Array.from({ length: count }, (_, id) => {
    const token = id < tokenizer.vocabSize && !tokenizer.isSpecial(id) ? tokenizer.idToToken(id) : undefined;
    return token === undefined ? "" : bytesOf(token, id);
  });
}

function textBytes(tokenizer: Tokenizer): (token: string, id: number) => string {
  const decoded = decodedWithin(tokenizer);
  const spaced = (token: string) => toByteCharacters(token.replaceAll("▁", " "));
  const isPlain = Array.from({ length: PROBES }, (_, i) => Math.floor((i * tokenizer.vocabSize) / PROBES)).every(
    (id) => {
      const token = tokenizer.idToToken(id);
      return token === undefined || tokenizer.isSpecial(id) || BYTE.test(token) || spaced(token) === decoded(id);
    },
  );
  return (token, id) => {
    const byte = BYTE.exec(token);
    if (byte) return byteCharacters[Number.parseInt(byte[1]!, 16)]!;
    return isPlain ? spaced(token) : decoded(id);
  };
}

/** Decodes a token as within a text: at the start of one, some tokenizers drop a space. */
function decodedWithin(tokenizer: Tokenizer): (id: number) => string {
  const before = tokenizer.encode("a", { addSpecialTokens: false, truncation: false, padding: false });
  const start = tokenizer.decode(before, { stream: true });
  return (id) => {
    const whole = tokenizer.decode([...before, id], { stream: true });
    return toByteCharacters(whole.startsWith(start) ? whole.slice(start.length) : tokenizer.decode([id]));
  };
}
