/** A byte source over a Blob: a file chosen by the user, kept by the browser, or in memory. */
import { type ByteSource, checkRange } from "../byte-source.ts";
import { InvalidFileError } from "../errors.ts";

/**
 * A byte source over `blob`; `name` is for messages. Reads fail with InvalidFileError when the file has been changed or
 * removed.
 */
export function blobSource(name: string, blob: Blob): ByteSource {
  const readInto = async (offset: number, target: Uint8Array) => {
    checkRange(name, blob.size, offset, target.length);
    const reader = blob
      .slice(offset, offset + target.length)
      .stream()
      .getReader();
    let done = 0;
    for (;;) {
      const part = await reader.read().catch((cause: Error) => {
        throw new InvalidFileError(name, `cannot be read: ${cause.message}`, { cause });
      });
      if (part.done) break;
      target.set(part.value, done);
      done += part.value.length;
    }
    if (done < target.length) throw new InvalidFileError(name, `ends at ${offset + done}; it was cut while read`);
  };
  return {
    name,
    size: blob.size,
    readInto,
    async read(offset, length) {
      checkRange(name, blob.size, offset, length);
      const bytes = new Uint8Array(length);
      await readInto(offset, bytes);
      return bytes;
    },
    async close() {},
  };
}
