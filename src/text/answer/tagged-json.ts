/** Calls as JSON after a marker: Hermes, Qwen, Granite, Phi, Command, Nemotron, EXAONE and others. */
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { readArguments, readBareCalls, readJsonCalls } from "./json.ts";

/** Marks before calls, with those behind, which models may leave out. */
const MARKERS: readonly (readonly [begin: string, end: string])[] = [
  ["<tool_call>", "</tool_call>"],
  ["<|tool_call|>", "<|/tool_call|>"],
  ["<TOOLCALL>", "</TOOLCALL>"],
  ["<|START_ACTION|>", "<|END_ACTION|>"],
];

/** Calls as objects, or as a list of them, behind a marker that the template has. */
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

/** The name of a tool that there is, and its arguments behind it. */
function* readNamedCall(cursor: AnswerCursor, writer: AnswerWriter, ends: readonly string[]): Reading<boolean> {
  const head = yield* cursor.before(["{", ...ends]);
  const name = head?.text.trim() ?? "";
  if (!head || !writer.isKnown(name)) return false;
  cursor.skip(-head.marker.length);
  return yield* readArguments(cursor, writer, name, { ends });
}

/** Passes over a marker with which the answer ends: models write the one that begins calls for the one that ends them. */
function* passesLast(cursor: AnswerCursor, marker: string): Reading<boolean> {
  yield* cursor.skipSpace();
  return (yield* cursor.takes(marker)) && (yield* cursor.skipSpace()) === "";
}
