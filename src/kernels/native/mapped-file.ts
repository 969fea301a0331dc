/** A file mapped into memory as a source of bytes: reads are views of the mapping, nothing is copied. */
import { type ByteSource, checkRange } from "../../byte-source.ts";
import { nativeAddon } from "./addon.ts";

/**
 * Maps a file that exists; null without the addon or where mapping fails. Bytes that `read` returns must not be written
 * to, and stay valid after `close`: the mapping ends when nothing refers to it. The file must not shrink meanwhile.
 */
export function mapFile(path: string): ByteSource | null {
  const buffer = nativeAddon()?.mapFile(path) ?? null;
  if (!buffer) return null;
  return {
    name: path,
    size: buffer.byteLength,
    async read(offset, length) {
      checkRange(path, buffer.byteLength, offset, length);
      return new Uint8Array(buffer, offset, length);
    },
    async readInto(offset, target) {
      checkRange(path, buffer.byteLength, offset, target.length);
      target.set(new Uint8Array(buffer, offset, target.length));
    },
    async close() {},
  };
}
