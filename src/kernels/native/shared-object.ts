/**
 * Checks that a shared library is complete: the system maps a truncated one, and the process crashes when it reads past the
 * end.
 */
import { nodeBuiltin } from "../../node-builtin.ts";

const HEADER_BYTES = 64;

/**
 * Least size of a 64-bit little-endian ELF file with this header: the end of its section headers, which linkers write last. 0
 * for other files.
 */
function bytesByHeader(header: DataView): number {
  const magic = header.byteLength < HEADER_BYTES ? 0 : header.getUint32(0);
  if (magic !== 0x7f454c46 || header.getUint16(4) !== 0x0201) return 0;
  const sections = Number(header.getBigUint64(0x28, true));
  return sections + header.getUint16(0x3a, true) * header.getUint16(0x3c, true);
}

/** The problem of a file that is truncated or no regular file; null for others. */
export function cutShort(path: string): string | null {
  const { closeSync, openSync, readSync, statSync } = nodeBuiltin<typeof import("node:fs")>("node:fs")!;
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats) return null;
  // Opening a named pipe would wait for a writer.
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
