/** Calls with a tag for each parameter: Qwen3-Coder, Qwen3.5, Nemotron, Step, Seed-OSS and others. */
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { readJsonCalls } from "./json.ts";
import { escaped, isTextParameter, parameterValue } from "./parameter-values.ts";

const FUNCTION = "<function=";
const FUNCTION_END = "</function>";
const PARAMETER = "<parameter=";
const PARAMETER_END = "</parameter>";
const WRAPPERS = ["<tool_call>", "<seed:tool_call>"];

/** What ends a value; models leave the end tag out. */
const VALUE_ENDS = [PARAMETER_END, `\n${PARAMETER_END}`, `\n${PARAMETER}`, `\n${FUNCTION_END}`, FUNCTION_END];

export function xmlParameters(template: string): CallFormat {
  const wrappers = WRAPPERS.filter((mark) => template.includes(mark));
  const ends = wrappers.map((mark) => mark.replace("<", "</"));
  const starts = [...wrappers, FUNCTION];
  const call = { kind: "call", key: "arguments" } as const;
  const outer = wrappers[0] ?? WRAPPERS[0]!;
  return {
    steps: [{ kind: "text", text: `${outer}\n` }, call, { kind: "text", text: `\n${outer.replace("<", "</")}` }],
    starts,
    marks: [...starts, ...ends, FUNCTION_END, PARAMETER, PARAMETER_END],
    *read(cursor, start, writer) {
      if (start !== FUNCTION) {
        // Answers that are held to a schema have calls as JSON.
        const isJson = (yield* cursor.skipSpace()) === "{";
        if (isJson && !(yield* readJsonCalls(cursor, writer))) return false;
        if (!isJson && !((yield* cursor.takes(FUNCTION)) && (yield* readFunction(cursor, writer)))) return false;
      } else if (!(yield* readFunction(cursor, writer))) return false;
      for (let isMore = true; isMore; ) {
        isMore = yield* cursor.attempt(function* () {
          yield* cursor.skipSpace();
          return (yield* cursor.takes(FUNCTION)) && (yield* readFunction(cursor, writer));
        });
      }
      for (const end of ends)
        yield* cursor.attempt(function* () {
          yield* cursor.skipSpace();
          return yield* cursor.takes(end);
        });
      return true;
    },
  };
}

function* readFunction(cursor: AnswerCursor, writer: AnswerWriter): Reading<boolean> {
  const head = yield* cursor.before([">", "\n", "<"]);
  if (head?.mark !== ">" || !writer.begin(head.text.trim())) return false;
  const tool = writer.tools.get(head.text.trim());
  let count = 0;
  for (;;) {
    yield* cursor.skipSpace();
    if (!(yield* cursor.takes(PARAMETER))) break;
    const key = yield* cursor.attempt(function* () {
      const found = yield* cursor.before([">", "\n", "<"]);
      return found?.mark === ">" ? found : null;
    });
    if (key === null) {
      writer.argue(count === 0 ? "{}" : "}");
      writer.write(PARAMETER);
      return true;
    }
    const name = key.text.trim();
    writer.argue(`${count++ === 0 ? "{" : ", "}${JSON.stringify(name)}: `);
    yield* cursor.takes("\n");
    if (isTextParameter(tool, name)) {
      writer.argue('"');
      yield* readText(cursor, (text) => writer.argue(escaped(text)));
      writer.argue('"');
    } else {
      let text = "";
      yield* readText(cursor, (piece) => {
        text += piece;
      });
      writer.argue(parameterValue(tool, name, text));
    }
  }
  writer.argue(count === 0 ? "{}" : "}");
  yield* cursor.takes(FUNCTION_END);
  return true;
}

/** The value of a parameter up to its end tag, or to the tag of what follows, which is left. */
function* readText(cursor: AnswerCursor, take: (text: string) => void): Reading<void> {
  const end = yield* cursor.until(VALUE_ENDS, take);
  if (end?.endsWith(PARAMETER)) cursor.skip(-PARAMETER.length);
  else if (end?.endsWith(FUNCTION_END)) cursor.skip(-FUNCTION_END.length);
}
