/** Escape sequences of Python's strings. */

const SINGLE: Readonly<Record<string, string>> = {
  ...{ n: "\n", t: "\t", r: "\r", b: "\b", f: "\f", v: "\v", a: "\x07", "\n": "", "'": "'", '"': '"', "\\": "\\" },
};

/**
 * The text that an escape sequence stands for, and the sequence's length. `isWhole` says whether all digits of `\x`, `\u` and
 * `\U` are there. An unknown escape stays as it is, as in Python.
 */
export function pythonEscape(text: string, isWhole: boolean): { readonly text: string; readonly length: number } {
  const kind = text[1]!;
  if (Object.hasOwn(SINGLE, kind)) return { text: SINGLE[kind]!, length: 2 };
  const octal = /^\\([0-7]{1,3})/.exec(text);
  if (octal) return { text: String.fromCodePoint(Number.parseInt(octal[1]!, 8)), length: octal[0].length };
  const code = /[xuU]/.test(kind) && isWhole ? Number.parseInt(text.slice(2), 16) : Number.NaN;
  return code <= 0x10ffff ? { text: String.fromCodePoint(code), length: text.length } : { text: "\\", length: 1 };
}
