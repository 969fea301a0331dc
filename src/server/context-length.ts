/**
 * Errors of conversations longer than the context, worded as each API words them: clients match the text, and shorten the
 * conversation.
 */
import { ContextLengthError } from "../errors.ts";
import { ApiError } from "./errors.ts";

/** The API whose wording is used. */
export type ContextWords = "chat" | "responses" | "messages" | "ollama";

const WORDS: Readonly<Record<ContextWords, (tokens: number, most: number) => string>> = {
  chat: (tokens, most) =>
    `This model's maximum context length is ${most} tokens. However, your messages resulted in ${tokens} tokens. Please reduce the length of the messages.`,
  responses: (tokens, most) =>
    `Your input exceeds the context window of this model: ${tokens} tokens > ${most} maximum. Please adjust your input and try again.`,
  ollama: (tokens, most) => `the input length exceeds the context length: ${tokens} tokens > ${most} maximum`,
  messages: (tokens, most) => `prompt is too long: ${tokens} tokens > ${most} maximum`,
};

const PARAMS: Readonly<Record<ContextWords, string>> = {
  chat: "messages",
  responses: "input",
  messages: "messages",
  ollama: "messages",
};

/**
 * Passes on events; a ContextLengthError becomes an ApiError in the API's words. `count` gives the tokens of the long
 * prompt.
 */
export async function* withinContext<T>(
  events: AsyncIterable<T>,
  words: ContextWords,
  contextLength: number,
  count: () => number,
): AsyncGenerator<T> {
  try {
    yield* events;
  } catch (cause) {
    if (!(cause instanceof ContextLengthError)) throw cause;
    throw new ApiError(400, WORDS[words](count(), contextLength), {
      ...{ code: "context_length_exceeded", param: PARAMS[words], cause },
    });
  }
}
