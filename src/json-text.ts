/** JSON beyond JavaScript's own: Python's NaN and Infinity, long integers, and values as raw text. */

/** Most nesting: real files have a dozen levels, and recursive parsers of more would overflow the stack. */
const NESTING_MAX = 256;

/** Parses JSON. SyntaxError for invalid text, and for more than 256 levels of lists and objects. */
export function parseJson(text: string): unknown {
  checkNesting(text, NESTING_MAX);
  return JSON.parse(text);
}

const CONSTANT = /-?Infinity|NaN/y;

/**
 * Parses JSON as Python's `json`, which wrote most files of models: NaN, Infinity and -Infinity are numbers. SyntaxError as
 * `parseJson`, and for a byte order mark.
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
    // Written as an object with a key that the text does not contain.
    const marked = withConstants(text, (word) => `{"${constant}":"${word}"}`);
    if (marked === text) throw error;
    return JSON.parse(marked, (_key, value) => {
      const word = value?.[constant];
      return word === undefined ? value : Number(word);
    });
  }
}

/** Writes JSON with NaN and infinities as Python's `json` does. */
export function pythonJson(value: unknown, indent?: number): string {
  return withSources(
    value,
    (item) => (typeof item === "number" && !Number.isFinite(item) ? String(item) : null),
    indent,
  );
}

/** A string that does not occur in the text. */
function unusedText(text: string): string {
  let unused = "number:";
  while (text.includes(unused)) unused = `number${unused}`;
  return unused;
}

/** The JSON text with Python's constants, outside of strings, replaced by `shown`. */
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

/** SyntaxError for JSON text with more than `most` levels of lists and objects. */
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

/** Index of the quote that ends the string starting at `start`; the text's end where there is none. */
function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let slashes = 0;
    while (text[end - 1 - slashes] === "\\") slashes++;
    if (slashes % 2 === 0) return end;
  }
  return text.length;
}

/** A string with its quotes, or a number, in JSON text. */
const SCALAR = /"(?:\\.|[^"\\])*"|-?\d[\d.eE+-]*/g;

/** How numbers and objects of JSON text are turned into values, where JavaScript's own lose something. */
export interface JsonShapes {
  /** Makes the value of a number from its text. */
  readonly number: (text: string) => unknown;
  /** Makes the value of an object from its entries, in the order of the text. */
  readonly object: (entries: readonly (readonly [key: string, value: unknown])[]) => unknown;
}

/** Parses JSON with numbers and objects made by `shapes`. SyntaxError for invalid text. */
export function parseShaped(text: string, { number, object }: JsonShapes): unknown {
  parseJson(text);
  // JavaScript would round numbers, and move keys such as "2" before others.
  const marked = text.replace(SCALAR, (scalar) => (scalar[0] === '"' ? `"s${scalar.slice(1)}` : `"n${scalar}"`));
  return JSON.parse(marked, (_key, value) => {
    if (typeof value === "string") return value[0] === "s" ? value.slice(1) : number(value.slice(1));
    if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
    // Values that `object` has made are not converted again.
    return object(Object.entries(value as object).map(([key, item]) => [key.slice(1), item] as const));
  });
}

/** Parses JSON with integers beyond 2^53 as BigInts. SyntaxError for invalid text. */
export function parseExactly(text: string): unknown {
  return parseShaped(text, {
    number: (digits) => {
      const value = Number(digits);
      return /^-?\d+$/.test(digits) && !Number.isSafeInteger(value) ? BigInt(digits) : value;
    },
    object: (entries) => Object.fromEntries(entries),
  });
}

/** A JSON text that `jsonText` inserts unchanged. */
export class JsonSource {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** Writes JSON with BigInts as numbers with all digits, and `JsonSource`s unchanged. */
export function jsonText(value: unknown): string {
  return withSources(value, (item) =>
    typeof item === "bigint" ? String(item) : item instanceof JsonSource ? item.text : null,
  );
}

/** Writes JSON in which items are replaced by the text that `sourceOf` gives for them; null keeps an item. */
function withSources(value: unknown, sourceOf: (item: unknown) => string | null, indent?: number): string {
  const sources: string[] = [];
  const key = crypto.getRandomValues(new BigUint64Array(2)).join("-");
  const text = JSON.stringify(
    value,
    (_key, item) => {
      const source = sourceOf(item);
      return source === null ? item : `${key}:${sources.push(source) - 1}`;
    },
    indent,
  );
  if (sources.length === 0) return text;
  return text.replace(new RegExp(`"${key}:(\\d+)"`, "g"), (_, index) => sources[Number(index)]!);
}

/** A value of a JSON text as it is written there, and the list indices on its path. */
export interface JsonPlace {
  readonly indices: readonly number[];
  readonly text: string;
}

/** The texts of the values at a path of valid JSON text: `path` has keys of objects, and null for all items of a list. */
export function valueTexts(text: string, path: readonly (string | null)[]): JsonPlace[] {
  const found: JsonPlace[] = [];
  /** Skips the value at `start`, collects matches within it, and gives its end. */
  const pass = (start: number, depth: number, isOnPath: boolean, indices: readonly number[]): number => {
    const step = path[depth];
    const first = text[start]!;
    const end =
      isOnPath && depth < path.length && (first === "{") === (step !== null) && (first === "{" || first === "[")
        ? passItems(start, depth, indices)
        : endOfValue(text, start);
    if (isOnPath && depth === path.length) found.push({ indices, text: text.slice(start, end) });
    return end;
  };
  const passItems = (start: number, depth: number, indices: readonly number[]): number => {
    let at = endOfSpace(text, start + 1);
    for (let count = 0; text[at] !== "}" && text[at] !== "]"; count++) {
      let isOnPath = true;
      if (text[start] === "{") {
        const end = endOfString(text, at) + 1;
        isOnPath = JSON.parse(text.slice(at, end)) === path[depth];
        at = endOfSpace(text, endOfSpace(text, end) + 1);
      }
      at = endOfSpace(text, pass(at, depth + 1, isOnPath, path[depth] === null ? [...indices, count] : indices));
      if (text[at] === ",") at = endOfSpace(text, at + 1);
    }
    return at + 1;
  };
  pass(endOfSpace(text, 0), 0, true, []);
  return found;
}

function endOfSpace(text: string, start: number): number {
  let at = start;
  while (/[ \t\r\n]/.test(text[at] ?? "")) at++;
  return at;
}

/** Index after the value that begins at `start`. */
function endOfValue(text: string, start: number): number {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    const character = text[at]!;
    if (character === '"') at = endOfString(text, at);
    else if (character === "{" || character === "[") depth++;
    else if (character === "}" || character === "]") depth--;
    else if (depth > 0) continue;
    else {
      while (/[^,\]}\s]/.test(text[at] ?? ",")) at++;
      return at;
    }
    if (depth === 0) return at + 1;
  }
  return text.length;
}
