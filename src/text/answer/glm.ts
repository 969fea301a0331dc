/** Calls with keys and values in turn: GLM 4.5 and later. */
import type { CallFormat } from "./call-format.ts";
import { readJsonCalls } from "./json.ts";
import { escaped, isTextParameter, parameterValue } from "./parameter-values.ts";

const START = "<tool_call>";
const END = "</tool_call>";
const KEY = "<arg_key>";
const KEY_END = "</arg_key>";
const VALUE = "<arg_value>";
const VALUE_END = "</arg_value>";

export const glm: CallFormat = {
  steps: [
    { kind: "text", text: START },
    { kind: "call", key: "arguments" },
    { kind: "text", text: END },
  ],
  starts: [START],
  marks: [START, END, KEY, KEY_END, VALUE, VALUE_END],
  *read(cursor, _, writer) {
    // Answers that are held to a schema have calls as JSON.
    if ((yield* cursor.peek()) === "{") {
      if (!(yield* readJsonCalls(cursor, writer))) return false;
      yield* cursor.takes(END);
      return true;
    }
    const head = yield* cursor.before([KEY, END, "{", "\n"]);
    const name = head?.text.trim() ?? "";
    if (!head || head.mark === "{" || !/^[\w.-]+$/.test(name) || !writer.begin(name)) return false;
    cursor.skip(-head.mark.length);
    const tool = writer.tools.get(name);
    let count = 0;
    for (;;) {
      yield* cursor.skipSpace();
      if (yield* cursor.takes(END)) break;
      const key = yield* cursor.attempt(function* () {
        if (!(yield* cursor.takes(KEY))) return null;
        const found = yield* cursor.before([KEY_END]);
        yield* cursor.skipSpace();
        return found && (yield* cursor.takes(VALUE)) ? found : null;
      });
      if (!key) break;
      const parameter = key.text.trim();
      writer.argue(`${count++ === 0 ? "{" : ", "}${JSON.stringify(parameter)}: `);
      const isText = isTextParameter(tool, parameter);
      let text = "";
      if (isText) writer.argue('"');
      yield* cursor.until([VALUE_END], (piece) => {
        if (isText) writer.argue(escaped(piece));
        else text += piece;
      });
      writer.argue(isText ? '"' : parameterValue(tool, parameter, text));
    }
    writer.argue(count === 0 ? "{}" : "}");
    return true;
  },
};
