/** Calls as Llama 3.1 to 4 write them: JSON, bare or behind a token, Python's form, and tags with a name. */
import type { CallFormat } from "./call-format.ts";
import { readBareCalls, readJsonCalls, readValue } from "./json.ts";
import { readBarePythonCalls } from "./pythonic.ts";

const TAG = "<|python_tag|>";
const FUNCTION = "<function=";
const FUNCTION_END = "</function>";

export const llama: CallFormat = {
  steps: [{ kind: "call", key: "parameters" }],
  starts: [TAG, FUNCTION],
  marks: [TAG, FUNCTION, FUNCTION_END],
  *read(cursor, start, writer) {
    if (start === TAG) return yield* readJsonCalls(cursor, writer);
    const head = yield* cursor.before([">", "\n", "{"]);
    if (head?.mark !== ">") return false;
    if ((yield* cursor.skipSpace()) !== "{" || !writer.begin(head.text.trim())) return false;
    if (yield* readValue(cursor, writer.argue))
      yield* cursor.attempt(function* () {
        yield* cursor.skipSpace();
        return yield* cursor.takes(FUNCTION_END);
      });
    return true;
  },
  *readBare(cursor, writer) {
    return (yield* cursor.attempt(() => readBareCalls(cursor, writer))) || (yield* readBarePythonCalls(cursor, writer));
  },
};
