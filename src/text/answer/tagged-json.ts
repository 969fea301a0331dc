/** Calls as JSON after a marker: Hermes, Qwen, Granite, Phi, Command, Nemotron, EXAONE and others. */
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { readArguments, readBareCalls, readJsonCalls } from "./json.ts";

/** Markers that begin calls, with those that end them, which models may leave out. */
const MARKERS: readonly (readonly [begin: string, end: string])[] = [
  ["<tool_call>", "</tool_call>"],
  ["<|tool_call|>", "<|/tool_call|>"],
  ["<TOOLCALL>", "</TOOLCALL>"],
  ["<|START_ACTION|>", "<|END_ACTION|>"],
];

/** Call format of JSON objects, or a list of them, after a marker that the template contains. */
export function taggedJson(template: string): CallFormat {
  const used = MARKERS.filter(([begin]) => template.includes(begin));
  const pairs = used.length > 0 ? used : MARKERS.slice(0, 1);
  const [begin, end] = pairs[0]!;
  const call = { kind: "call", key: "arguments" } as const;
  return {
    steps: [{ kind: "text", text: `${begin}\n` }, call, { kind: "text", text: `\n${end}` }],
    starts: pairs.map(([begin]) => begin),
    specialTokens: pairs.flat(),
    *read(cursor, start, writer) {
      const end = pairs.find(([begin]) => begin === start)![1];
      const ends = [end, start];
      const isRead =
        (yield* cursor.attempt(() => readJsonCalls(cursor, writer, { ends }))) ||
        (yield* readNamedCall(cursor, writer, ends));
      if (!isRead) return false;
      while (yield* cursor.passes([end]));
      yield* cursor.attempt(() => passesLast(cursor, start));
      return true;
    },
    readBare: readBareCalls,
  };
}

/** Reads the name of a known tool and its arguments after it. */
function* readNamedCall(cursor: AnswerCursor, writer: AnswerWriter, ends: readonly string[]): Reading<boolean> {
  const head = yield* cursor.before(["{", ...ends]);
  const name = head?.text.trim() ?? "";
  if (!head || !writer.isKnown(name)) return false;
  cursor.skip(-head.marker.length);
  return yield* readArguments(cursor, writer, name, { ends });
}

/** Skips a begin marker at the end of the answer: some models write it where the end marker belongs. */
function* passesLast(cursor: AnswerCursor, marker: string): Reading<boolean> {
  yield* cursor.skipSpace();
  return (yield* cursor.takes(marker)) && (yield* cursor.skipSpace()) === "";
}
