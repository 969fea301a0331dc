/** Scripts as SentencePiece groups them: kana are Han, and what belongs to none goes with what is before it. */
import { codePoints } from "./character-set.ts";
import { scripts, withoutScript } from "./unicode-versions.ts";

const LONG_VOWEL_MARK = 0x30fc;
/** Characters of several scripts that had another one of their own when the library's table was made. */
const moved = new Map([
  [0x589, "Common"],
  [0x61c, "Common"],
  [0x953, "Devanagari"],
  [0x954, "Devanagari"],
]);

const unknown = codePoints(withoutScript);
const known = new Map<number, string | null>();
let patterns: (readonly [string, RegExp])[] | undefined;

/** Name of a character's script; null for the space and characters that belong to none. */
export function scriptOf(codePoint: number): string | null {
  let script = known.get(codePoint);
  if (script === undefined) {
    script = findScript(codePoint);
    known.set(codePoint, script);
  }
  return script;
}

function findScript(codePoint: number): string | null {
  if (codePoint === 32 || unknown(codePoint)) return null;
  if (codePoint === LONG_VOWEL_MARK) return "Han";
  const elsewhere = moved.get(codePoint);
  if (elsewhere) return elsewhere;
  patterns ??= [
    ["Common", /\p{Script=Common}/u],
    ["Inherited", /\p{Script=Inherited}/u],
    ["Han", /[\p{Script=Hiragana}\p{Script=Katakana}]/u],
    ...scripts.map((name) => [name, new RegExp(`\\p{Script=${name}}`, "u")] as const),
  ];
  const character = String.fromCodePoint(codePoint);
  return patterns.find(([, pattern]) => pattern.test(character))?.[0] ?? null;
}
