/** Calls between special tokens, each with a header and JSON: DeepSeek and Kimi. */
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { readArguments } from "./json.ts";

interface SectionMarkers {
  readonly section: string;
  readonly call: string;
  readonly separator: string;
  readonly callEnd: string;
  readonly sectionEnd: string;
}

export const DEEPSEEK: SectionMarkers = {
  section: "<｜tool▁calls▁begin｜>",
  call: "<｜tool▁call▁begin｜>",
  separator: "<｜tool▁sep｜>",
  callEnd: "<｜tool▁call▁end｜>",
  sectionEnd: "<｜tool▁calls▁end｜>",
};

export const KIMI: SectionMarkers = {
  section: "<|tool_calls_section_begin|>",
  call: "<|tool_call_begin|>",
  separator: "<|tool_call_argument_begin|>",
  callEnd: "<|tool_call_end|>",
  sectionEnd: "<|tool_calls_section_end|>",
};

/**
 * Call format of these markers. `isFenced`: a kind before the name, and JSON in a code block, as the first DeepSeek models
 * write.
 */
export function sectioned(markers: SectionMarkers, isFenced = false): CallFormat {
  const head = markers === KIMI ? "functions." : isFenced ? `function${markers.separator}` : "";
  const between = markers === KIMI ? `:0${markers.separator}` : isFenced ? "\n```json\n" : markers.separator;
  return {
    steps: [
      { kind: "text", text: `${markers.section}${markers.call}${head}` },
      { kind: "name" },
      { kind: "text", text: between },
      { kind: "arguments" },
      { kind: "text", text: `${isFenced ? "\n```" : ""}${markers.callEnd}${markers.sectionEnd}` },
    ],
    starts: [markers.section, markers.call],
    specialTokens: Object.values(markers),
    *read(cursor, start, writer) {
      const first = yield* cursor.attempt(function* () {
        if (start === markers.section) {
          yield* cursor.skipSpace();
          if (!(yield* cursor.takes(markers.call))) return false;
        }
        return yield* readCall(cursor, writer, markers);
      });
      if (!first) return false;
      for (let isMore = true; isMore; ) {
        isMore = yield* cursor.attempt(function* () {
          yield* cursor.skipSpace();
          return (yield* cursor.takes(markers.call)) && (yield* readCall(cursor, writer, markers));
        });
      }
      yield* cursor.passes([markers.sectionEnd]);
      return true;
    },
  };
}

function* readCall(cursor: AnswerCursor, writer: AnswerWriter, markers: SectionMarkers): Reading<boolean> {
  const head = yield* cursor.before([markers.separator, markers.callEnd]);
  if (head?.marker !== markers.separator) return false;
  // The first DeepSeek models write a kind before the name, and JSON in a code block.
  let name = nameIn(head.text);
  if (head.text.trim() === "function") {
    const line = yield* cursor.before(["\n"]);
    if (!line) return false;
    name = nameIn(line.text);
  }
  yield* cursor.skipSpace();
  const isFenced = (yield* cursor.takes("```json")) || (yield* cursor.takes("```"));
  const ends = [...(isFenced ? ["```"] : []), markers.callEnd, markers.sectionEnd, markers.call];
  if (!(yield* readArguments(cursor, writer, name, { ends }))) return false;
  if (isFenced) yield* cursor.passes(["```"]);
  yield* cursor.passes([markers.callEnd]);
  return true;
}

/** The tool's name in a header such as `functions.get_weather:0`. */
function nameIn(head: string): string {
  return /^(?:functions\.)?([\w.-]+?)(?::\d+)?$/.exec(head.trim())?.[1] ?? "";
}
