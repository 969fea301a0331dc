/** Unpacks integers of 1 to 8 bits from 32-bit words, lowest bits first; integers may straddle two words. */

/** The words of a tensor of 32-bit integers, signed or not, as unsigned. */
export function wordsOf(data: ArrayBufferView): Uint32Array {
  return new Uint32Array(data.buffer, data.byteOffset, data.byteLength / 4);
}

/** Integer `index` of a bit stream that begins at word `start` and whose words are `stride` apart. */
export function integerAt(words: Uint32Array, start: number, index: number, bits: number, stride = 1): number {
  const bit = index * bits;
  const word = start + (bit >>> 5) * stride;
  const shift = bit & 31;
  const low = words[word]! >>> shift;
  const high = shift + bits > 32 ? words[word + stride]! << (32 - shift) : 0;
  return (low | high) & ((1 << bits) - 1);
}

/** Unpacks `count` integers of a bit stream into `target` from `at` on. */
export function unpackIntegers(
  words: Uint32Array,
  { start, bits }: { readonly start: number; readonly bits: number },
  target: Uint8Array,
  at: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) target[at + i] = integerAt(words, start, i, bits);
}

/** Number of streams unpacked together: their words share a cache line. */
const TILE_ROWS = 8;

/**
 * Unpacks `count` interleaved streams to integers [count, k]: the words of a stream are `stride` apart, and those of the next
 * stream are adjacent to them, from word `first` on.
 */
export function unpackColumns(
  words: Uint32Array,
  { first, bits, stride }: { readonly first: number; readonly bits: number; readonly stride: number },
  [count, k]: readonly [number, number],
): Uint8Array {
  const result = new Uint8Array(count * k);
  const isWhole = 32 % bits === 0;
  const perWord = 32 / bits;
  const mask = (1 << bits) - 1;
  for (let tile = 0; tile < count; tile += TILE_ROWS) {
    const end = Math.min(count, tile + TILE_ROWS);
    if (!isWhole) {
      for (let c = 0; c < k; c++)
        for (let row = tile; row < end; row++) result[row * k + c] = integerAt(words, first + row, c, bits, stride);
      continue;
    }
    for (let c = 0, at = first; c < k; c += perWord, at += stride)
      for (let row = tile; row < end; row++) {
        const word = words[at + row]!;
        const last = Math.min(k - c, perWord);
        for (let j = 0, to = row * k + c; j < last; j++) result[to + j] = (word >>> (bits * j)) & mask;
      }
  }
  return result;
}
