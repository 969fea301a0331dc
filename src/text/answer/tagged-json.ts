/** Calls as JSON after a mark: Hermes, Qwen, Granite, Phi, Command, Nemotron, EXAONE and others. */
import type { CallFormat } from "./call-format.ts";
import { readBareCalls, readJsonCalls } from "./json.ts";

/** Marks before calls, with those behind, which models may leave out. */
const MARKS: readonly (readonly [begin: string, end: string])[] = [
  ["<tool_call>", "</tool_call>"],
  ["<|tool_call|>", "<|/tool_call|>"],
  ["<TOOLCALL>", "</TOOLCALL>"],
  ["<|START_ACTION|>", "<|END_ACTION|>"],
];

/** Calls as objects, or as a list of them, behind a mark that the template has. */
export function taggedJson(template: string): CallFormat {
  const used = MARKS.filter(([begin]) => template.includes(begin));
  const pairs = used.length > 0 ? used : MARKS.slice(0, 1);
  const [begin, end] = pairs[0]!;
  const call = { kind: "call", key: "arguments" } as const;
  return {
    steps: [{ kind: "text", text: `${begin}\n` }, call, { kind: "text", text: `\n${end}` }],
    starts: pairs.map(([begin]) => begin),
    marks: pairs.flat(),
    *read(cursor, start, writer) {
      if (!(yield* readJsonCalls(cursor, writer))) return false;
      const end = pairs.find(([begin]) => begin === start)![1];
      yield* cursor.attempt(function* () {
        yield* cursor.skipSpace();
        return yield* cursor.takes(end);
      });
      return true;
    },
    readBare: readBareCalls,
  };
}
