/** GPT-2's byte alphabet: a printable character for each byte. */

const characters: string[] = [];
for (let byte = 0, next = 256; byte < 256; byte++) {
  const isPrintable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  characters.push(String.fromCharCode(isPrintable ? byte : next++));
}
const bytes = new Map(characters.map((character, byte) => [character.charCodeAt(0), byte]));

/** The character for each byte. */
export const byteCharacters: readonly string[] = characters;

/** Encodes a well-formed text as one character for each byte of its UTF-8. */
export function toByteCharacters(text: string): string {
  let result = "";
  for (let i = 0; i < text.length; i++) {
    let code = text.charCodeAt(i);
    if (code < 0x80) result += characters[code]!;
    else if (code < 0x800) result += characters[0xc0 | (code >> 6)]! + characters[0x80 | (code & 63)]!;
    else {
      if (code >= 0xd800 && code < 0xdc00) {
        code = 0x10000 + ((code - 0xd800) << 10) + (text.charCodeAt(++i) - 0xdc00);
        result += characters[0xf0 | (code >> 18)]! + characters[0x80 | ((code >> 12) & 63)]!;
      } else result += characters[0xe0 | (code >> 12)]!;
      result += characters[0x80 | ((code >> 6) & 63)]! + characters[0x80 | (code & 63)]!;
    }
  }
  return result;
}

/** Bytes of a text in the byte alphabet; null for a text with another character. */
export function fromByteCharacters(text: string): number[] | null {
  const result: number[] = [];
  for (let i = 0; i < text.length; i++) {
    const byte = bytes.get(text.charCodeAt(i));
    if (byte === undefined) return null;
    result.push(byte);
  }
  return result;
}
