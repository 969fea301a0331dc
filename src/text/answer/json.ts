/** Tool calls that are written as JSON objects. */
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { LiteralReader, type Outcome } from "./literal.ts";
import { literalText, parsed } from "./parameter-values.ts";
import { parameterNames, textRule } from "./schema-types.ts";

const NAME_KEYS = ["name", "tool_name", "function", "tool"];
const ARGUMENT_KEYS = ["arguments", "parameters", "args"];
/** Keys of objects that wrap a call. */
const WRAPPER_KEYS = ["function", "function_call", "tool_call", "tool_calls"];
/** Keys beside name and arguments that are ignored. */
const OTHER_KEYS = ["id", "type", "index", "call_id", "tool_call_id"];

/** Options for parsing calls that are written as JSON objects. */
export interface JsonCallOptions {
  /** Whether only calls of known tools count: for calls that no marker announces. */
  readonly onlyKnown?: boolean | undefined;
  /** Markers that end the calls: brackets still open there are closed. */
  readonly ends?: readonly string[] | undefined;
}

/**
 * Reads the arguments of a named call: a JSON object, as it comes, or nothing before one of `ends`. Returns false, without a
 * call, where there is neither. If the object is malformed, all text up to one of `ends` is part of the arguments.
 */
export function* readArguments(
  cursor: AnswerCursor,
  writer: AnswerWriter,
  name: string,
  { ends = [], outer = [] }: { readonly ends?: readonly string[] | undefined; readonly outer?: readonly string[] } = {},
): Reading<boolean> {
  const next = yield* cursor.skipSpace();
  if (next !== "{") {
    if (!(yield* isNothing(cursor, ends)) || !writer.begin(name)) return false;
    writer.argue("{}");
    return true;
  }
  if (!writer.begin(name)) return false;
  const tool = writer.tool(name);
  const style = { kind: "json", ends, outer, textRule: (key: string) => textRule(tool, key) } as const;
  const reader = new LiteralReader(cursor, style, writer.argue);
  yield* finish(cursor, yield* reader.value(), writer.argue, ends);
  return true;
}

/** Skips text that stands for missing arguments (nothing, null, None, "") before an end marker. False where there is none. */
function* isNothing(cursor: AnswerCursor, ends: readonly string[]): Reading<boolean> {
  for (const nothing of ["", "null", "None", '""']) {
    const at = yield* cursor.spaceEnd(nothing.length);
    if (!(yield* cursor.hasAt(0, nothing)) || !(yield* cursor.whichAt(at, ends))) continue;
    cursor.skip(at);
    return true;
  }
  return false;
}

/** Skips what is left of incomplete arguments, so that it does not become text. */
export function* finish(
  cursor: AnswerCursor,
  outcome: Outcome,
  take: (text: string) => void,
  ends: readonly string[],
): Reading<void> {
  if (outcome === "cut") cursor.skip(cursor.rest.length);
  if (outcome !== "broken") return;
  const end = yield* cursor.until(ends, take);
  if (end !== null) cursor.skip(-end.length);
}

/** Parses a call written as an object with a name and arguments, in either order. False, without a call, where it is none. */
class JsonCall {
  readonly #cursor: AnswerCursor;
  readonly #writer: AnswerWriter;
  readonly #onlyKnown: boolean;
  readonly #ends: readonly string[];
  /** Closing brackets of what encloses the value. */
  readonly #outer: readonly string[];
  #name: string | null = null;
  /** Arguments that came before the name. */
  #early: string | null = null;
  /** Other members: arguments that were written without an object of their own, perhaps. */
  readonly #others: [key: string, value: string][] = [];
  #isStarted = false;

  constructor(
    cursor: AnswerCursor,
    writer: AnswerWriter,
    { onlyKnown = false, ends = [] }: JsonCallOptions,
    isListed: boolean,
  ) {
    this.#outer = isListed ? ["]", "}"] : ["}"];
    this.#cursor = cursor;
    this.#writer = writer;
    this.#onlyKnown = onlyKnown;
    this.#ends = ends;
  }

  *read(): Reading<boolean> {
    const cursor = this.#cursor;
    if (!(yield* cursor.takes("{"))) return false;
    const isDoubled = (yield* cursor.skipSpace()) === "{";
    if (isDoubled) cursor.skip(1);
    for (;;) {
      if ((yield* cursor.skipSpace()) === "}") break;
      const key = yield* this.#key();
      if (key === null || !(yield* this.#member(key))) return this.#isStarted;
      const next = yield* cursor.skipSpace();
      if (next === ",") cursor.skip(1);
      else if (next === "}") break;
      else if (next !== '"' && next !== "'")
        return this.#isStarted || (yield* this.#isClosed(next)) ? this.#complete() : false;
    }
    cursor.skip(1);
    if (isDoubled)
      yield* cursor.attempt(function* () {
        return (yield* cursor.skipSpace()) === "}" && (yield* cursor.takes("}"));
      });
    return this.#complete();
  }

  /** Whether an enclosing bracket or an end marker stands here, so that the call's closing brace is missing. */
  *#isClosed(next: string): Reading<boolean> {
    return this.#outer.includes(next) || Boolean(yield* this.#cursor.whichAt(0, this.#ends));
  }

  *#key(): Reading<string | null> {
    const key = yield* this.#literals(() => {}).key();
    return typeof key === "string" ? null : key.key;
  }

  #literals(take: (text: string) => void): LiteralReader {
    return new LiteralReader(this.#cursor, { kind: "json", ends: this.#ends, outer: this.#outer }, take);
  }

