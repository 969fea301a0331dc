/** Calls between tokens of their own, each with a head and JSON: DeepSeek and Kimi. */
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { readArguments } from "./json.ts";

interface SectionMarks {
  readonly section: string;
  readonly call: string;
  readonly separator: string;
  readonly callEnd: string;
  readonly sectionEnd: string;
}

export const DEEPSEEK: SectionMarks = {
  section: "<｜tool▁calls▁begin｜>",
  call: "<｜tool▁call▁begin｜>",
  separator: "<｜tool▁sep｜>",
  callEnd: "<｜tool▁call▁end｜>",
  sectionEnd: "<｜tool▁calls▁end｜>",
};

export const KIMI: SectionMarks = {
  section: "<|tool_calls_section_begin|>",
  call: "<|tool_call_begin|>",
  separator: "<|tool_call_argument_begin|>",
  callEnd: "<|tool_call_end|>",
  sectionEnd: "<|tool_calls_section_end|>",
};

/** `isFenced`: DeepSeek's first models write a kind before the name, and JSON in a block of code. */
export function sectioned(marks: SectionMarks, isFenced = false): CallFormat {
  const head = marks === KIMI ? "functions." : isFenced ? `function${marks.separator}` : "";
  const between = marks === KIMI ? `:0${marks.separator}` : isFenced ? "\n```json\n" : marks.separator;
  return {
    steps: [
      { kind: "text", text: `${marks.section}${marks.call}${head}` },
      { kind: "name" },
      { kind: "text", text: between },
      { kind: "arguments" },
      { kind: "text", text: `${isFenced ? "\n```" : ""}${marks.callEnd}${marks.sectionEnd}` },
    ],
    starts: [marks.section, marks.call],
    marks: Object.values(marks),
    *read(cursor, start, writer) {
      const first = yield* cursor.attempt(function* () {
        if (start === marks.section) {
          yield* cursor.skipSpace();
          if (!(yield* cursor.takes(marks.call))) return false;
        }
        return yield* readCall(cursor, writer, marks);
      });
      if (!first) return false;
      for (let isMore = true; isMore; ) {
        isMore = yield* cursor.attempt(function* () {
          yield* cursor.skipSpace();
          return (yield* cursor.takes(marks.call)) && (yield* readCall(cursor, writer, marks));
        });
      }
      yield* cursor.passes([marks.sectionEnd]);
      return true;
    },
  };
}

function* readCall(cursor: AnswerCursor, writer: AnswerWriter, marks: SectionMarks): Reading<boolean> {
  const head = yield* cursor.before([marks.separator, marks.callEnd]);
  if (head?.mark !== marks.separator) return false;
  // DeepSeek's first models wrote a kind before the name, and JSON in a block of code.
  let name = nameIn(head.text);
  if (head.text.trim() === "function") {
    const line = yield* cursor.before(["\n"]);
    if (!line) return false;
    name = nameIn(line.text);
  }
  yield* cursor.skipSpace();
  const isFenced = (yield* cursor.takes("```json")) || (yield* cursor.takes("```"));
  const ends = [...(isFenced ? ["```"] : []), marks.callEnd, marks.sectionEnd, marks.call];
  if (!(yield* readArguments(cursor, writer, name, { ends }))) return false;
  if (isFenced) yield* cursor.passes(["```"]);
  yield* cursor.passes([marks.callEnd]);
  return true;
}

/** The name in a head such as `functions.get_weather:0`. */
function nameIn(head: string): string {
  return /^(?:functions\.)?([\w.-]+?)(?::\d+)?$/.exec(head.trim())?.[1] ?? "";
}
