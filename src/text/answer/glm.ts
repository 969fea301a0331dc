/** Calls with alternating keys and values: GLM 4.5 and later. */
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { readJsonCalls } from "./json.ts";
import { ParameterValue } from "./parameter-values.ts";
import { parameterNames } from "./schema-types.ts";
import { type Following, TaggedText } from "./tagged-text.ts";

const START = "<tool_call>";
const END = "</tool_call>";
const KEY = "<arg_key>";
const KEY_END = "</arg_key>";
const VALUE = "<arg_value>";
const VALUE_END = "</arg_value>";
const STRAY = [VALUE_END, KEY_END, END];

export const glm: CallFormat = {
  steps: [
    { kind: "text", text: START },
    { kind: "call", key: "arguments" },
    { kind: "text", text: END },
  ],
  starts: [START],
  specialTokens: [START, END, KEY, KEY_END, VALUE, VALUE_END],
  *read(cursor, _, writer) {
    // Answers constrained to a schema write calls as JSON.
    if ((yield* cursor.skipSpace()) === "{") {
      if (!(yield* readJsonCalls(cursor, writer, { ends: [END] }))) return false;
      yield* cursor.passes([END]);
      return true;
    }
    const head = yield* cursor.before([KEY, END, "{", "\n"]);
    const name = head?.text.trim() ?? "";
    if (!head || head.marker === "{" || !/^[\w.-]+$/.test(name) || !writer.mayBegin(name)) return false;
    cursor.skip(-head.marker.length);
    yield* cursor.skipSpace();
    const first = yield* readKey(cursor);
    if (first === null && !(yield* cursor.takes(END))) return false;
    writer.begin(name);
    writer.argue("{");
    if (first === null) writer.argue("}");
    else yield* readParameters(cursor, writer, name, first);
    return true;
  },
};

/** Reads a key and the marker before its value; null where there is no key. */
function* readKey(cursor: AnswerCursor): Reading<string | null> {
  return yield* cursor.attempt(function* () {
    yield* cursor.skipSpace();
    if (!(yield* cursor.takes(KEY))) return null;
    const found = yield* cursor.before([KEY_END]);
    yield* cursor.skipSpace();
    return found && (yield* cursor.takes(VALUE)) ? found.text.trim() : null;
  });
}

/** Reads values and further keys up to the end of the call. */
function* readParameters(cursor: AnswerCursor, writer: AnswerWriter, name: string, first: string): Reading<void> {
  const tool = writer.tool(name);
  const due = new Set(parameterNames(tool));
  const hasNames = due.size > 0;
  for (let key: string | null = first, count = 0; key !== null; key = yield* readKey(cursor), count++) {
    due.delete(key);
    writer.argue(`${count === 0 ? "" : ", "}${JSON.stringify(key)}: `);
    const value = new ParameterValue(tool, key, writer.argue);
    const text = new TaggedText(cursor, {
      close: VALUE_END,
      nested: VALUE,
      ends: [KEY, END],
      follows,
      endsAt: (marker) => endsAt(cursor, marker, (next) => !hasNames || due.has(next)),
    });
    if (!(yield* text.read(value.write))) return;
    value.end();
  }
  if (yield* cursor.passes([END])) writer.argue("}");
  else cursor.skip(cursor.rest.length);
}

/** Classifies what follows a value's end marker, from an offset on. */
function* follows(cursor: AnswerCursor, offset: number): Reading<Following> {
  const at = yield* cursor.spaceEnd(offset);
  const marker = yield* cursor.whichAt(at, [KEY, END]);
  if (marker === null) return "cut";
  if (marker === false) return "other";
  return marker === KEY ? "end" : yield* behindEnd(cursor, at + END.length);
}

/** Classifies a call's end marker: it counts only if no marker that belongs inside a call follows. */
function* behindEnd(cursor: AnswerCursor, offset: number): Reading<Following> {
  const at = yield* cursor.spaceEnd(offset);
  return (yield* cursor.whichAt(at, STRAY)) ? "other" : "end";
}

/** Whether a value without an end marker ends at this marker: the key of a parameter not yet given, or the end of the call. */
function* endsAt(cursor: AnswerCursor, marker: string, isDue: (key: string) => boolean): Reading<boolean> {
  if (marker === END) return (yield* behindEnd(cursor, END.length)) === "end";
  let key: string | null = null;
  yield* cursor.attempt(function* () {
    key = yield* readKey(cursor);
    return null;
  });
  return key !== null && isDue(key);
}
