/** Calls after `[TOOL_CALLS]`, as Mistral's models write them: a list of objects, or a name with its arguments. */
import type { CallFormat, CallStep } from "./call-format.ts";
import { passStray, readArguments, readJsonCalls } from "./json.ts";

const START = "[TOOL_CALLS]";
const ID = "[CALL_ID]";
const ARGUMENTS = "[ARGS]";

const MARKED: readonly CallStep[] = [
  ...([{ kind: "text", text: START }, { kind: "name" }, { kind: "text", text: ARGUMENTS }] as const),
  { kind: "arguments" },
];
const LISTED: readonly CallStep[] = [
  { kind: "text", text: `${START}[` },
  { kind: "call", key: "arguments" },
  { kind: "text", text: "]" },
];

/** Older models write a list of objects; those whose templates have a marker for arguments write the name before it. */
export const mistral = (template: string): CallFormat => ({
  steps: template.includes(ARGUMENTS) ? MARKED : LISTED,
  starts: [START],
  specialTokens: [START, ID, ARGUMENTS],
  *read(cursor, _, writer) {
    const ends = [START];
    const next = yield* cursor.skipSpace();
    if (next === "[" || next === "{") return yield* readJsonCalls(cursor, writer, { ends });
    const head = yield* cursor.before([ID, ARGUMENTS, "{", START]);
    const name = head?.text.trim() ?? "";
    if (!head || head.marker === START || !/^[\w.-]+$/.test(name)) return false;
    if (head.marker === ID && !(yield* cursor.before([ARGUMENTS]))) return false;
    if (head.marker === "{") cursor.skip(-1);
    if (!(yield* readArguments(cursor, writer, name, { ends }))) return false;
    yield* cursor.attempt(() => passStray(cursor, ends));
    return true;
  },
});
