/** Calls as Python writes them: LFM2 between its tokens, OLMo 3 in its tags, Llama 3.2 and 4 in a bare list. */
import type { CallFormat } from "./call-format.ts";
import type { AnswerCursor, Reading } from "./cursor.ts";
import type { AnswerWriter } from "./events.ts";
import { readJsonCalls } from "./json.ts";

const MARKS: readonly (readonly [begin: string, end: string])[] = [
  ["<|tool_call_start|>", "<|tool_call_end|>"],
  ["<function_calls>", "</function_calls>"],
];

export function pythonic(template: string): CallFormat {
  const used = MARKS.filter(([begin]) => template.includes(begin));
  const pairs = used.length > 0 ? used : MARKS.slice(0, 1);
  const [begin, end] = pairs[0]!;
  const call = { kind: "call", key: "arguments" } as const;
  return {
    steps: [{ kind: "text", text: `${begin}[` }, call, { kind: "text", text: `]${end}` }],
    starts: pairs.map(([begin]) => begin),
    marks: pairs.flat(),
    *read(cursor, start, writer) {
      const isRead =
        (yield* cursor.attempt(() => readPythonCalls(cursor, writer))) || (yield* readJsonCalls(cursor, writer));
      if (!isRead) return false;
      const end = pairs.find(([begin]) => begin === start)![1];
      yield* cursor.attempt(function* () {
        yield* cursor.skipSpace();
        return yield* cursor.takes(end);
      });
      return true;
    },
    readBare: readBarePythonCalls,
  };
}

/** A list of calls of tools that there are. */
export function* readBarePythonCalls(cursor: AnswerCursor, writer: AnswerWriter): Reading<boolean> {
  if ((yield* cursor.peek()) !== "[") return false;
  return yield* readPythonCalls(cursor, writer, true);
}

/** Calls in a list, or one after the other. False where there is none. */
function* readPythonCalls(cursor: AnswerCursor, writer: AnswerWriter, onlyKnown = false): Reading<boolean> {
  const isList = (yield* cursor.skipSpace()) === "[";
  if (isList) cursor.skip(1);
  for (let count = 0; ; count++) {
    yield* cursor.skipSpace();
    if (!(yield* cursor.attempt(() => readCall(cursor, writer, onlyKnown)))) return count > 0;
    const next = yield* cursor.skipSpace();
    if (next === ",") cursor.skip(1);
    else if (isList) {
      if (next === "]") cursor.skip(1);
      return true;
    }
  }
}

function* readCall(cursor: AnswerCursor, writer: AnswerWriter, onlyKnown: boolean): Reading<boolean> {
  const head = yield* cursor.before(["(", "\n", "<", "]"]);
  const name = head?.text.trim() ?? "";
  if (head?.mark !== "(" || !/^[A-Za-z_][\w.-]*$/.test(name)) return false;
  if ((onlyKnown && !writer.tools.has(name)) || !writer.begin(name)) return false;
  const positions = Object.keys((writer.tools.get(name)?.parameters as { properties?: object })?.properties ?? {});
  writer.argue("{");
  for (let count = 0; ; count++) {
    if ((yield* cursor.skipSpace()) === ")") break;
    const position = positions[count];
    const argument = yield* cursor.attempt(function* () {
      const key = (yield* readKey(cursor)) ?? position;
      const value = key === undefined ? null : yield* readPythonValue(cursor, 0);
      return value === null ? null : `${JSON.stringify(key)}: ${value}`;
    });
    if (argument === null) {
      writer.argue("}");
      return true;
    }
    writer.argue(`${count === 0 ? "" : ", "}${argument}`);
    if ((yield* cursor.skipSpace()) !== ",") break;
    cursor.skip(1);
  }
  writer.argue("}");
  yield* cursor.takes(")");
  return true;
}

function* readKey(cursor: AnswerCursor): Reading<string | null> {
  return yield* cursor.attempt(function* () {
    const key = yield* cursor.before(["=", ",", ")", "(", '"', "'"]);
    const name = key?.text.trim() ?? "";
    return key?.mark === "=" && /^[A-Za-z_]\w*$/.test(name) ? name : null;
  });
}

