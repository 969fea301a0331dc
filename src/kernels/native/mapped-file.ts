/** A memory-mapped file as a byte source: reads are views of the mapping, without copies. */
import { type ByteSource, checkRange } from "../../byte-source.ts";
import { nodeBuiltin } from "../../node-builtin.ts";
import { checkUnchanged } from "../../node-file.ts";
import { nativeAddon } from "./addon.ts";

/**
 * Maps an existing file; null without the addon or if mapping fails. Bytes returned by `read` must not be written to, and stay
 * valid after `close`: the mapping ends when nothing refers to it. The file must not shrink meanwhile. A read throws
 * InvalidFileError once the file was written to; replacing the file by renaming another is harmless.
 */
export function mapFile(path: string): ByteSource | null {
  const buffer = nativeAddon()?.mapFile(path) ?? null;
  if (!buffer) return null;
  const status = () => nodeBuiltin<typeof import("node:fs")>("node:fs")!.statSync(path, { throwIfNoEntry: false });
  const before = status();
  const check = () => {
    const now = status();
    if (before && now?.ino === before.ino && now.dev === before.dev) checkUnchanged(path, before, now);
  };
  return {
    name: path,
    size: buffer.byteLength,
    async read(offset, length) {
      checkRange(path, buffer.byteLength, offset, length);
      check();
      return new Uint8Array(buffer, offset, length);
    },
    async readInto(offset, target) {
      checkRange(path, buffer.byteLength, offset, target.length);
      check();
      target.set(new Uint8Array(buffer, offset, target.length));
    },
    async close() {},
  };
}
