/** Parsing of JSON texts that others wrote. */

/** Real files have a dozen; functions that call themselves for each level would run out of stack. */
const NESTING_MAX = 256;

/** The value of a JSON text. SyntaxError where it is none, or has more than 256 levels of lists and objects in each other. */
export function parseJson(text: string): unknown {
  checkNesting(text, NESTING_MAX);
  return JSON.parse(text);
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
