/** Files that readers drop, choose or paste: models to load, texts to attach. */
import type { Attachment } from "./conversations.ts";

/** Most bytes of a file that goes with a message: longer texts fit no model's context. */
export const ATTACHMENT_BYTES = 256 * 1024;

export const isModel = ({ name }: File) => /\.(pte|gguf)$/i.test(name);

/** A text file as it goes with a message. An error says what is wrong with it. */
export async function readAttachment(file: File): Promise<Attachment> {
  const { name, size } = file;
  if (size > ATTACHMENT_BYTES)
    throw new Error(
      `${name}: expected a text of at most ${ATTACHMENT_BYTES / 1024} kB but found ${Math.ceil(size / 1024)} kB`,
    );
  const bytes = new Uint8Array(await file.arrayBuffer());
  const encoding =
    bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le" : bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : "utf-8";
  let text: string;
  try {
    text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${name}: expected a text file but found bytes that are no text in UTF-8`);
  }
  if (text.includes("\0")) throw new Error(`${name}: expected a text file but found zero bytes`);
  if (text.trim() === "") throw new Error(`${name}: expected a text but found an empty file`);
  return { name, text };
}
