/** Decodes UTF-8 strings that may contain invalid bytes. */

/**
 * Decodes bytes, keeping a leading U+FEFF. Each byte that is not UTF-8 becomes one of U+DC80 to U+DCFF, as with Python's
 * `surrogateescape`: valid text has none of these, so different bytes never give equal strings.
 */
export function escapedUtf8(bytes: Uint8Array): string {
  try {
    return strict.decode(bytes);
  } catch {
    const parts: string[] = [];
    let start = 0;
    for (let at = 0; at < bytes.length; ) {
      const length = sequenceLength(bytes, at);
      if (length === 0) {
        parts.push(strict.decode(bytes.subarray(start, at)), String.fromCharCode(0xdc00 + bytes[at]!));
        start = at + 1;
      }
      at += Math.max(length, 1);
    }
    return parts.join("") + strict.decode(bytes.subarray(start));
  }
}

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Length of the UTF-8 sequence at an offset; 0 for an invalid one (The Unicode Standard, table 3-7). */
function sequenceLength(bytes: Uint8Array, at: number): number {
  const lead = bytes[at]!;
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  const least = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
  const most = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
  const rest = bytes.subarray(at + 1, at + length);
  const isWhole = rest.length === length - 1 && rest[0]! >= least && rest[0]! <= most;
  return isWhole && rest.every((byte) => byte >= 0x80 && byte <= 0xbf) ? length : 0;
}
