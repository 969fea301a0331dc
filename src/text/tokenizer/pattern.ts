/** Patterns of splits and replacements: a literal text, or an Oniguruma regular expression. */
import type { Field } from "./field.ts";
import { Regex, shownPattern } from "./regex.ts";
import { PatternError } from "./regex-reader.ts";
import type { Work } from "./work-limit.ts";

/** Calls `found` with the beginning and end of each match, in order. */
export type Matcher = (text: string, work: Work, found: (start: number, end: number) => void) => void;

/** Reads a pattern `{ "String": ... }` or `{ "Regex": ... }`. */
export function readPattern(field: Field): Matcher {
  const text = field.optional("String");
  if (text) return text.text() === "" ? regex("", text) : literal(text.text());
  const expression = field.optional("Regex");
  if (!expression) throw field.expected('an object with "String" or "Regex"');
  return regex(expression.text(), expression);
}

function literal(wanted: string): Matcher {
  return (text, work, found) => {
    work.add(text.length >> 3);
    for (let start = text.indexOf(wanted); start >= 0; start = text.indexOf(wanted, start + wanted.length)) {
      work.add(1);
      found(start, start + wanted.length);
    }
  };
}

function regex(source: string, field: Field): Matcher {
  try {
    const compiled = new Regex(source);
    return (text, work, found) => compiled.forEachMatch(text, work, found);
  } catch (error) {
    if (!(error instanceof PatternError)) throw error;
    throw field.unsupported(`the pattern ${shownPattern(source)} cannot be used: ${error.message}`);
  }
}
