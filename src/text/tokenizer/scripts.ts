/**
 * Unicode scripts as SentencePiece groups them: kana count as Han, and characters without a script go with those before them.
 */
import { codePoints } from "./character-set.ts";
import { withoutScript } from "./unicode-versions.ts";

const LONG_VOWEL_MARK = 0x30fc;
/** Characters of several scripts that had another script when the library's table was made. */
const moved = new Map([
  [0x589, "Common"],
  [0x61c, "Common"],
  [0x953, "Devanagari"],
  [0x954, "Devanagari"],
]);

/** Scripts that UnicodeScripts distinguishes, without the kana, which count as Han. */
const scripts = (
  "Latin Greek Cyrillic Armenian Hebrew Arabic Syriac Thaana Devanagari Bengali Gurmukhi Gujarati Oriya " +
  "Tamil Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Georgian Hangul Ethiopic Cherokee " +
  "Canadian_Aboriginal Ogham Runic Khmer Mongolian Bopomofo Han Yi Old_Italic Gothic Deseret Tagalog " +
  "Hanunoo Buhid Tagbanwa Limbu Tai_Le Linear_B Ugaritic Shavian Osmanya Cypriot Braille Buginese Coptic " +
  "New_Tai_Lue Glagolitic Tifinagh Syloti_Nagri Old_Persian Kharoshthi Balinese Cuneiform Phoenician " +
  "Phags_Pa Nko Sundanese Lepcha Ol_Chiki Vai Saurashtra Kayah_Li Rejang Lycian Carian Lydian Cham Tai_Tham " +
  "Tai_Viet Avestan Egyptian_Hieroglyphs Samaritan Lisu Bamum Javanese Meetei_Mayek Imperial_Aramaic " +
  "Old_South_Arabian Inscriptional_Parthian Inscriptional_Pahlavi Old_Turkic Kaithi Batak Brahmi Mandaic " +
  "Chakma Meroitic_Cursive Meroitic_Hieroglyphs Miao Sharada Sora_Sompeng Takri Caucasian_Albanian " +
  "Bassa_Vah Duployan Elbasan Grantha Pahawh_Hmong Khojki Linear_A Mahajani Manichaean Mende_Kikakui Modi " +
  "Mro Old_North_Arabian Nabataean Palmyrene Pau_Cin_Hau Old_Permic Psalter_Pahlavi Siddham Khudawadi " +
  "Tirhuta Warang_Citi Ahom Anatolian_Hieroglyphs Hatran Multani Old_Hungarian SignWriting Adlam Bhaiksuki " +
  "Marchen Newa Osage Tangut"
).split(" ");

const unknown = codePoints(withoutScript);
const known = new Map<number, string | null>();
let patterns: (readonly [string, RegExp])[] | undefined;

/** Name of a character's script; null for the space and for characters without a script. */
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
