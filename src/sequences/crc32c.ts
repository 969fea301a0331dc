/** CRC-32C (Castagnoli, RFC 3720), eight bytes at a time; it detects every burst of up to 32 damaged bits. */

/** Reversed polynomial. */
const POLYNOMIAL = 0x82f63b78;

/** [8 * 256]: contribution of a byte that is followed by 0 to 7 bytes of its group. */
const table = makeTable();

/** CRC-32C of bytes after those with checksum `sum` (0 for none). Words are read as little-endian. */
export function crc32c(bytes: Uint8Array, sum = 0): number {
  const { buffer, byteOffset, length } = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  const words = new Int32Array(buffer, byteOffset, 2 * Math.floor(length / 8));
  let crc = ~sum;
  for (let i = 0; i < words.length; i += 2) {
    const low = crc ^ words[i]!;
    const high = words[i + 1]!;
    crc =
      table[0x700 | (low & 255)]! ^
      table[0x600 | ((low >>> 8) & 255)]! ^
      table[0x500 | ((low >>> 16) & 255)]! ^
      table[0x400 | (low >>> 24)]! ^
      table[0x300 | (high & 255)]! ^
      table[0x200 | ((high >>> 8) & 255)]! ^
      table[0x100 | ((high >>> 16) & 255)]! ^
      table[high >>> 24]!;
  }
  for (let i = 4 * words.length; i < length; i++) crc = table[(crc ^ bytes[i]!) & 255]! ^ (crc >>> 8);
  return ~crc >>> 0;
}

function makeTable(): Int32Array {
  const table = new Int32Array(8 * 256);
  for (let byte = 0; byte < 256; byte++) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
    table[byte] = crc;
  }
  for (let i = 256; i < table.length; i++) table[i] = (table[i - 256]! >>> 8) ^ table[table[i - 256]! & 255]!;
  return table;
}