const WORDS: Readonly<Record<string, string>> = {
  ...{ None: "null", True: "true", False: "false", null: "null", true: "true", false: "false" },
};
const DEPTH_MAX = 64;

/** The JSON of a literal; null where there is none. */
function* readPythonValue(cursor: AnswerCursor, depth: number): Reading<string | null> {
  const next = yield* cursor.skipSpace();
  if (depth > DEPTH_MAX) return null;
  if (next === '"' || next === "'") return yield* readPythonString(cursor, next);
  if (next === "[" || next === "(") return yield* readItems(cursor, next === "[" ? "]" : ")", depth);
  if (next === "{") return yield* readMembers(cursor, depth);
  const word = yield* cursor.before([",", ")", "]", "}", ":", "\n"]);
  if (!word) return null;
  cursor.skip(-word.mark.length);
  const text = word.text.trim();
  if (Object.hasOwn(WORDS, text)) return WORDS[text]!;
  return /^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/.test(text) ? JSON.stringify(Number(text)) : null;
}

function* readItems(cursor: AnswerCursor, close: string, depth: number): Reading<string | null> {
  cursor.skip(1);
  const items: string[] = [];
  while ((yield* cursor.skipSpace()) !== close) {
    const item: string | null = yield* readPythonValue(cursor, depth + 1);
    if (item === null) return null;
    items.push(item);
    if ((yield* cursor.skipSpace()) !== ",") break;
    cursor.skip(1);
  }
  return (yield* cursor.takes(close)) ? `[${items.join(", ")}]` : null;
}

function* readMembers(cursor: AnswerCursor, depth: number): Reading<string | null> {
  cursor.skip(1);
  const members: string[] = [];
  while ((yield* cursor.skipSpace()) !== "}") {
    const key: string | null = yield* readPythonValue(cursor, depth + 1);
    if (key === null || (yield* cursor.skipSpace()) !== ":") return null;
    cursor.skip(1);
    const value: string | null = yield* readPythonValue(cursor, depth + 1);
    if (value === null) return null;
    members.push(`${key.startsWith('"') ? key : JSON.stringify(key)}: ${value}`);
    if ((yield* cursor.skipSpace()) !== ",") break;
    cursor.skip(1);
  }
  return (yield* cursor.takes("}")) ? `{${members.join(", ")}}` : null;
}

const ESCAPES: Readonly<Record<string, string>> = { n: "\n", t: "\t", r: "\r", b: "\b", f: "\f", "0": "\0", "\n": "" };
const CODES: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };

function* readPythonString(cursor: AnswerCursor, quote: string): Reading<string | null> {
  const end = (yield* cursor.takes(quote.repeat(3))) ? quote.repeat(3) : quote;
  if (end === quote) cursor.skip(1);
  let text = "";
  for (;;) {
    const mark = yield* cursor.until([end, "\\"], (piece) => {
      text += piece;
    });
    if (mark === null) return null;
    if (mark === end) return JSON.stringify(text);
    const escaped = yield* cursor.peek();
    if (escaped === "") return null;
    cursor.skip(1);
    const digits = Object.hasOwn(CODES, escaped) ? yield* readDigits(cursor, CODES[escaped]!) : null;
    if (digits !== null) text += String.fromCodePoint(Math.min(digits, 0x10ffff));
    else text += ESCAPES[escaped] ?? (/["'\\]/.test(escaped) ? escaped : `\\${escaped}`);
  }
}

function* readDigits(cursor: AnswerCursor, count: number): Reading<number | null> {
  return yield* cursor.attempt(function* () {
    let digits = "";
    while (digits.length < count) {
      const digit = yield* cursor.peek();
      if (!/^[0-9a-fA-F]$/.test(digit)) return null;
      digits += digit;
      cursor.skip(1);
    }
    return Number.parseInt(digits, 16);
  });
}
