/** Conversations behind a channel: tools whose functions run here, thinking, schemas and messages, as without one. */

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { toolTemplate, writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { webModules } from "../../test/support/web-modules.ts";
import { exportProgram } from "../api/export-program.ts";
import { loadProgram } from "../api/load-program.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { LanguageModel } from "../language/language-model.ts";
import type { ConversationEvent } from "../language/reply.ts";
import { Channel } from "./channel.ts";
import { openModel, type WebChatOptions, type WebModel } from "./client.ts";
import type { Port } from "./protocol.ts";
import { serveModel } from "./serve.ts";

const folder = await temporaryFolder();
const { port1, port2 } = new MessageChannel();
let local: LanguageModel;
let model: WebModel;

beforeAll(async () => {
  await writeTinyCheckpoint(folder, { config: { max_position_embeddings: 2048 }, chatTemplate: toolTemplate });
  const checkpoint = await loadCheckpoint(folder);
  const path = join(folder, "tiny.pte");
  await exportProgram(checkpoint, path);
  await checkpoint.close();
  local = await loadProgram(path);
  serveModel(port2 as unknown as Port);
  model = await openModel(
    new Channel(port1 as unknown as Port),
    () => port1.close(),
    new Blob([await readFile(path)]),
    {
      modules: webModules,
    },
  );
});
afterAll(async () => {
  model.dispose();
  await local.dispose();
});

const city = {
  name: "find_city",
  description: "Finds a city.",
  parameters: { type: "object", properties: { city: { enum: ["Paris", "Rome"] } }, required: ["city"] },
};
const required = {
  temperature: 1,
  seed: 3,
  maxTokens: 120,
  toolChoice: "required",
  thinking: false,
  maxToolRounds: 1,
} as const;
const short = { temperature: 0, maxTokens: 8, ignoreEos: true } as const;

/** Messages or events without the ids of calls, which are random. */
const withoutIds = (values: readonly object[]) =>
  JSON.parse(JSON.stringify(values).replace(/call_[0-9a-f]+/g, "call")) as object[];

async function eventsOf(reply: { events(): AsyncIterable<ConversationEvent> }): Promise<ConversationEvent[]> {
  const events: ConversationEvent[] = [];
  for await (const event of reply.events()) events.push(event);
  return events;
}

describe("a conversation behind a channel", () => {
  it("says what the template has", () => {
    expect(model.facts).toMatchObject({ canThink: true, takesTools: true });
  });

  it("runs functions of tools here, and goes on with what they give, as one without a channel", async () => {
    const execute = vi.fn(async (args: Record<string, unknown>) => ({ found: args.city, by: new Map() }));
    const tools = [{ ...city, execute }];
    await model.reset("Be brief.");
    const conversation = local.createConversation();
    conversation.reset("Be brief.");
    const reply = model.chat("Where?", { ...required, tools });
    const events = await eventsOf(reply);
    const expected = await eventsOf(conversation.send("Where?", { ...required, tools }));
    expect(withoutIds(events)).toEqual(withoutIds(expected));
    const messages = await model.messages();
    expect(withoutIds(messages)).toEqual(withoutIds(conversation.messages));
    expect(messages.map(({ role }) => role)).toEqual(["system", "user", "assistant", "tool", "assistant"]);
    const [args, { call, signal }] = execute.mock.calls[0] as unknown as Parameters<
      NonNullable<NonNullable<WebChatOptions["tools"]>[number]["execute"]>
    >;
    expect(["Paris", "Rome"]).toContain(args.city);
    expect(JSON.parse(call.arguments)).toEqual(args);
    expect(signal).toBeInstanceOf(AbortSignal);
    expect(messages[3]).toMatchObject({ content: JSON.stringify({ found: args.city, by: {} }) });
    expect((await reply.answer).message).toEqual(messages[4]);
    expect((await reply.result).generatedTokens).toBe((await reply.answer).usage.completionTokens);
  });

  it("runs calls of other tools by onToolCall, and tells the model what it throws", async () => {
    await model.reset();
    const onToolCall = vi.fn(() => {
      throw new TypeError("no map");
    });
    await eventsOf(model.chat("Where?", { ...required, tools: [city], onToolCall }));
    expect(onToolCall).toHaveBeenCalledOnce();
    expect((await model.messages())[2]).toMatchObject({ role: "tool", content: "Error: no map", name: "find_city" });
  });

  it("ends where the model waits when nothing runs its calls, and goes on with messages", async () => {
    await model.reset();
    const reply = model.chat("Where?", { ...required, tools: [city] });
    await eventsOf(reply);
    expect((await reply.answer).finishReason).toBe("toolCalls");
    const messages = await model.messages();
    const [call] = (await reply.answer).message.toolCalls!;
    messages.push({ role: "tool", content: "Found.", toolCallId: call!.id });
    const next = model.chat(messages, { ...short, tools: [city] });
    await eventsOf(next);
    expect(await model.messages()).toEqual([...messages, (await next.answer).message]);
    // All but the result of the tool was computed before.
    expect((await next.answer).usage.cachedTokens).toBeGreaterThan((await next.answer).usage.promptTokens / 2);
    const conversation = local.createConversation();
    conversation.reset(messages);
    const expected = conversation.reply({ ...short, tools: [city] });
    await eventsOf(expected);
    expect((await next.answer).message).toEqual((await expected.answer).message);
  });

  it("stops while a function runs, which is told, and answers again", async () => {
    await model.reset();
    const controller = new AbortController();
    const reason = new Error("enough");
    let told: AbortSignal | undefined;
    const tool = {
      ...city,
      execute: (_: object, { signal }: { signal: AbortSignal | undefined }) => {
        told = signal;
        controller.abort(reason);
        return new Promise(() => {});
      },
    };
    const stopped = eventsOf(model.chat("Where?", { ...required, tools: [tool], signal: controller.signal }));
    await expect(stopped).rejects.toBe(reason);
    expect(told!.aborted).toBe(true);
    expect((await eventsOf(model.chat("And now?", short))).length).toBeGreaterThan(0);
  });

  it("thinks as it is asked to", async () => {
    await model.reset();
    const reply = model.chat("Why?", { ...short, thinking: true });
    const events = await eventsOf(reply);
    expect(events.map(({ type }) => type)).toContain("reasoning");
    const { result } = local.chat([{ role: "user", content: "Why?" }], { ...short, thinking: true });
    expect((await reply.answer).message).toEqual((await result).message);
  });

  it("holds answers to a schema", async () => {
    const schema = { type: "object", properties: { n: { enum: [1, 2] } }, required: ["n"] };
    for (const seed of [1, 2, 3]) {
      await model.reset();
      const reply = model.chat("Count.", { temperature: 1, seed, maxTokens: 200, thinking: false, schema });
      await eventsOf(reply);
      expect([1, 2]).toContain(((await reply.answer).value as { n: number }).n);
    }
  });

  it("refuses what cannot be posted, and what is no message or tool", async () => {
    const standard = { "~standard": { version: 1, vendor: "mine", validate: () => {} } };
    const posted = eventsOf(model.chat("Hello", { schema: standard }));
    await expect(posted).rejects.toThrow(InvalidArgumentError);
    await expect(eventsOf(model.chat("Hello", { schema: standard }))).rejects.toThrow(
      /^chat: expected what can be post/,
    );
    await expect(eventsOf(model.chat([{ role: "user" }] as never))).rejects.toThrow(/^messages\[0\].content/);
    await expect(model.reset(5 as never)).rejects.toThrow(/^messages: expected a list/);
    expect(() => model.chat("Hello", { tools: [null] as never })).toThrow(InvalidArgumentError);
    expect((await eventsOf(model.chat("Hello", short))).length).toBeGreaterThan(0);
  });
});
