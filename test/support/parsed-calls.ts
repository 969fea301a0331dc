/** What an answer with calls of tools is parsed to, and what must hold of the answer's beginnings. */
import fc from "fast-check";
import { expect } from "vitest";
import { AnswerParser } from "../../src/text/answer/answer-parser.ts";
import { answerFormat } from "../../src/text/answer/formats.ts";
import { PAD, type WrittenCall } from "./written-calls.ts";

export const tools = [
  {
    name: "write_file",
    parameters: {
      type: "object",
      properties: {
        path: { type: "string" },
        content: { $ref: "#/$defs/Content" },
        note: { anyOf: [{ type: "string" }, { type: "null" }] },
        mode: { type: "integer" },
        ratio: { oneOf: [{ type: "number" }, { type: "null" }] },
        force: { allOf: [{ type: "boolean" }] },
        options: { type: "object" },
        tags: { type: ["array", "null"] },
        kind: { enum: ["a", "5", "true"] },
      },
      $defs: { Content: { type: "string" } },
    },
  },
  { name: "now", parameters: { type: "object", properties: {} } },
];

/** Texts that have a meaning somewhere, and what stands in files. */
const fragments = [
  ...[
    '"',
    "'",
    "`",
    "\\",
    "\\n",
    "\n",
    "\t",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ",",
    ":",
    "=",
    ", ",
    '", "',
    "': ",
    "😀",
    "é",
  ],
  ...["<tool_call>", "</tool_call>", "</function>", "<function=now>", "</parameter>", "<parameter=a>", "</arg_value>"],
  ...["<arg_key>", "<|tool_call_end|>", "<tool_call|>", "<think>", "</think>", "<|end|>", "<|call|>", "[TOOL_CALLS]"],
  ...[
    "<｜tool▁call▁end｜>",
    "<|tool_call_end|>",
    "<escape>",
    "```",
    "</function_calls>",
    "null",
    "True",
    "12",
    "a b",
    "x",
  ],
];
export const plain = fc.stringMatching(/^[\w .,:;!?é😀-]{0,12}$/u);
export const hostile = fc.oneof(
  fc.array(fc.constantFrom(...fragments), { maxLength: 6 }).map((parts) => parts.join("")),
  fc.string({ unit: "binary", maxLength: 8 }).map((text) => text.replaceAll(PAD, "")),
);

/** Calls whose texts are of one kind; texts that are the end of a call in themselves are no texts of its family. */
export function callsOf(text: fc.Arbitrary<string>, never?: RegExp): fc.Arbitrary<WrittenCall[]> {
  const allowed = text.filter((one) => !never?.test(one) && one.trim() === one && !/^(null|none)$/i.test(one));
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: "small", withCrossShrink: true },
      allowed,
      fc.integer(),
      fc.constantFrom(true, false, null, 1.5, -2e-7, 12_345_678_901),
      fc.array(tie("value"), { maxLength: 3 }),
      fc.dictionary(fc.stringMatching(/^[a-z_]\w{0,5}$/), tie("value"), { maxKeys: 3, noNullPrototype: true }),
    ),
  }));
  const object = fc.dictionary(fc.stringMatching(/^[a-z]\w{0,5}$/), value, { maxKeys: 3, noNullPrototype: true });
  const args = fc.record(
    {
      path: allowed,
      content: allowed,
      note: fc.oneof(allowed, fc.constant(null)),
      mode: fc.integer(),
      ratio: fc.constantFrom(0.5, -3, 1e21, null),
      force: fc.boolean(),
      options: object,
      tags: fc.array(value, { maxLength: 3 }),
      kind: fc.constantFrom("a", "5", "true"),
    },
    { requiredKeys: [], noNullPrototype: true },
  );
  const call = fc.oneof(
    { weight: 4, arbitrary: args.map((args): WrittenCall => ({ name: "write_file", args })) },
    { weight: 1, arbitrary: fc.constant<WrittenCall>({ name: "now", args: {} }) },
  );
  return fc.array(call, { minLength: 1, maxLength: 3 });
}

export interface Parsed {
  text: string;
  reasoning: string;
  calls: { name: string; text: string }[];
}

/** What the events of pieces join to. */
export function parse(template: string, pieces: readonly string[], isCut = false): Parsed {
  const parser = new AnswerParser(answerFormat(template, true), { tools, isThinking: false, makeId: () => "id" });
  const parsed: Parsed = { text: "", reasoning: "", calls: [] };
  for (const event of [...pieces.flatMap((piece) => parser.push(piece)), ...parser.end(isCut)])
    if (event.type === "toolCall") parsed.calls.push({ name: event.name, text: "" });
    else if (event.type === "toolArguments") parsed.calls[event.index]!.text += event.text;
    else parsed[event.type] += event.text;
  return parsed;
}

const parsedOf = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};

export const callsIn = ({ calls }: Parsed) => calls.map(({ name, text }) => ({ name, args: parsedOf(text) }));

/** A cut answer has the calls of the whole one, the last of which may be unfinished: the beginning of its arguments. */
function expectBeginning(cut: Parsed, whole: Parsed, answer: string): void {
  expect(cut.calls.length).toBeLessThanOrEqual(whole.calls.length);
  for (const [index, { name, text }] of cut.calls.entries()) {
    const of = whole.calls[index]!;
    expect(name).toBe(of.name);
    expect(text).not.toBe("");
    if (text === of.text) continue;
    expect(index).toBe(cut.calls.length - 1);
    expect(parsedOf(text)).toBeUndefined();
    expect(of.text.slice(0, text.length)).toBe(text);
  }
  // What is no call yet is text.
  let same = 0;
  while (same < cut.text.length && cut.text[same] === whole.text[same]) same++;
  expect(answer.trimEnd().endsWith(cut.text.slice(same).trim())).toBe(true);
}

/** Cuts an answer with calls at some places, from 0 at its beginning to 1 at its end. */
export function expectBeginnings(template: string, answer: string, places: readonly number[], isCut: boolean): void {
  const whole = parse(template, [answer]);
  for (const place of places) {
    const beginning = answer.slice(0, Math.floor(place * answer.length));
    expectBeginning(parse(template, [beginning], isCut), whole, beginning);
  }
}

export function piecesOf(text: string, sizes: readonly number[]): string[] {
  const pieces: string[] = [];
  for (let at = 0; at < text.length; ) {
    const size = sizes[pieces.length % sizes.length]!;
    pieces.push(text.slice(at, at + size));
    at += size;
  }
  return pieces;
}
