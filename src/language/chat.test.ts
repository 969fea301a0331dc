/** Answers with thinking, tools, stop strings and constraints, over a decoder that writes what a test has it write. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { toolTemplate } from "../../test/support/tiny-checkpoint.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { Message, Tool } from "../text/chat-messages.ts";
import { ChatTemplate } from "../text/chat-template.ts";
import { Tokenizer } from "../text/tokenizer.ts";
import { answer, checkChatOptions } from "./chat.ts";
import type { ChatEvent, ChatOptions, ChatResult } from "./chat-options.ts";
import { type ChatModel, encodePrompt } from "./chat-prompt.ts";
import { Conversation } from "./conversation.ts";
import type { ProgramDecoder } from "./program-decoder.ts";
import type { ConversationEvent } from "./reply.ts";
import { ResultStream } from "./result-stream.ts";

const golden = new URL("../text/byte-level-tokenizer.json.golden", import.meta.url);
const tokenizer = new Tokenizer(JSON.parse(readFileSync(golden, "utf8")), {
  bos_token: "<|bos|>",
  eos_token: "<|end|>",
});
const eos = tokenizer.eos!.id;
const template = new ChatTemplate(`{{ bos_token }}${toolTemplate}`);
const model: ChatModel & { createDecoder(): ProgramDecoder } = {
  ...{
    name: "model",
    tokenizer,
    template,
    samplingDefaults: { temperature: 0 },
    draft: "lookup" as const,
    eosIds: [eos],
    stopStrings: [],
    modules: {
      answers: () => import("../text/answer/index.ts"),
      constraints: () => import("../text/constraints/index.ts"),
    },
  },
  createDecoder: () => new ScriptedDecoder([]),
};

/** Writes texts one after the other, an answer each; where a constraint lets it, and else what that has. */
class ScriptedDecoder implements ProgramDecoder {
  readonly file = "model";
  position = 0;
  readonly contextLength = 2000;
  readonly vocabularySize = tokenizer.vocabSize;
  readonly logitRows = 1;
  readonly prompts: string[] = [];
  readonly #answers: number[][];
  #rest: number[] = [];

  constructor(answers: readonly string[]) {
    this.#answers = answers.map((text) => [...tokenizer.encode(text, { addSpecialTokens: false }), eos]);
  }

  async prefill(ids: readonly number[]): Promise<Float32Array> {
    this.prompts.push(tokenizer.decode(ids));
    this.position += ids.length;
    this.#rest = this.#answers.shift() ?? [eos];
    return this.#logits();
  }

