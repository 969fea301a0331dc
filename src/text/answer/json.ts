/** JSON within an answer: values found as they come, and calls that are written as objects. */
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";

const NAME_KEYS = ["name", "tool_name", "function"];
const ARGUMENT_KEYS = ["arguments", "parameters", "args"];

/** How a call that is written as an object is read. */
export interface JsonCallOptions {
  /** Whether only calls of tools that there are count: where nothing marks a call. */
  readonly onlyKnown?: boolean | undefined;
}

/** A value of JSON to `take`, piece by piece; control characters in strings are escaped. False where it is none. */
export function* readValue(cursor: AnswerCursor, take: (text: string) => void): Reading<boolean> {
  const scan = new ValueScan();
  for (;;) {
    const next = yield* cursor.peek();
    if (next === "") return scan.isComplete;
    const { length, text, state } = scan.read(cursor.rest);
    cursor.skip(length);
    take(text);
    if (state !== "more") return state === "done";
  }
}

/** A value of JSON as text; null where it is none, at the same place. */
export function* wholeValue(cursor: AnswerCursor): Reading<string | null> {
  return yield* cursor.attempt(function* () {
    let text = "";
    const isValue = yield* readValue(cursor, (piece) => {
      text += piece;
    });
    return isValue && parsed(text) !== undefined ? text : null;
  });
}

/** A string of JSON; null where it is none, at the same place. */
export function* wholeString(cursor: AnswerCursor): Reading<string | null> {
  if ((yield* cursor.peek()) !== '"') return null;
  const text = yield* wholeValue(cursor);
  return text === null ? null : (parsed(text) as string);
}

/** The value of a text of JSON; undefined where it is none. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * A call that is written as an object with a name and arguments, in either order. False where it is none, before a call
 * has begun; what is wrong behind that is left for others to read.
 */
export function* readJsonCall(
  cursor: AnswerCursor,
  writer: AnswerWriter,
  { onlyKnown = false }: JsonCallOptions = {},
): Reading<boolean> {
  if (!(yield* cursor.takes("{"))) return false;
  let name: string | null = null;
  let early: string | null = null;
  let isBegun = false;
  const begin = (): boolean => {
    isBegun = name !== null && (!onlyKnown || writer.tools.has(name)) && writer.begin(name);
    return isBegun;
  };
  for (;;) {
    yield* cursor.skipSpace();
    const key = yield* wholeString(cursor);
    if (key === null) return isBegun;
    if ((yield* cursor.skipSpace()) !== ":") return isBegun;
    cursor.skip(1);
    const next = yield* cursor.skipSpace();
    if (name === null && NAME_KEYS.includes(key) && next === '"') {
      name = yield* wholeString(cursor);
      if (name === null) return false;
      if (early !== null) {
        if (!begin()) return false;
        writer.argue(early);
      }
    } else if (!isBegun && early === null && ARGUMENT_KEYS.includes(key)) {
      if (next === "{" && name !== null) {
        if (!begin()) return false;
        if (!(yield* readValue(cursor, writer.argue))) return true;
      } else {
        const value: string | null = yield* wholeValue(cursor);
        early = value === null ? null : objectText(value);
        if (early === null) return false;
        if (name !== null) {
          if (!begin()) return false;
          writer.argue(early);
        }
      }
    } else if ((yield* wholeValue(cursor)) === null) return isBegun;
    const separator = yield* cursor.skipSpace();
    if (separator !== "," && separator !== "}") return isBegun;
    cursor.skip(1);
    if (separator === ",") continue;
    if (isBegun) return true;
    if (!begin()) return false;
    writer.argue("{}");
    return true;
  }
}

/** The text of an object: of one, of a string that holds one, or of null; null for other values. */
function objectText(text: string): string | null {
  const value = parsed(text);
  if (value === null) return "{}";
  if (typeof value === "string") return value.trim() === "" ? "{}" : isObject(parsed(value)) ? value : null;
  return isObject(value) ? text : null;
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Calls that are written as objects, one after the other or in a list. False where there is none. */
export function* readJsonCalls(
  cursor: AnswerCursor,
  writer: AnswerWriter,
  options: JsonCallOptions = {},
): Reading<boolean> {
  let next = yield* cursor.skipSpace();
  const isList = next === "[";
  if (isList) cursor.skip(1);
  for (let count = 0; ; count++) {
    next = yield* cursor.skipSpace();
    const isCall = next === "{" && (yield* cursor.attempt(() => readJsonCall(cursor, writer, options)));
    if (!isCall) return count > 0;
    next = yield* cursor.skipSpace();
    if (isList && next === "]") {
      cursor.skip(1);
      return true;
    }
    if (isList && next !== ",") return true;
    if (next === "," || next === ";") cursor.skip(1);
    else if (next !== "{") return true;
  }
}

const FENCES = ["```json", "```"];

/** Calls of tools that there are, without marks, or in a block of code: small models leave the marks out. */
export function* readBareCalls(cursor: AnswerCursor, writer: AnswerWriter): Reading<boolean> {
  let fence = false;
  for (const text of FENCES) fence ||= yield* cursor.takes(text);
  if (!(yield* readJsonCalls(cursor, writer, { onlyKnown: true }))) return false;
  if (fence)
    yield* cursor.attempt(function* () {
      yield* cursor.skipSpace();
      return yield* cursor.takes("```");
    });
  return true;
}

interface ScanStep {
  /** Characters read. */
  readonly length: number;
  /** What they are in JSON. */
  readonly text: string;
  readonly state: "more" | "done" | "wrong";
}

/** Finds the end of a value: brackets match, and strings end. */
class ValueScan {
  readonly #open: string[] = [];
  #inString = false;
  #isEscaped = false;
  /** Whether the value is a number or word, which ends where something else begins. */
  #isWord = false;
  #isBegun = false;

  /** Whether the value is whole when nothing follows. */
  get isComplete(): boolean {
    return this.#isWord && this.#open.length === 0;
  }

  read(rest: string): ScanStep {
    let text = "";
    for (let i = 0; i < rest.length; i++) {
      const character = rest[i]!;
      if (this.#isWord && this.#open.length === 0 && /[\s,\]}:]/.test(character))
        return { length: i, text, state: "done" };
      text += this.#inString && character < " " ? JSON.stringify(character).slice(1, -1) : character;
      const state = this.#inString ? this.#string(character) : this.#outside(character);
      if (state !== "more") return { length: i + 1, text, state };
    }
    return { length: rest.length, text, state: "more" };
  }

  #string(character: string): ScanStep["state"] {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (character === "\\") this.#isEscaped = true;
    else if (character === '"') {
      this.#inString = false;
      return this.#open.length === 0 ? "done" : "more";
    }
    return "more";
  }

  #outside(character: string): ScanStep["state"] {
    const isFirst = !this.#isBegun;
    this.#isBegun = true;
    if (character === '"') this.#inString = true;
    else if (character === "{" || character === "[") this.#open.push(character === "{" ? "}" : "]");
    else if (character === "}" || character === "]") {
      if (this.#open.pop() !== character) return "wrong";
      return this.#open.length === 0 ? "done" : "more";
    } else if (isFirst) this.#isWord = true;
    if (isFirst && this.#isWord && !/[-\w]/.test(character)) return "wrong";
    return "more";
  }
}
