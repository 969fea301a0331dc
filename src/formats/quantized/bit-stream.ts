/** Integers of 1 to 8 bits in 32-bit words, lowest bits first; integers may lie across two words. */

/** Words of a tensor of 32-bit integers, whatever their sign. */
export function wordsOf(data: ArrayBufferView): Uint32Array {
  return new Uint32Array(data.buffer, data.byteOffset, data.byteLength / 4);
}

/** Integer `index` of the stream whose words lie `stride` apart from word `start` on. */
export function integerAt(words: Uint32Array, start: number, index: number, bits: number, stride = 1): number {
  const bit = index * bits;
  const word = start + (bit >>> 5) * stride;
  const shift = bit & 31;
  const low = words[word]! >>> shift;
  const high = shift + bits > 32 ? words[word + stride]! << (32 - shift) : 0;
  return (low | high) & ((1 << bits) - 1);
}

/** `count` integers of the same, into `target` from `at` on. */
export function unpackIntegers(
  words: Uint32Array,
  { start, bits, stride = 1 }: { readonly start: number; readonly bits: number; readonly stride?: number },
  target: Uint8Array,
  at: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) target[at + i] = integerAt(words, start, i, bits, stride);
}