  async step(id: number): Promise<Float32Array> {
    this.position++;
    // What was forced in between is no part of the script.
    if (id === this.#rest[0]) this.#rest.shift();
    return this.#logits();
  }

  #logits(): Float32Array {
    const logits = new Float32Array(this.vocabularySize);
    for (const [place, id] of this.#rest.entries()) logits[id] = Math.max(logits[id]!, 100 - place);
    return logits;
  }

  rewind(position: number): void {
    this.position = position;
  }

  allLogits(): Promise<Float32Array> {
    throw new UnsupportedError("not here");
  }

  fork(): ProgramDecoder {
    return this;
  }

  async dispose(): Promise<void> {}
}

const hello: Message[] = [{ role: "user", content: "Hello" }];
const weather: Tool = {
  name: "get_weather",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

async function chat(text: string, options: ChatOptions = {}): Promise<ChatResult & { readonly events: ChatEvent[] }> {
  const decoder = new ScriptedDecoder([text]);
  const given = checkChatOptions(options);
  const ids = encodePrompt(model, hello, given, decoder.contextLength);
  const stream = new ResultStream(answer(model, decoder, { ids, kept: 0, prefix: null }, given));
  const events: ChatEvent[] = [];
  for await (const event of stream) events.push(event);
  return { ...(await stream.result), events };
}

describe("an answer", () => {
  it("has thinking apart from its text, and counts its tokens", async () => {
    const { message, usage, finishReason } = await chat("<think>\nHm.\n</think>\n\nYes.");
    expect(message).toEqual({ role: "assistant", content: "Yes.", reasoning: "Hm." });
    const count = (text: string) => tokenizer.encode(text, { addSpecialTokens: false }).length;
    expect(usage.reasoningTokens).toBe(count("<think>\nHm.\n</think>"));
    expect(usage.completionTokens).toBe(count("<think>\nHm.\n</think>\n\nYes.") + 1);
    expect(finishReason).toBe("stop");
  });

  it("begins within thinking that the prompt has opened", async () => {
    const { message } = await chat("Hm.</think>Yes.", { thinking: true });
    expect(message).toEqual({ role: "assistant", content: "Yes.", reasoning: "Hm." });
    expect((await chat("Yes.", { thinking: false })).message).toEqual({ role: "assistant", content: "Yes." });
  });

  it("ends thinking that has used its budget, and goes on to answer", async () => {
    const { message, usage } = await chat("a b c d e f g</think>Yes.", { thinking: { budget: 3 } });
    expect(message.reasoning!.length).toBeLessThan(8);
    expect(usage.reasoningTokens).toBeLessThan(9);
    expect(message.content).toContain("Yes.");
    expect((await chat("<think>Hm.", { thinking: false, maxTokens: 12 })).message.reasoning).toBeUndefined();
  });

  it("has calls of tools, and says that it waits for them", async () => {
    const { message, finishReason, events } = await chat(
      'Let me see.\n<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>',
      { tools: [weather] },
    );
    expect(message.content).toBe("Let me see.");
    expect(message.toolCalls).toEqual([
      { id: expect.stringMatching(/^call_[0-9a-f]{24}$/), name: "get_weather", arguments: '{"city": "Paris"}' },
    ]);
    expect(finishReason).toBe("toolCalls");
    expect(events.findIndex(({ type }) => type === "toolCall")).toBeLessThan(
      events.findIndex(({ type }) => type === "toolArguments"),
    );
  });

  it("is not looked at for calls where tools are turned off", async () => {
    const text = '<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>';
    expect((await chat(text, { tools: [weather], toolChoice: "none" })).message.content).toBe(text);
  });

  it("ends at stop strings of its text alone", async () => {
    const { message, stopString, finishReason } = await chat("<think>END</think>One END two", { stop: ["END"] });
    expect(message).toEqual({ role: "assistant", content: "One ", reasoning: "END" });
    expect([stopString, finishReason]).toEqual(["END", "stop"]);
  });

  it("has log probabilities beside the text that their tokens became", async () => {
    const { events } = await chat("<think>Hm.</think>Yes, it is", { logprobs: 1 });
    const texts = events.filter((event) => event.type === "text");
    const ids = texts.flatMap(({ logprobs }) => logprobs!.map(({ id }) => id));
    expect(
      tokenizer.decode(
        ids.filter((id) => id !== eos),
        { stream: true },
      ),
    ).toContain("Yes, it is");
    expect(tokenizer.decode(ids)).not.toContain("Hm");
  });

  it.each<[ChatOptions, string]>([
    [{ toolChoice: "required" }, "toolChoice: expected tools to choose from"],
    [{ tools: [weather], toolChoice: { name: "now" } }, "toolChoice.name: expected one of the tools (get_weather)"],
    [
      { tools: [weather], toolChoice: "any" as never },
      "toolChoice: expected auto, none, required, { name } or { names, mode }",
    ],
    [
      { tools: [weather], toolChoice: { names: ["get_weather", "now"], mode: "auto" } },
      "toolChoice.names: expected one of the tools (get_weather)",
    ],
    [{ thinking: { budget: -1 } }, "thinking.budget: expected a whole number from 0"],
    [{ thinking: "deep" as never }, "thinking: expected true, false or { budget }"],
    [{ schema: 5 as never }, "schema: expected a JSON schema"],
  ])("is refused for options that are none: %#", async (options, message) => {
    await expect(chat("", options)).rejects.toThrow(InvalidArgumentError);
    await expect(chat("", options)).rejects.toThrow(message);
  });
});

describe("an answer under a constraint", () => {
  const schema = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };

  it("is constrained by it, whatever the model would write", async () => {
    const { message, value, finishReason } = await chat("It is true, I think.", { schema });
    expect(JSON.parse(message.content!)).toEqual({ ok: expect.any(Boolean) });
    expect(value).toEqual(JSON.parse(message.content!));
    expect(finishReason).toBe("stop");
  });

  it("is not constrained to it while the model thinks, on or off", async () => {
    for (const thinking of [true, undefined, false]) {
      const script = thinking ? "Hm, {.</think>nothing" : "<think>Hm, {.</think>nothing";
      const { message, value } = await chat(script, { schema, thinking, maxTokens: 60 });
      expect(message.reasoning).toBe(thinking === false ? undefined : "Hm, {.");
      expect(value).toEqual({ ok: expect.any(Boolean) });
    }
  });

  it("has no value where it was cut", async () => {
    const { value, finishReason } = await chat("x", { schema, maxTokens: 2 });
    expect([value, finishReason]).toEqual([undefined, "length"]);
  });

  it("calls a tool that it must call, with arguments of its schema", async () => {
    const tools: Tool[] = [weather, { name: "now", parameters: { type: "object", additionalProperties: false } }];
    const required = await chat("No, I will not.", { tools, toolChoice: "required", maxTokens: 300 });
    expect(required.message.toolCalls).toHaveLength(1);
    const named = await chat("No.", { tools, toolChoice: { name: "now" }, maxTokens: 300 });
    expect(named.message.toolCalls).toMatchObject([{ name: "now" }]);
    expect(JSON.parse(named.message.toolCalls![0]!.arguments)).toEqual({});
    expect(named.finishReason).toBe("toolCalls");
  });

  it("is refused before anything is computed where its schema cannot be honoured", async () => {
    await expect(chat("x", { schema: { not: {} } })).rejects.toThrow("schema #/not: this keyword cannot be enforced");
    const tools: Tool[] = [{ name: "f", parameters: { properties: { a: { not: {} } } } }];
    await expect(chat("x", { tools, toolChoice: "required" })).rejects.toThrow(UnsupportedError);
  });

  it("keeps bans of tokens, and says where nothing is left", async () => {
    const constraint = { kind: "choice", options: ["yes", "no"] } as const;
    const bans = [tokenizer.tokenToId("y")!, tokenizer.tokenToId("yes") ?? 0].filter((id) => id > 0);
    expect((await chat("yes", { constraint, suppressTokens: bans })).message.content).toBe("no");
  });
});

describe("a call that the model makes by itself", () => {
  const strict: Tool = {
    name: "get_weather",
    strict: true,
    parameters: { type: "object", properties: { city: { enum: ["Paris", "Rome"] } }, required: ["city"] },
  };
  const loose: Tool = { name: "note", parameters: { type: "object", properties: { n: { type: "integer" } } } };
  const wrong = (name: string) => `{"name": "${name}", "arguments": {"town": "Paris", "n": "x"}}`;
  const argumentsOf = ({ message }: ChatResult) => message.toolCalls!.map((call) => JSON.parse(call.arguments));

  it("is constrained to the schema of a strict tool, and the text before it is not", async () => {
    const answer = `Let me see.\n<tool_call>\n${wrong("get_weather")}\n</tool_call>`;
    const result = await chat(answer, { tools: [strict, loose], maxTokens: 200 });
    expect(result.message.content).toMatch(/^Let me see\./);
    expect(result.finishReason).toBe("toolCalls");
    expect(argumentsOf(result)).toEqual([{ city: expect.stringMatching(/^(Paris|Rome)$/) }]);
    const free = await chat(answer, { tools: [{ ...strict, strict: false }], maxTokens: 200 });
    expect(argumentsOf(free)).toEqual([{ town: "Paris", n: "x" }]);
  });

  it("has any arguments where its tool is not strict, and a name that there is", async () => {
    const answer = `<tool_call>\n${wrong("note")}\n</tool_call>`;
    const result = await chat(answer, { tools: [strict, loose], maxTokens: 200 });
    expect(argumentsOf(result)).toEqual([{ town: "Paris", n: "x" }]);
    const named = await chat(`<tool_call>\n${wrong("other")}`, { tools: [strict], maxTokens: 200 });
    expect(named.message.toolCalls).toMatchObject([{ name: "get_weather" }]);
  });

  it("is constrained again when it is not the first", async () => {
    const answer = `<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>`;
    const result = await chat(`${answer}\n<tool_call>\n${wrong("get_weather")}`, { tools: [strict], maxTokens: 300 });
    expect(argumentsOf(result)).toEqual([{ city: "Rome" }, { city: expect.stringMatching(/^(Paris|Rome)$/) }]);
  });

  it("is constrained behind thinking, and in it", async () => {
    const call = `<tool_call>\n${wrong("get_weather")}\n</tool_call>`;
    for (const [text, options] of [
      [`<think>Hm.</think>${call}`, {}],
      [`Hm. ${call}`, { thinking: { budget: 24 } }],
    ] as const) {
      const result = await chat(text, { tools: [strict], maxTokens: 300, ...options });
      expect(argumentsOf(result)).toEqual([{ city: expect.stringMatching(/^(Paris|Rome)$/) }]);
    }
  });

  it.each([
    ["<TOOLCALL>", "<TOOLCALL>"],
    ["<|tool_call|>", "<|tool_call|>"],
    ["<|tool_call_start|>", "<|tool_call_start|>"],
    ["<function_calls>", "<function_calls>"],
    ["[TOOL_CALLS]", "[TOOL_CALLS]"],
    ["[TOOL_CALLS] [ARGS]", "[TOOL_CALLS]"],
    ["<tool_call> <function= <parameter=", "<tool_call>"],
    ["<tool_call> <arg_key>", "<tool_call>"],
    ["<start_function_call>", "<start_function_call>"],
    ["<|tool_call>", "<|tool_call>"],
    ["<|tool_calls_section_begin|>", "<|tool_calls_section_begin|>"],
    ["<｜tool▁call▁begin｜>", "<｜tool▁calls▁begin｜>"],
    ["<|channel|> <|message|>", "<|channel|>commentary to=functions."],
    ["bare", '{"name": "'],
  ])("is constrained in the form of a template with %s", async (marks, start) => {
    const source = `{% if tools %}${marks.replace(/[{}]/g, "")}{% endif %}{{ messages[0].content }}`;
    const given = { ...model, template: new ChatTemplate(source) };
    const options = { tools: [strict, { ...strict, name: "note" }], maxTokens: 300 };
    const decoder = new ScriptedDecoder([`${start}get_weather{"n": 1}`]);
    const ids = encodePrompt(given, hello, options, decoder.contextLength);
    const result = await new ResultStream(answer(given, decoder, { ids, kept: 0, prefix: null }, options)).result;
    expect(result.message.toolCalls).toMatchObject([{ name: expect.stringMatching(/^(get_weather|note)$/) }]);
    expect(argumentsOf(result)).toEqual([{ city: expect.stringMatching(/^(Paris|Rome)$/) }]);
  });

  it("is refused where a strict tool's schema cannot be enforced", async () => {
    const tools = [{ ...strict, parameters: { properties: { a: { not: {} } } } }];
    await expect(chat("x", { tools })).rejects.toThrow(UnsupportedError);
    expect((await chat("x", { tools: [{ ...tools[0]!, strict: false }] })).message.content).toBe("x");
    await expect(chat("x", { tools: [{ ...strict, strict: "yes" as never }] })).rejects.toThrow(
      /^tools\[0\].strict: expected true or false/,
    );
  });
});

describe("a conversation with tools", () => {
  const callText = (args: string) => `<tool_call>{"name": "get_weather", "arguments": ${args}}</tool_call>`;
  const converse = (answers: readonly string[], options: ConstructorParameters<typeof Conversation>[1]) => {
    const decoder = new ScriptedDecoder(answers);
    return { decoder, conversation: new Conversation({ ...model, createDecoder: () => decoder }, options) };
  };
  async function read(events: AsyncIterable<ConversationEvent>): Promise<ConversationEvent[]> {
    const all: ConversationEvent[] = [];
    for await (const event of events) all.push(event);
    return all;
  }

  it("runs their functions, and the model goes on with the results", async () => {
    const seen: unknown[] = [];
    const execute = async (args: Record<string, unknown>) => {
      seen.push(args);
      return { sky: "grey" };
    };
    const { decoder, conversation } = converse([callText('{"city": "Paris"}'), "It is grey."], {
      tools: [{ ...weather, execute }],
    });
    const events = await read(conversation.send("Weather?").events());
    expect(seen).toEqual([{ city: "Paris" }]);
    expect(events.map(({ type }) => type).filter((type, i, all) => type !== all[i - 1])).toEqual([
      ...["toolCall", "toolArguments", "toolResult", "text"],
    ]);
    expect(conversation.messages.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant"]);
    expect(conversation.messages[2]).toMatchObject({ content: '{"sky":"grey"}', name: "get_weather" });
    expect(decoder.prompts[1]).toContain('{"sky":"grey"}');
  });

  it("gives functions all digits of integers, and takes them back", async () => {
    const seen: unknown[] = [];
    const execute = (args: unknown) => {
      seen.push(args);
      return { id: 12345678901234567890n };
    };
    const { conversation } = converse([callText('{"city": "X", "id": 12345678901234567890}'), "Done."], {
      tools: [{ ...weather, execute }],
    });
    await read(conversation.send("Weather?").events());
    expect(seen).toEqual([{ city: "X", id: 12345678901234567890n }]);
    expect(conversation.messages[2]).toMatchObject({ content: '{"id":12345678901234567890}' });
  });

  it("tells the model of errors, of arguments that are no JSON, and of tools that there are not", async () => {
    const execute = () => {
      throw new TypeError("no such city");
    };
    const answers = [
      callText('{"city": "X"}'),
      callText("{]"),
      callText("{}").replace("get_weather", "other"),
      "Sorry.",
    ];
    const { conversation } = converse(answers, { tools: [{ ...weather, execute }] });
    let text = "";
    for await (const piece of conversation.send("Weather?")) text += piece;
    const results = conversation.messages.filter(({ role }) => role === "tool").map(({ content }) => content);
    expect(results[0]).toBe("Error: no such city");
    expect(results[1]).toMatch(/^Error: the arguments of get_weather are no JSON/);
    expect(results[2]).toBe("Error: there is no tool other");
    expect(text).toContain("Sorry.");
  });

  it("waits for results where nobody runs the call, and goes on with them", async () => {
    const { conversation } = converse([callText('{"city": "Paris"}'), "Rain."], { tools: [weather] });
    const reply = conversation.send("Weather?");
    await read(reply.events());
    expect((await reply.answer).finishReason).toBe("toolCalls");
    const [call] = (await reply.answer).message.toolCalls!;
    conversation.messages.push({ role: "tool", content: "rain", toolCallId: call!.id });
    let text = "";
    for await (const piece of conversation.reply()) text += piece;
    expect(text).toBe("Rain.");
  });

  it("ends after so many rounds, and by an abort", async () => {
    const answers = Array.from({ length: 9 }, () => callText("{}"));
    const { conversation } = converse(answers, { tools: [weather], onToolCall: () => "again" });
    await read(conversation.send("Weather?", { maxToolRounds: 2 }).events());
    expect(conversation.messages.filter(({ role }) => role === "tool")).toHaveLength(2);
    const controller = new AbortController();
    const other = converse(answers, { tools: [weather], onToolCall: () => controller.abort(new Error("enough")) });
    const reply = other.conversation.send("Weather?", { signal: controller.signal });
    await expect(read(reply.events())).rejects.toThrow("enough");
  });
});
