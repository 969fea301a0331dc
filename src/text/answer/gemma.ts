/** Calls as `call:name{key:value}` between special tokens: FunctionGemma and Gemma 4. */
import type { CallFormat } from "./call-format.ts";
import { finish } from "./json.ts";
import { LiteralReader } from "./literal.ts";
import { textRule } from "./schema-types.ts";
import { WithheldCall } from "./withheld-call.ts";

interface GemmaMarkers {
  readonly start: string;
  readonly end: string;
  /** Delimiter at both ends of a string value. */
  readonly quote: string;
}

export const FUNCTION_GEMMA: GemmaMarkers = {
  ...{ start: "<start_function_call>", end: "<end_function_call>", quote: "<escape>" },
};
export const GEMMA_4: GemmaMarkers = { start: "<|tool_call>", end: "<tool_call|>", quote: '<|"|>' };

export function gemma({ start, end, quote }: GemmaMarkers): CallFormat {
  return {
    steps: [
      { kind: "text", text: `${start}call:` },
      { kind: "name" },
      { kind: "arguments" },
      { kind: "text", text: end },
    ],
    starts: [start],
    specialTokens: [start, end, quote],
    *read(cursor, _, writer) {
      yield* cursor.skipSpace();
      if (!(yield* cursor.takes("call:"))) return false;
      const head = yield* cursor.before(["{", end, "\n"]);
      const name = head?.text.trim() ?? "";
      if (head?.marker !== "{" || !/^[\w.-]+$/.test(name) || !writer.mayBegin(name)) return false;
      cursor.skip(-1);
      const call = new WithheldCall(writer, name);
      const tool = writer.tool(name);
      const ends = [end, start];
      const style = { kind: "gemma", quote, ends, textRule: (key: string) => textRule(tool, key) } as const;
      const outcome = yield* new LiteralReader(cursor, style, call.take).value();
      if (outcome === "broken" && !call.isStarted) return false;
      call.begin();
      yield* finish(cursor, outcome, call.take, ends);
      yield* cursor.passes([end]);
      return true;
    },
  };
}
