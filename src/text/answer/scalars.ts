/** Numbers, true, false and null, as JSON, Python and small models write them. */
import type { TextRule } from "./schema-types.ts";

/** The language that values are written in. */
export type LiteralKind = "json" | "python" | "gemma";

const WORDS: Readonly<Record<string, string>> = {
  ...{ true: "true", True: "true", TRUE: "true", false: "false", False: "false", FALSE: "false" },
  ...{ null: "null", None: "null", NULL: "null", none: "null" },
};
const JSON_NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$/;
const INTEGER = /^([-+]?)(0[xX](?:_?[\da-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+|[1-9](?:_?\d)*|0(?:_?0)*)$/;
const FLOAT = /^([-+]?)(\d(?:_?\d)*)?(?:\.((?:\d(?:_?\d)*)?))?([eE][-+]?\d(?:_?\d)*)?$/;

/** The JSON of a number, true, false or null, with all digits of the number; null for another text. */
export function scalarText(word: string): string | null {
  return Object.hasOwn(WORDS, word) ? WORDS[word]! : numberText(word);
}

/** The JSON of a number in JSON's or Python's form, with all its digits; null for another text. */
export function numberText(word: string): string | null {
  if (JSON_NUMBER.test(word)) return word;
  const integer = INTEGER.exec(word);
  if (integer) return `${integer[1] === "-" ? "-" : ""}${BigInt(integer[2]!.replaceAll("_", ""))}`;
  const float = FLOAT.exec(word);
  if (!float) return null;
  const [, sign, whole = "", fraction = "", exponent = ""] = float;
  const isFloat = exponent !== "" || word.includes(".");
  if (!isFloat || whole + fraction === "") return null;
  const digits = (text: string) => text.replaceAll("_", "");
  const before = digits(whole).replace(/^0+(?=\d)/, "") || "0";
  return `${sign === "-" ? "-" : ""}${before}.${digits(fraction) || "0"}${digits(exponent)}`;
}

/** Whether unquoted words can only be a string: several words where a string is expected, a single one elsewhere. */
export function isBareText(words: string, rule: TextRule, kind: LiteralKind): boolean {
  if (words === "" || rule === "never") return false;
  if (kind === "gemma") return true;
  const isExpected = rule === "only" || rule === "may";
  if (isExpected) return !(kind === "python" ? /["'`()[\]{}\\:=]/ : /["'`()[\]{}\\]|:\s|:$/).test(words);
  // In Python, a single word could be a variable.
  return kind === "json" && /^[\p{L}_][\p{L}\p{N}_-]*$/u.test(words);
}
