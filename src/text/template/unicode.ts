/** Character classes of Python's str; JavaScript's differ (U+FEFF, U+0085, U+001C). */

/** White space of `str.isspace()` and `\s`, used by strip, split and the template syntax. */
export const WHITE_SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
/** Line breaks of `splitlines`. */
const LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029";
export const LINE_BREAK = new RegExp(`\r\n|[${LINE_ENDS}]`, "g");
const DIGIT =
  "\\p{Nd}\\xb2\\xb3\\xb9\\u1369-\\u1371\\u19da\\u2070\\u2074-\\u2079\\u2080-\\u2089\\u2460-\\u2468\\u2474-\\u247c" +
  "\\u2488-\\u2490\\u24ea\\u24f5-\\u24fd\\u24ff\\u2776-\\u277e\\u2780-\\u2788\\u278a-\\u2792\\u{10a40}-\\u{10a43}" +
  "\\u{10e60}-\\u{10e68}\\u{11052}-\\u{1105a}\\u{1f100}-\\u{1f10a}";

const space = new RegExp(`[${WHITE_SPACE}]`);

export function isSpace(character: string): boolean {
  const code = character.charCodeAt(0);
  if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20);
  return space.test(character);
}

/** Patterns for a whole text, by the name of str's method. */
export const classes: Readonly<Record<string, RegExp>> = {
  isspace: new RegExp(`^[${WHITE_SPACE}]+$`),
  isalpha: /^\p{L}+$/u,
  isalnum: new RegExp(`^[\\p{L}\\p{N}${DIGIT}]+$`, "u"),
  isdigit: new RegExp(`^[${DIGIT}]+$`, "u"),
};

/** Characters that `repr` writes as escapes. */
export const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;

const DIGRAPHS = ["ǄǅǆǅǇǈǉǈǊǋǌǋǱǲǳǲ"].join("");

/** The title case of one character: "ǆ" becomes "ǅ" and "ß" "Ss". */
export function titleCase(character: string): string {
  const code = character.codePointAt(0)!;
  const digraph = DIGRAPHS.indexOf(character);
  if (digraph >= 0) return DIGRAPHS[digraph - (digraph % 4) + 1]!;
  if ((code >= 0x10d0 && code <= 0x10ff) || code === 0x149) return code === 0x149 ? "ʼN" : character;
  if (code >= 0x1f80 && code <= 0x1faf) return String.fromCharCode(code | 8);
  if (code === 0x1fb3 || code === 0x1fc3 || code === 0x1ff3) return String.fromCharCode(code + 9);
  const upper = character.toUpperCase();
  const first = String.fromCodePoint(upper.codePointAt(0)!);
  return first.length === upper.length ? upper : first + upper.slice(first.length).toLowerCase();
}
