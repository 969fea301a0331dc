/** Named classes of Oniguruma's patterns, as predicates over code points. */
import { anyOf, not, type Predicate, unicode16 } from "./character-set.ts";

const GRAPH = "^\\p{White_Space}\\p{Cc}\\p{Cn}\\p{Cs}";

const WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
/** Superscript digits and fractions of Latin-1, which `\w` includes and `[[:word:]]` does not. */
const LATIN1_NUMBERS = "\\xB2\\xB3\\xB9\\xBC-\\xBE";

/** POSIX classes with Unicode's meaning, which `\p{}` accepts, too. */
const posix: Record<string, string> = {
  alnum: "\\p{Alphabetic}\\p{Nd}",
  alpha: "\\p{Alphabetic}",
  ascii: "\\x00-\\x7F",
  blank: "\\p{Zs}\\t",
  cntrl: "\\p{Cc}",
  digit: "\\p{Nd}",
  lower: "\\p{Lowercase}",
  punct: "\\p{P}",
  space: "\\p{White_Space}",
  upper: "\\p{Uppercase}",
  xdigit: "0-9A-Fa-f",
  word: `${WORD}${LATIN1_NUMBERS}`,
};

/** General categories and binary properties as JavaScript spells them; names of scripts are tried as they are. */
const properties = (
  "L Lu Ll Lt Lm Lo LC M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cn Co " +
  "Letter Uppercase_Letter Lowercase_Letter Titlecase_Letter Modifier_Letter Other_Letter Cased_Letter Mark " +
  "Nonspacing_Mark Spacing_Mark Enclosing_Mark Number Decimal_Number Letter_Number Other_Number Punctuation " +
  "Connector_Punctuation Dash_Punctuation Open_Punctuation Close_Punctuation Initial_Punctuation Final_Punctuation " +
  "Other_Punctuation Symbol Math_Symbol Currency_Symbol Modifier_Symbol Other_Symbol Separator Space_Separator " +
  "Line_Separator Paragraph_Separator Other Control Format Unassigned Private_Use Any Assigned ASCII_Hex_Digit " +
  "Alphabetic Bidi_Control Case_Ignorable Cased Dash Default_Ignorable_Code_Point Deprecated Diacritic Emoji " +
  "Emoji_Component Emoji_Modifier Emoji_Modifier_Base Emoji_Presentation Extended_Pictographic Extender Grapheme_Base " +
  "Grapheme_Extend Hex_Digit ID_Continue ID_Start Ideographic Join_Control Logical_Order_Exception Lowercase Math " +
  "Noncharacter_Code_Point Pattern_Syntax Pattern_White_Space Quotation_Mark Radical Regional_Indicator " +
  "Sentence_Terminal Soft_Dotted Terminal_Punctuation Unified_Ideograph Uppercase Variation_Selector White_Space " +
  "XID_Continue XID_Start"
).split(" ");

const plain = (name: string) => name.toLowerCase().replace(/[\s_-]/g, "");
const propertyNames = new Map(properties.map((name) => [plain(name), name]));

/** The class of `[:name:]`, null for an unknown name. Its "punct" includes symbols. */
export function bracketClass(name: string): Predicate | null {
  if (name === "punct") return unicode16("\\p{P}\\p{S}");
  if (name === "word") return unicode16(WORD);
  return Object.hasOwn(posix, name) || name === "graph" || name === "print" ? namedClass(name) : null;
}

/** The class of `\p{name}`, null for an unknown name. */
export function namedClass(name: string): Predicate | null {
  const key = plain(name);
  if (key === "graph") return unicode16(GRAPH);
  if (key === "print") return anyOf([unicode16(GRAPH), unicode16("\\p{Zs}")]);
  if (Object.hasOwn(posix, key)) return unicode16(posix[key]!);
  const property = propertyNames.get(key);
  if (property) return unicode16(`\\p{${property}}`);
  const script = key.length > 2 ? key[0]!.toUpperCase() + key.slice(1) : null;
  const spellings = [
    name,
    script,
    name.replace(/[^_\s-]+/g, (word) => word[0]!.toUpperCase() + word.slice(1).toLowerCase()),
  ];
  for (const spelling of spellings) {
    if (!spelling || !/^[\w\s-]+$/.test(spelling)) continue;
    try {
      return unicode16(`\\p{Script=${spelling.replace(/[\s-]/g, "_")}}`);
    } catch {} // JavaScript has no script of this spelling
  }
  return null;
}

/** The class of a letter escape such as `\s`; null for other letters. In brackets `\w` means `[:word:]`. */
export function shorthand(letter: string, inBrackets: boolean): Predicate | null {
  const name = { w: "word", s: "space", d: "digit", h: "xdigit" }[letter.toLowerCase()];
  if (!name) return null;
  const predicate = inBrackets ? bracketClass(name)! : namedClass(name)!;
  return letter === letter.toLowerCase() ? predicate : not(predicate);
}
