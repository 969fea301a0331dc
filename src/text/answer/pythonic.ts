/** Calls in Python syntax: LFM2 between its special tokens, OLMo 3 in tags, Llama 3.2 and 4 in a bare list. */
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { finish, type JsonCallOptions, readJsonCalls } from "./json.ts";
import { LiteralReader } from "./literal.ts";
import { parameterNames, textRule } from "./schema-types.ts";
import { WithheldCall } from "./withheld-call.ts";

const MARKERS: readonly (readonly [begin: string, end: string])[] = [
  ["<|tool_call_start|>", "<|tool_call_end|>"],
  ["<function_calls>", "</function_calls>"],
];

export function pythonic(template: string): CallFormat {
  const used = MARKERS.filter(([begin]) => template.includes(begin));
  const pairs = used.length > 0 ? used : MARKERS.slice(0, 1);
  const [begin, end] = pairs[0]!;
  const call = { kind: "call", key: "arguments" } as const;
  return {
    steps: [{ kind: "text", text: `${begin}[` }, call, { kind: "text", text: `]${end}` }],
    starts: pairs.map(([begin]) => begin),
    specialTokens: pairs.flat(),
    *read(cursor, start, writer) {
      const ends = [pairs.find(([begin]) => begin === start)![1]];
      const isRead =
        (yield* cursor.attempt(() => readPythonCalls(cursor, writer, { ends }))) ||
        (yield* readJsonCalls(cursor, writer, { ends }));
      if (isRead) yield* cursor.passes(ends);
      return isRead;
    },
    readBare: readBarePythonCalls,
  };
}

/** Reads a list of calls of known tools, without markers. */
export function* readBarePythonCalls(cursor: AnswerCursor, writer: AnswerWriter): Reading<boolean> {
  if ((yield* cursor.peek()) !== "[") return false;
  return yield* readPythonCalls(cursor, writer, { onlyKnown: true });
}

/** Reads calls in a list, or one after the other. False where there is none. */
export function* readPythonCalls(
  cursor: AnswerCursor,
  writer: AnswerWriter,
  options: JsonCallOptions,
): Reading<boolean> {
  const isList = (yield* cursor.skipSpace()) === "[";
  if (isList) cursor.skip(1);
  for (let count = 0; ; count++) {
    yield* cursor.skipSpace();
    if (!(yield* cursor.attempt(() => readCall(cursor, writer, options, isList)))) return count > 0;
    const next = yield* cursor.skipSpace();
    if (next === "," || next === ";") cursor.skip(1);
    else if (isList) {
      if (next === "]") cursor.skip(1);
      return true;
    }
  }
}

function* readCall(
  cursor: AnswerCursor,
  writer: AnswerWriter,
  { onlyKnown = false, ends = [] }: JsonCallOptions,
  isList: boolean,
): Reading<boolean> {
  const head = yield* cursor.before(["(", "\n", "<", "]"]);
  const name = head?.text.trim().replace(/\.call$/, "") ?? "";
  if (head?.marker !== "(" || !/^[A-Za-z_][\w.-]*$/.test(name)) return false;
  if ((onlyKnown && !writer.isKnown(name)) || !writer.mayBegin(name)) return false;
  const tool = writer.tool(name);
  const call = new WithheldCall(writer, name);
  const outer = isList ? ["]"] : [];
  const style = { kind: "python", ends, outer, textRule: (key: string) => textRule(tool, key) } as const;
  const outcome = yield* new LiteralReader(cursor, style, call.take).call(parameterNames(tool));
  if (outcome === "broken" && !call.isStarted) return false;
  call.begin();
  yield* finish(cursor, outcome, call.take, ends);
  return true;
}
