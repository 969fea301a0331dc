/** Encodes the prompt of a conversation with the chat template. */
import { UnsupportedError } from "../errors.ts";
import { answerPrefix } from "../text/answer-prefix.ts";
import { checkMessages, type Message } from "../text/chat-messages.ts";
import type { ChatTemplate } from "../text/chat-template.ts";
import type { Draft } from "../text/draft-source.ts";
import { encodeChat } from "../text/encode-chat.ts";
import type { SamplerOptions } from "../text/sampler.ts";
import { templateInput } from "../text/template-input.ts";
import { canThink } from "../text/thinking.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { type EncodeChatOptions, wantsThinking } from "./chat-options.ts";
import type { LateModules } from "./late-modules.ts";

/** What answering messages needs of a model. */
export interface ChatModel {
  /** Loads the modules that parse and constrain answers. */
  readonly modules: LateModules;
  /** Name of the model, for messages. */
  readonly name: string;
  /** Tokenizer of the model. */
  readonly tokenizer: Tokenizer;
  /** Chat template of the model; null where it has none and cannot converse. */
  readonly template: ChatTemplate | null;
  /** Sampling options that apply where a call gives none. */
  readonly samplingDefaults: SamplerOptions;
  /** Where drafts come from where a call does not say. */
  readonly draft: Draft;
  /** Ids of the tokens that end an answer. */
  readonly eosIds: readonly number[];
  /** Stop strings that end an answer. */
  readonly stopStrings: readonly string[];
}

/**
 * Ids of a conversation up to where the answer begins; where the last message is the model's, up to where it goes on.
 * ContextLengthError for more than `contextLength`.
 */
export function encodePrompt(
  { name, tokenizer, template }: Pick<ChatModel, "name" | "tokenizer" | "template">,
  messages: readonly Message[],
  { tools, thinking, templateOptions }: EncodeChatOptions,
  contextLength: number,
): number[] {
  if (!template) throw new UnsupportedError(`${name}: has no chat template; use generate with a plain prompt`);
  const wanted = wantsThinking(thinking);
  if (wanted === true && !canThink(template.source))
    throw new UnsupportedError(`${name}: thinking: the model's chat template has none`);
  checkMessages(messages);
  const prefix = answerPrefix(messages);
  const asked = prefix ? messages.slice(0, -1) : messages;
  const input = templateInput(template, asked, { tools, thinking: wanted, templateOptions });
  return encodeChat(tokenizer, template, input.messages, {
    ...input.options,
    addGenerationPrompt: true,
    prefix,
    contextLength,
  });
}
