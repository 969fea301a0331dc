/** Calls with a tag for each parameter: Qwen3-Coder, Qwen3.5, Nemotron, Step, Seed-OSS and others. */
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { readArguments, readJsonCalls } from "./json.ts";
import { ParameterValue } from "./parameter-values.ts";
import { parameterNames } from "./schema-types.ts";
import { type Following, TaggedText } from "./tagged-text.ts";

const FUNCTION = "<function=";
const FUNCTION_END = "</function>";
const PARAMETER = "<parameter=";
const PARAMETER_END = "</parameter>";
const WRAPPERS = ["<tool_call>", "<seed:tool_call>"];

export function xmlParameters(template: string): CallFormat {
  const wrappers = WRAPPERS.filter((marker) => template.includes(marker));
  const starts = [...wrappers, FUNCTION];
  const call = { kind: "call", key: "arguments" } as const;
  const outer = wrappers[0] ?? WRAPPERS[0]!;
  const reader = { wrappers, ends: wrappers.map((marker) => marker.replace("<", "</")) };
  return {
    steps: [{ kind: "text", text: `${outer}\n` }, call, { kind: "text", text: `\n${outer.replace("<", "</")}` }],
    starts,
    specialTokens: [...starts, ...reader.ends, FUNCTION_END, PARAMETER, PARAMETER_END],
    *read(cursor, start, writer) {
      const functions = new FunctionReader(cursor, writer, reader, start !== FUNCTION);
      if (start !== FUNCTION && (yield* cursor.skipSpace()) === "{") {
        // Answers constrained to a schema write calls as JSON.
        if (!(yield* readJsonCalls(cursor, writer, { ends: reader.ends }))) return false;
      } else {
        if (start !== FUNCTION && !(yield* cursor.takes(FUNCTION))) return false;
        if (!(yield* functions.read())) return false;
      }
      for (let isMore = true; isMore; ) {
        isMore = yield* cursor.attempt(function* () {
          yield* cursor.skipSpace();
          return (yield* cursor.takes(FUNCTION)) && (yield* functions.read());
        });
      }
      while (yield* cursor.passes(reader.ends));
      return true;
    },
  };
}

/** Markers around functions, and those that end them. */
interface WrapperMarkers {
  readonly wrappers: readonly string[];
  readonly ends: readonly string[];
}

class FunctionReader {
  readonly #cursor: AnswerCursor;
  readonly #writer: AnswerWriter;
  readonly #markers: WrapperMarkers;
  /** Whether a wrapper marker stood before the function. */
  readonly #isWrapped: boolean;

  constructor(cursor: AnswerCursor, writer: AnswerWriter, markers: WrapperMarkers, isWrapped: boolean) {
    this.#cursor = cursor;
    this.#writer = writer;
    this.#markers = markers;
    this.#isWrapped = isWrapped;
  }

