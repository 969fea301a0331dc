/** Whether a shared library is whole: the system maps one that was cut short, and the process dies where it ends. */
import { nodeBuiltin } from "../../node-builtin.ts";

const HEADER_BYTES = 64;

/**
 * Bytes that a 64-bit little-endian ELF file of this header has at least: up to the end of its section headers, which
 * linkers write last. 0 for other files.
 */
function bytesByHeader(header: DataView): number {
  const magic = header.byteLength < HEADER_BYTES ? 0 : header.getUint32(0);
  if (magic !== 0x7f454c46 || header.getUint16(4) !== 0x0201) return 0;
  const sections = Number(header.getBigUint64(0x28, true));
  return sections + header.getUint16(0x3a, true) * header.getUint16(0x3c, true);
}

/** What is wrong with a file that is shorter than it says itself, or with what is no file; null for others. */
export function cutShort(path: string): string | null {
  const { closeSync, openSync, readSync, statSync } = nodeBuiltin<typeof import("node:fs")>("node:fs")!;
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats) return null;
  // The system would wait for a writer of a named pipe.
  if (!stats.isFile()) return "expected a file but found something else, such as a folder or a named pipe";
  const file = openSync(path, "r");
  try {
    const header = new Uint8Array(HEADER_BYTES);
    const length = readSync(file, header, 0, HEADER_BYTES, 0);
    const expected = bytesByHeader(new DataView(header.buffer, 0, length));
    return stats.size < expected ? `expected ${expected} bytes but found ${stats.size}: it was cut short` : null;
  } finally {
    closeSync(file);
  }
}
