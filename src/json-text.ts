/** Parsing of JSON texts that others wrote. */

/** Real files have a dozen; functions that call themselves for each level would run out of stack. */
const NESTING_MAX = 256;

/** The value of a JSON text. SyntaxError where it is none, or has more than 256 levels of lists and objects in each other. */
export function parseJson(text: string): unknown {
  checkNesting(text, NESTING_MAX);
  return JSON.parse(text);
}

const CONSTANT = /-?Infinity|NaN/y;

/**
 * The value of a JSON text as Python's `json` reads it, which wrote most files of models: NaN, Infinity and -Infinity are
 * numbers. SyntaxError as `parseJson`, and for a byte order mark.
 */
export function parsePythonJson(text: string): unknown {
  if (text.startsWith("\uFEFF"))
    throw new SyntaxError(
      "it begins with a byte order mark (U+FEFF), which JSON must not: save it as UTF-8 without one",
    );
  checkNesting(text, NESTING_MAX);
  try {
    return JSON.parse(text);
  } catch (error) {
    const constant = unusedText(text);
    // As an object, which no key can be.
    const marked = withConstants(text, (word) => `{"${constant}":"${word}"}`);
    if (marked === text) throw error;
    return JSON.parse(marked, (_key, value) => {
      const word = value?.[constant];
      return word === undefined ? value : Number(word);
    });
  }
}

/** The JSON text of a value, with numbers that are not finite as Python's `json` writes them. */
export function pythonJson(value: unknown, indent?: number): string {
  const constant = unusedText(JSON.stringify(value) ?? "");
  const text = JSON.stringify(
    value,
    (_key, item) => (typeof item === "number" && !Number.isFinite(item) ? `${constant}${item}` : item),
    indent,
  );
  return text.replace(new RegExp(`"${constant}([^"]+)"`, "g"), "$1");
}

/** A text that does not occur in another. */
function unusedText(text: string): string {
  let unused = "number:";
  while (text.includes(unused)) unused = `number${unused}`;
  return unused;
}

/** A JSON text with other texts in place of Python's constants outside of strings. */
function withConstants(text: string, shown: (word: string) => string): string {
  const parts: string[] = [];
  let done = 0;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (char === 0x22) i = endOfString(text, i);
    if (char !== 0x2d && char !== 0x49 && char !== 0x4e) continue;
    CONSTANT.lastIndex = i;
    const word = CONSTANT.exec(text)?.[0];
    if (word === undefined) continue;
    parts.push(text.slice(done, i), shown(word));
    done = i + word.length;
    i = done - 1;
  }
  return parts.join("") + text.slice(done);
}

/** SyntaxError for a JSON text with more than `most` levels of lists and objects in each other. */
export function checkNesting(text: string, most: number): void {
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (char === 0x22) i = endOfString(text, i);
    else if (char === 0x5b || char === 0x7b) depth++;
    else if (char === 0x5d || char === 0x7d) depth--;
    if (depth > most)
      throw new SyntaxError(`expected at most ${most} levels of lists and objects but found more at ${i}`);
  }
}

/** Index of the quote that ends the string that begins at `start`; that of the text's end where none does. */
function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let slashes = 0;
    while (text[end - 1 - slashes] === "\\") slashes++;
    if (slashes % 2 === 0) return end;
  }
  return text.length;
}