  /** Reads a function after its marker. False, without a call, where it is none. */
  *read(): Reading<boolean> {
    const cursor = this.#cursor;
    const head = yield* cursor.before([">", "\n", "<"]);
    const name = head?.text.trim() ?? "";
    if (head?.marker !== ">" || !this.#writer.mayBegin(name)) return false;
    if ((yield* cursor.skipSpace()) === "{") {
      const ends = [FUNCTION_END, ...this.#markers.ends];
      if (!(yield* readArguments(cursor, this.#writer, name, { ends }))) return false;
      yield* cursor.passes([FUNCTION_END]);
      return true;
    }
    const first = yield* this.#key();
    if (first === null && !(yield* this.#end())) return false;
    this.#writer.begin(name);
    this.#writer.argue("{");
    if (first === null || (yield* this.#parameters(name, first))) this.#writer.argue("}");
    return true;
  }

  /** Reads parameters, from the first one's value on, and the end of the function. False where the text ends before that. */
  *#parameters(name: string, first: string): Reading<boolean> {
    const cursor = this.#cursor;
    const tool = this.#writer.tool(name);
    const due = new Set(parameterNames(tool));
    const hasNames = due.size > 0;
    for (let key: string | null = first, count = 0; key !== null; key = yield* this.#key(), count++) {
      due.delete(key);
      this.#writer.argue(`${count === 0 ? "" : ", "}${JSON.stringify(key)}: `);
      const value = new ParameterValue(tool, key, this.#writer.argue);
      const text = new TaggedText(cursor, {
        close: PARAMETER_END,
        nested: PARAMETER,
        ends: [PARAMETER, FUNCTION_END, ...this.#markers.ends],
        inLines: !this.#markers.wrappers.includes("<seed:tool_call>"),
        follows: (_, offset) => this.#follows(offset),
        endsAt: (marker) => this.#endsAt(marker, (next) => !hasNames || due.has(next)),
      });
      if (!(yield* text.read(value.write))) return false;
      value.end();
    }
    if (yield* this.#end()) return true;
    cursor.skip(cursor.rest.length);
    return false;
  }

  /** Reads a parameter's marker and name; null where none follows. */
  *#key(): Reading<string | null> {
    const cursor = this.#cursor;
    return yield* cursor.attempt(function* () {
      yield* cursor.skipSpace();
      if (!(yield* cursor.takes(PARAMETER))) return null;
      const found = yield* cursor.before([">", "\n", "<"]);
      if (found === null || found.marker === "<" || !/^[^\s"'`=]+$/.test(found.text.trim())) return null;
      if (found.marker === "\n") cursor.skip(-1);
      return found.text.trim();
    });
  }

  /** Skips the function's end marker. Without one, returns whether another function or an end marker follows. */
  *#end(): Reading<boolean> {
    const cursor = this.#cursor;
    if (yield* cursor.attempt(() => passesWhole(cursor, [FUNCTION_END]))) return true;
    const at = yield* cursor.spaceEnd(0);
    return Boolean(yield* cursor.whichAt(at, [FUNCTION, ...this.#markers.ends]));
  }

  /** Classifies what follows a parameter's end marker, from an offset on. */
  *#follows(offset: number): Reading<Following> {
    const cursor = this.#cursor;
    const { wrappers, ends } = this.#markers;
    const at = yield* cursor.spaceEnd(offset);
    const marker = yield* cursor.whichAt(at, [PARAMETER, FUNCTION_END, ...ends]);
    if (marker === null) return "cut";
    if (marker === false || marker === PARAMETER) return marker ? "end" : "other";
    if (marker !== FUNCTION_END) return yield* this.#behindWrapper(at + marker.length);
    const behind = yield* cursor.spaceEnd(at + marker.length);
    const next = yield* cursor.whichAt(behind, [FUNCTION, ...wrappers, ...ends, FUNCTION_END, PARAMETER_END]);
    if (next === FUNCTION_END || next === PARAMETER_END) return "other";
    if (next && ends.includes(next)) return yield* this.#behindWrapper(behind + next.length);
    return next === false && this.#isWrapped ? "perhaps" : "end";
  }

  /** Classifies a wrapper's end marker: it counts only if no marker that belongs inside a wrapper follows. */
  *#behindWrapper(offset: number): Reading<Following> {
    const at = yield* this.#cursor.spaceEnd(offset);
    return (yield* this.#cursor.whichAt(at, [PARAMETER_END, FUNCTION_END])) ? "other" : "end";
  }

  /** Whether a value without an end marker ends at this marker. */
  *#endsAt(marker: string, isDue: (key: string) => boolean): Reading<boolean> {
    const cursor = this.#cursor;
    if (marker === PARAMETER) {
      let key: string | null = null;
      const find = () => this.#key();
      yield* cursor.attempt(function* () {
        key = yield* find();
        return null;
      });
      return key !== null && isDue(key);
    }
    if (marker !== FUNCTION_END) return (yield* this.#behindWrapper(marker.length)) === "end";
    const at = yield* cursor.spaceEnd(marker.length);
    const { wrappers, ends } = this.#markers;
    return (yield* cursor.whichAt(at, [FUNCTION, ...wrappers, ...ends])) !== false;
  }
}

/** Skips white space and a complete marker. */
function* passesWhole(cursor: AnswerCursor, markers: readonly string[]): Reading<boolean> {
  const at = yield* cursor.spaceEnd(0);
  const marker = yield* cursor.whichAt(at, markers);
  if (marker) cursor.skip(at + marker.length);
  return Boolean(marker);
}
