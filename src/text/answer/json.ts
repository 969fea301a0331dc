/** Calls that are written as objects of JSON. */
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { LiteralReader, type Outcome } from "./literal.ts";
import { literalText, parsed } from "./parameter-values.ts";
import { parameterNames, textRule } from "./schema-types.ts";

const NAME_KEYS = ["name", "tool_name", "function", "tool"];
const ARGUMENT_KEYS = ["arguments", "parameters", "args"];
/** Keys of objects around a call. */
const WRAPPER_KEYS = ["function", "function_call", "tool_call", "tool_calls"];
/** Keys beside name and arguments that say nothing of a call. */
const OTHER_KEYS = ["id", "type", "index", "call_id", "tool_call_id"];

/** How calls that are written as objects are read. */
export interface JsonCallOptions {
  /** Whether only calls of tools that there are count: where nothing marks a call. */
  readonly onlyKnown?: boolean | undefined;
  /** Texts that end the calls: what is open there is closed. */
  readonly ends?: readonly string[] | undefined;
}

/**
 * Arguments of a call that has a name: an object of JSON, as it comes, or nothing in front of `ends`. False, and no call,
 * where there is neither. What breaks behind that is part of the arguments, up to one of `ends`.
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

/** Passes over what stands for no arguments in front of an end. */
function* isNothing(cursor: AnswerCursor, ends: readonly string[]): Reading<boolean> {
  for (const nothing of ["", "null", "None", '""']) {
    const at = yield* cursor.spaceEnd(nothing.length);
    if (!(yield* cursor.hasAt(0, nothing)) || !(yield* cursor.whichAt(at, ends))) continue;
    cursor.skip(at);
    return true;
  }
  return false;
}

/** Passes over what is left of arguments that are not whole: nothing that follows is text. */
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

/** A call that is written as an object with a name and arguments, in either order. False, and no call, where it is none. */
class JsonCall {
  readonly #cursor: AnswerCursor;
  readonly #writer: AnswerWriter;
  readonly #onlyKnown: boolean;
  readonly #ends: readonly string[];
  /** Brackets that end what is around a value. */
  readonly #outer: readonly string[];
  #name: string | null = null;
  /** Arguments that came before the name. */
  #early: string | null = null;
  /** Members that are neither, which may be arguments without an object of their own. */
  readonly #others: [key: string, value: string][] = [];
  #isBegun = false;

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
      if (key === null || !(yield* this.#member(key))) return this.#isBegun;
      const next = yield* cursor.skipSpace();
      if (next === ",") cursor.skip(1);
      else if (next === "}") break;
      else if (next !== '"' && next !== "'")
        return this.#isBegun || (yield* this.#isClosed(next)) ? this.#complete() : false;
    }
    cursor.skip(1);
    if (isDoubled)
      yield* cursor.attempt(function* () {
        return (yield* cursor.skipSpace()) === "}" && (yield* cursor.takes("}"));
      });
    return this.#complete();
  }

  /** Whether what ends a call stands here without its brace. */
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

  /** JSON of a value; null where it is none. */
  *#value(): Reading<string | null> {
    let text = "";
    const reader = this.#literals((piece) => {
      text += piece;
    });
    return (yield* reader.value()) === "whole" && parsed(text) !== undefined ? text : null;
  }

  /** The value behind a key. False where the object is no call. */
  *#member(key: string): Reading<boolean> {
    const next = yield* this.#cursor.skipSpace();
    const isObject = next === "{" || next === "[";
    if (this.#isBegun) return (yield* this.#value()) !== null;
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
    this.#isBegun = yield* this.#cursor.attempt(() => readCallList(this.#cursor, this.#writer, options));
    return this.#isBegun;
  }

  *#arguments(): Reading<boolean> {
    const cursor = this.#cursor;
    const name = this.#name;
    if (name !== null && (yield* cursor.peek()) === "{" && this.#isAllowed(name)) {
      this.#isBegun = yield* readArguments(cursor, this.#writer, name, { ends: this.#ends, outer: this.#outer });
      return this.#isBegun;
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
    this.#isBegun = this.#name !== null && this.#isAllowed(this.#name) && this.#writer.begin(this.#name);
    if (this.#isBegun) this.#writer.argue(text);
    return this.#isBegun;
  }

  /** The object has ended. */
  #complete(): boolean {
    if (this.#isBegun || this.#name === null) return this.#isBegun;
    const names = parameterNames(this.#writer.tool(this.#name));
    if (!this.#others.every(([key]) => names.includes(key))) return false;
    return this.#begin(`{${this.#others.map(([key, value]) => `${JSON.stringify(key)}: ${value}`).join(", ")}}`);
  }
}

/** The text of an object: of one, of a string that holds one, or of null; null for other values. */
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

/** Calls that are written as objects, one after the other or in a list. False where there is none. */
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

/** Calls that are written as objects, bare or in a block of code, and what stands behind them up to their end. */
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

/** Passes over brackets too many. False where something else than the end of the calls, or another one, follows. */
export function* passStray(cursor: AnswerCursor, ends: readonly string[]): Reading<boolean> {
  let next = yield* cursor.skipSpace();
  for (; next === "}" || next === "]"; next = yield* cursor.skipSpace()) cursor.skip(1);
  return next === "" || (yield* cursor.whichAt(0, ends)) !== false;
}

/** Calls of tools that there are, without markers, or in a block of code: small models leave the markers out. */
export function* readBareCalls(cursor: AnswerCursor, writer: AnswerWriter): Reading<boolean> {
  return yield* readJsonCalls(cursor, writer, { onlyKnown: true });
}
