/** Recorded answers of every form, cut at every place: the events join to the same, and nothing is lost. */
import { describe, expect, it } from "vitest";
import type { Recorded } from "../../../test/support/recorded-answer.ts";
import { recorded } from "../../../test/support/recorded-answers.ts";
import { AnswerParser } from "./answer-parser.ts";
import type { AnswerEvent } from "./events.ts";
import { answerFormat } from "./formats.ts";

interface Parsed {
  text: string;
  reasoning: string;
  calls: { name: string; arguments: string }[];
  /** Kinds of events in their order, each once in a row. */
  order: string[];
}

/** What the events of pieces join to. */
function parse({ template, tools, isThinking = false }: Recorded, pieces: readonly string[]): Parsed {
  let ids = 0;
  const format = answerFormat(template, tools.length > 0);
  const parser = new AnswerParser(format, { tools, isThinking, makeId: () => `call_${ids++}` });
  const parsed: Parsed = { text: "", reasoning: "", calls: [], order: [] };
  const take = (events: readonly AnswerEvent[]) => {
    for (const event of events) {
      if (parsed.order.at(-1) !== event.type) parsed.order.push(event.type);
      if (event.type === "text") parsed.text += event.text;
      else if (event.type === "reasoning") parsed.reasoning += event.text;
      else if (event.type === "toolCall") {
        expect(event).toMatchObject({ index: parsed.calls.length, id: `call_${parsed.calls.length}` });
        parsed.calls.push({ name: event.name, arguments: "" });
      } else {
        expect(event.index).toBe(parsed.calls.length - 1);
        parsed.calls[event.index]!.arguments += event.text;
      }
    }
  };
  for (const piece of pieces) take(parser.push(piece));
  take(parser.end());
  const { writer } = parser;
  expect({ text: writer.text, reasoning: writer.reasoning }).toEqual({
    text: parsed.text,
    reasoning: parsed.reasoning,
  });
  expect(writer.calls.map(({ name, arguments: text }) => ({ name, arguments: text }))).toEqual(parsed.calls);
  return parsed;
}

describe.each(recorded.map((one) => [one.name, one] as const))("%s", (_, one) => {
  const whole = parse(one, [one.answer]);

  it("is what it was written as", () => {
    expect({ text: whole.text, reasoning: whole.reasoning, calls: whole.calls }).toEqual({
      text: one.text ?? "",
      reasoning: one.reasoning ?? "",
      calls: (one.calls ?? []).map(([name, args]) => ({
        name,
        arguments: typeof args === "string" ? args : expect.toSatisfy((text: string) => same(text, args)),
      })),
    });
  });

  it("is the same cut at any one place, and at all", () => {
    for (let at = 0; at <= one.answer.length; at++)
      expect(parse(one, [one.answer.slice(0, at), one.answer.slice(at)]), `cut at ${at}`).toEqual(whole);
    expect(parse(one, [...one.answer]), "by characters").toEqual(whole);
    for (const size of [2, 3, 5, 7]) expect(parse(one, chunks(one.answer, size)), `by ${size}`).toEqual(whole);
  });
});

function same(text: string, value: unknown): boolean {
  return JSON.stringify(JSON.parse(text)) === JSON.stringify(value);
}

function chunks(text: string, size: number): string[] {
  const pieces: string[] = [];
  for (let at = 0; at < text.length; at += size) pieces.push(text.slice(at, at + size));
  return pieces;
}

describe("a stream", () => {
  const hermes = recorded.find(({ name }) => name === "Hermes: one call")!;
  const parser = (one: Recorded, isThinking = false) =>
    new AnswerParser(answerFormat(one.template, true), { tools: one.tools, isThinking, makeId: () => "id" });

  it("gives text at once that begins no marker, and a call's name before its arguments", () => {
    const stream = parser(hermes);
    expect(stream.push("I look <b>")).toEqual([{ type: "text", text: "I look <b>" }]);
    expect(stream.push("it up <tool_")).toEqual([{ type: "text", text: "it up" }]);
    expect(stream.push('call>{"name": "get_weather", "argum')).toEqual([]);
    expect(stream.push('ents": {"ci')).toEqual([
      { type: "toolCall", index: 0, id: "id", name: "get_weather" },
      { type: "toolArguments", index: 0, text: '{"ci' },
    ]);
    expect(stream.push('ty": "P')).toEqual([{ type: "toolArguments", index: 0, text: 'ty": "P' }]);
  });

  it("of long text takes time in proportion", () => {
    const stream = parser(hermes);
    const piece = "some words, and < signs; ";
    let length = 0;
    for (let i = 0; i < 20_000; i++)
      for (const event of stream.push(piece)) length += (event as { text: string }).text.length;
    for (const event of stream.end()) length += (event as { text: string }).text.length;
    expect(length).toBe(20_000 * piece.length);
  });
});
