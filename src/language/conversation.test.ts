/** Turns of a conversation reuse what was computed and give what a fresh start would give. */
import { beforeAll, describe, expect, it, vi } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { compileModel } from "../api/compile-model.ts";
import { loadProgramObject } from "../api/load-program-object.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { ContextLengthError, InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { GenerateOptions } from "../text/generate.ts";
import type { Conversation } from "./conversation.ts";
import type { LanguageModel } from "./language-model.ts";

// Bit-identical results for any chunks are a promise of the reference kernels alone.
vi.hoisted(() => {
  process.env.LOWBIT_BACKEND = "reference";
});

const folder = await temporaryFolder();
let llm: LanguageModel;
beforeAll(async () => {
  await writeTinyCheckpoint(folder, { config: { max_position_embeddings: 256 } });
  const model = await loadCheckpoint(folder);
  llm = await loadProgramObject(compileModel(model), folder);
  await model.close();
});

const options = { temperature: 0, maxTokens: 8, ignoreEos: true };

/** Sends a message; the answer, and how many tokens had to be computed for it. */
async function send(conversation: Conversation, content: string, settings: GenerateOptions = options) {
  const stream = conversation.send(content, settings);
  let text = "";
  for await (const piece of stream) text += piece;
  return { text, promptTokens: (await stream.result).promptTokens };
}

