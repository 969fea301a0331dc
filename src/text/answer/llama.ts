/** Calls as Llama 3.1 to 4 write them: JSON, bare or after a token; Python; and tags with a name. */
import type { CallFormat } from "./call-format.ts";
import { readArguments, readBareCalls, readJsonCalls } from "./json.ts";
import { readBarePythonCalls, readPythonCalls } from "./pythonic.ts";

/** Tokens that begin calls, with those that end them. */
const TOKENS: Readonly<Record<string, string>> = {
  "<|python_tag|>": "<|eom_id|>",
  "<|python_start|>": "<|python_end|>",
};
const FUNCTION = "<function=";
const FUNCTION_END = "</function>";
const STARTS = [...Object.keys(TOKENS), FUNCTION];

export const llama: CallFormat = {
  steps: [{ kind: "call", key: "parameters" }],
  starts: STARTS,
  specialTokens: [...STARTS, ...Object.values(TOKENS), FUNCTION_END],
  *read(cursor, start, writer) {
    if (start !== FUNCTION) {
      const ends = [TOKENS[start]!];
      const isRead =
        (yield* cursor.attempt(() => readJsonCalls(cursor, writer, { ends }))) ||
        (yield* readPythonCalls(cursor, writer, { ends, onlyKnown: true }));
      if (isRead) yield* cursor.passes(ends);
      return isRead;
    }
    const head = yield* cursor.before([">", "\n", "{"]);
    if (head?.marker !== ">") return false;
    const ends = [FUNCTION_END];
    if (!(yield* readArguments(cursor, writer, head.text.trim(), { ends }))) return false;
    yield* cursor.passes(ends);
    return true;
  },
  *readBare(cursor, writer) {
    return (yield* cursor.attempt(() => readBareCalls(cursor, writer))) || (yield* readBarePythonCalls(cursor, writer));
  },
};