  /** Reads a value and returns its JSON; null where there is no value. */
  *#value(): Reading<string | null> {
    let text = "";
    const reader = this.#literals((piece) => {
      text += piece;
    });
    return (yield* reader.value()) === "whole" && parsed(text) !== undefined ? text : null;
  }

  /** Reads the value of a key. False where the object is no call. */
  *#member(key: string): Reading<boolean> {
    const next = yield* this.#cursor.skipSpace();
    const isObject = next === "{" || next === "[";
    if (this.#isStarted) return (yield* this.#value()) !== null;
    if (isObject && this.#name === null) {
      if (WRAPPER_KEYS.includes(key)) return yield* this.#wrapped();
      if (next === "{" && !ARGUMENT_KEYS.includes(key) && this.#writer.isKnown(key) && this.#others.length === 0) {
        this.#name = key;
        return yield* this.#arguments();
      }
    }
    if (this.#name === null && NAME_KEYS.includes(key) && !isObject) {
      const name = parsed((yield* this.#value()) ?? "");
      if (typeof name !== "string") return false;
      this.#name = name;
      return this.#early === null || this.#begin(this.#early);
    }
    if (this.#early === null && ARGUMENT_KEYS.includes(key)) return yield* this.#arguments();
    const value = yield* this.#value();
    if (value !== null && !OTHER_KEYS.includes(key)) this.#others.push([key, value]);
    return value !== null;
  }

  *#wrapped(): Reading<boolean> {
    const options = { onlyKnown: this.#onlyKnown, ends: this.#ends };
    this.#isStarted = yield* this.#cursor.attempt(() => readCallList(this.#cursor, this.#writer, options));
    return this.#isStarted;
  }

  *#arguments(): Reading<boolean> {
    const cursor = this.#cursor;
    const name = this.#name;
    if (name !== null && (yield* cursor.peek()) === "{" && this.#isAllowed(name)) {
      this.#isStarted = yield* readArguments(cursor, this.#writer, name, { ends: this.#ends, outer: this.#outer });
      return this.#isStarted;
    }
    const value = yield* this.#value();
    this.#early = value === null ? null : objectText(value);
    if (this.#early === null) return false;
    return name === null || this.#begin(this.#early);
  }

  #isAllowed(name: string): boolean {
    return (!this.#onlyKnown || this.#writer.isKnown(name)) && this.#writer.mayBegin(name);
  }

  #begin(text: string): boolean {
    this.#isStarted = this.#name !== null && this.#isAllowed(this.#name) && this.#writer.begin(this.#name);
    if (this.#isStarted) this.#writer.argue(text);
    return this.#isStarted;
  }

  /** Ends the object; returns whether it was a call. */
  #complete(): boolean {
    if (this.#isStarted || this.#name === null) return this.#isStarted;
    const names = parameterNames(this.#writer.tool(this.#name));
    if (!this.#others.every(([key]) => names.includes(key))) return false;
    return this.#begin(`{${this.#others.map(([key, value]) => `${JSON.stringify(key)}: ${value}`).join(", ")}}`);
  }
}

/** JSON of an object: the value itself, an object within a string, or {} for null; null for other values. */
function objectText(text: string): string | null {
  const value = parsed(text);
  if (value === null) return "{}";
  if (typeof value !== "string") return isObject(value) ? text : null;
  if (value.trim() === "") return "{}";
  const inner = parsed(value) === undefined ? literalText(value, "json") : value;
  return inner !== null && isObject(parsed(inner)) ? inner : null;
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Reads calls written as objects, one after the other or in a list. False where there is none. */
function* readCallList(cursor: AnswerCursor, writer: AnswerWriter, options: JsonCallOptions): Reading<boolean> {
  const isList = (yield* cursor.skipSpace()) === "[";
  if (isList) cursor.skip(1);
  for (let count = 0; ; count++) {
    const next = yield* cursor.skipSpace();
    const isCall = next === "{" && (yield* cursor.attempt(() => new JsonCall(cursor, writer, options, isList).read()));
    if (!isCall) return count > 0;
    const separator = yield* cursor.skipSpace();
    if (isList && separator === "]") {
      cursor.skip(1);
      return true;
    }
    if (separator === "," || separator === ";") cursor.skip(1);
    else if (isList || separator !== "{") return true;
  }
}

const FENCES = ["```json", "```"];

/** Reads calls written as objects, bare or in a fenced code block, and skips what follows up to their end marker. */
export function* readJsonCalls(
  cursor: AnswerCursor,
  writer: AnswerWriter,
  options: JsonCallOptions = {},
): Reading<boolean> {
  yield* cursor.skipSpace();
  let fence = false;
  for (const text of FENCES) fence ||= yield* cursor.takes(text);
  if (!(yield* readCallList(cursor, writer, options))) return false;
  yield* cursor.attempt(() => passStray(cursor, [...(options.ends ?? []), ...(fence ? ["```"] : [])]));
  if (fence) yield* cursor.passes(["```"]);
  return true;
}

/** Skips surplus closing brackets. False where neither an end marker, the end of the text nor another call follows. */
export function* passStray(cursor: AnswerCursor, ends: readonly string[]): Reading<boolean> {
  let next = yield* cursor.skipSpace();
  for (; next === "}" || next === "]"; next = yield* cursor.skipSpace()) cursor.skip(1);
  return next === "" || (yield* cursor.whichAt(0, ends)) !== false;
}

/** Reads calls of known tools without markers, perhaps in a code block: small models leave the markers out. */
export function* readBareCalls(cursor: AnswerCursor, writer: AnswerWriter): Reading<boolean> {
  return yield* readJsonCalls(cursor, writer, { onlyKnown: true });
}