describe("a conversation", () => {
  it("answers as one that is computed from the start, with fewer tokens to compute", async () => {
    const conversation = llm.createConversation();
    const questions = ["Hello", "How are you?", "Again: hello"];
    for (const [turn, question] of questions.entries()) {
      const { text, promptTokens } = await send(conversation, question);
      const fresh = llm.createConversation();
      fresh.messages.push(...conversation.messages.slice(0, 2 * turn));
      const expected = await send(fresh, question);
      expect(text).toBe(expected.text);
      if (turn > 0) expect(promptTokens).toBeLessThan(expected.promptTokens);
    }
    expect(conversation.messages.map(({ role }) => role)).toEqual(Array(3).fill(["user", "assistant"]).flat());
  });

  it("starts over when it is reset", async () => {
    const conversation = llm.createConversation();
    const first = await send(conversation, "One");
    await send(conversation, "Two");
    conversation.reset();
    expect(await send(conversation, "One")).toEqual(first);
    conversation.reset("Be brief.");
    expect(conversation.messages).toEqual([{ role: "system", content: "Be brief." }]);
    expect((await send(conversation, "One")).promptTokens).toBeGreaterThan(first.promptTokens);
  });

  it("goes on with messages that were kept, of which what is known is not computed again", async () => {
    const conversation = llm.createConversation();
    await send(conversation, "One");
    const kept = conversation.messages.slice();
    const { text } = await send(conversation, "Two");
    conversation.reset(kept);
    expect(conversation.messages).toEqual(kept);
    expect(await send(conversation, "Two")).toEqual({ text, promptTokens: 1 });
    conversation.reset(conversation.messages);
    expect(conversation.messages).toHaveLength(4);
    expect(() => conversation.reset([{ role: "user" }] as never)).toThrow(/^messages\[0\].content: expected/);
    expect(conversation.messages).toHaveLength(4);
  });

  it("answers a message again whose answer was taken back, of which the last token is computed", async () => {
    const conversation = llm.createConversation();
    const { text } = await send(conversation, "Hello");
    conversation.messages.length = 0;
    expect(await send(conversation, "Hello")).toEqual({ text, promptTokens: 1 });
  });

  it("keeps the part of an answer that was read", async () => {
    const conversation = llm.createConversation();
    let read = "";
    for await (const piece of conversation.send("Hello", options)) {
      read += piece;
      if (read.length >= 3) break;
    }
    expect(conversation.messages.at(-1)).toEqual({ role: "assistant", content: read });
    const { text } = await send(conversation, "Go on");
    const fresh = llm.createConversation();
    fresh.messages.push({ role: "user", content: "Hello" }, { role: "assistant", content: read });
    expect((await send(fresh, "Go on")).text).toBe(text);
  });

  it("that outgrows the context is a ContextLengthError", async () => {
    const conversation = llm.createConversation();
    await expect(send(conversation, "word ".repeat(300))).rejects.toThrow(ContextLengthError);
  });

  it("forgets a message whose answer failed before any of it was read", async () => {
    const conversation = llm.createConversation();
    await send(conversation, "Hello");
    const before = [...conversation.messages];
    await expect(send(conversation, "word ".repeat(300))).rejects.toThrow(ContextLengthError);
    const aborted = conversation.send("Hello?", { ...options, signal: AbortSignal.abort(new Error("no")) });
    await expect(aborted[Symbol.asyncIterator]().next()).rejects.toThrow("no");
    expect(conversation.messages).toEqual(before);
    const fresh = llm.createConversation();
    fresh.messages.push(...before);
    expect((await send(conversation, "Go on")).text).toBe((await send(fresh, "Go on")).text);
  });

  it("keeps what was read of an answer that failed later", async () => {
    const conversation = llm.createConversation();
    const controller = new AbortController();
    let read = "";
    const answer = (async () => {
      for await (const piece of conversation.send("Hello", { ...options, signal: controller.signal })) {
        read += piece;
        if (read !== "") controller.abort(new Error("enough"));
      }
    })();
    await expect(answer).rejects.toThrow("enough");
    expect(conversation.messages).toEqual([
      { role: "user", content: "Hello" },
      { role: "assistant", content: read },
    ]);
  });

  it("answers one message at a time", async () => {
    const expected = await send(llm.createConversation(), "Hello");
    const conversation = llm.createConversation();
    const first = send(conversation, "Hello");
    await expect(send(conversation, "How are you?")).rejects.toThrow(InvalidArgumentError);
    expect(() => conversation.reset()).toThrow(/answer under way/);
    expect(await first).toEqual(expected);
    expect(conversation.messages.map(({ content }) => content)).toEqual(["Hello", expected.text]);
    conversation.reset();
    expect(await send(conversation, "Hello")).toEqual(expected);
  });

  it("gives an answer once: what is iterated again is an error, and stays as it was", async () => {
    const conversation = llm.createConversation();
    const stream = conversation.send("Hello", options);
    for await (const _ of stream);
    const [messages, result] = [[...conversation.messages], await stream.result];
    await expect(stream[Symbol.asyncIterator]().next()).rejects.toThrow(
      new InvalidArgumentError("generation: expected one iteration but found another; begin a new generation"),
    );
    expect(conversation.messages).toEqual(messages);
    expect(await stream.result).toBe(result);
  });

  it("penalizes tokens of earlier turns as if all were computed at once", async () => {
    const conversation = llm.createConversation();
    const penalties = { ...options, presencePenalty: 50, penaltyWindow: Number.POSITIVE_INFINITY };
    await send(conversation, "Hello", penalties);
    const fresh = llm.createConversation();
    fresh.messages.push(...conversation.messages);
    const [found, expected] = [await send(conversation, "Go on", penalties), await send(fresh, "Go on", penalties)];
    expect(found.promptTokens).toBeLessThan(expected.promptTokens);
    expect(found.text).toBe(expected.text);
  });

  it("needs a chat template, and a tokenizer", async () => {
    const none = { tokenizerJson: null, tokenizerConfig: null, generationConfig: null, chatTemplate: null };
    const model = await loadCheckpoint(folder);
    const bare = await loadProgramObject(compileModel(model), "bare.pte", { texts: none });
    const texts = { ...none, tokenizerJson: model.checkpoint.tokenizerJson!.text };
    const plain = await loadProgramObject(compileModel(model), "plain.pte", { texts });
    await model.close();
    await expect(send(plain.createConversation(), "Hello")).rejects.toThrow(UnsupportedError);
    await expect(send(plain.createConversation(), "Hello")).rejects.toThrow(/plain.pte: has no chat template/);
    expect(() => bare.tokenizer).toThrow(/expected a tokenizer.json in or beside the program; only token ids work/);
    await expect(bare.createDecoder().prefill([1])).resolves.toHaveLength(282);
  });
});
