/** Character classes of regular expressions. */
import { complement, normalized, type Range } from "./code-points.ts";

const DIGITS: readonly Range[] = [[0x30, 0x39]];
const WORDS: readonly Range[] = [...DIGITS, [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]];
const SPACES: readonly Range[] = [
  ...([
    [9, 13],
    [32, 32],
    [0xa0, 0xa0],
    [0x1680, 0x1680],
    [0x2000, 0x200a],
    [0x2028, 0x2029],
    [0x202f, 0x202f],
    [0x205f, 0x205f],
    [0x3000, 0x3000],
    [0xfeff, 0xfeff],
  ] as const),
];
/** Line terminators, which a dot does not match. */
export const LINE_ENDS: readonly Range[] = [
  [10, 10],
  [13, 13],
  [0x2028, 0x2029],
];

/** Characters of a class escape such as `\d` or `\W`; null for another letter. */
export function escapedClass(letter: string): Range[] | null {
  const set = { d: DIGITS, w: WORDS, s: SPACES }[letter.toLowerCase()];
  if (!set) return null;
  return letter === letter.toLowerCase() ? [...set] : complement(set);
}

/** Characters by Unicode property, such as `L` or `Script=Greek`, as JavaScript's own regular expressions know them. */
const properties = new Map<string, Range[] | null>();
const PROPERTIES_MAX = 64;

/** Characters with a Unicode property; null for an unknown property. */
export function propertyClass(name: string): Range[] | null {
  const known = properties.get(name);
  if (known !== undefined) return known;
  const made = foundProperty(name);
  properties.set(name, made);
  const [oldest] = properties.keys();
  if (properties.size > PROPERTIES_MAX) properties.delete(oldest!);
  return made;
}

function foundProperty(name: string): Range[] | null {
  let expression: RegExp;
  try {
    expression = new RegExp(`\\p{${name}}+`, "gu");
  } catch {
    return null;
  }
  const ranges: Range[] = [];
  const SIZE = 0x1000;
  for (let first = 0; first <= 0x10ffff; first += SIZE) {
    // Surrogates are no characters.
    if (first >= 0xd800 && first < 0xe000) continue;
    const end = first === 0xd000 ? 0xd800 : first + SIZE;
    let all = "";
    for (let point = first; point < end; point++) all += String.fromCodePoint(point);
    const width = first < 0x10000 ? 1 : 2;
    for (const { 0: text, index } of all.matchAll(expression)) {
      const start = first + index / width;
      ranges.push([start, start + text.length / width - 1]);
    }
  }
  return normalized(ranges);
}
