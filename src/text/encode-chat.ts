/**
 * Encodes a conversation. Control tokens come from the template only: what users and tools write stays text, even if it
 * contains `<|eot_id|>`.
 */
import { checkInstance, checkList, checkNestingOf, checkOptions } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { prefixParts } from "./answer-prefix.ts";
import type { AssistantMessage } from "./chat-messages.ts";
import { ChatTemplate, type RenderOptions, type TemplateMessage } from "./chat-template.ts";
import { Float } from "./template/values.ts";
import { type EncodeTextOptions, Tokenizer, WHOLE_TEXT } from "./tokenizer.ts";

/** Options of encoding a rendered template. */
export interface EncodeRenderedOptions extends Pick<EncodeTextOptions, "contextLength"> {
  /** An answer after the prompt that the model continues. Default: none. */
  readonly prefix?: AssistantMessage | null | undefined;
}

/**
 * Token ids of a rendered conversation. BOS comes from the template alone; `bosToken` and `eosToken` default to those of the
 * tokenizer. Special tokens are never made from text in `messages`, `tools` or `documents`; nor, outside assistant messages,
 * are other added tokens that the template itself writes, such as `<tool_response>`.
 *
 * Before rendering, a private-use character is put inside such text, so that it does not match a token whatever the template
 * does with it (trim, join, JSON); encoding removes the character.
 */
export function encodeChat(
  tokenizer: Tokenizer,
  template: ChatTemplate,
  messages: readonly TemplateMessage[],
  given: RenderOptions & EncodeRenderedOptions = {},
): number[] {
  checkInstance("tokenizer", tokenizer, Tokenizer, "a Tokenizer");
  checkInstance("template", template, ChatTemplate, "a ChatTemplate");
  checkList("messages", messages, ["role"], "messages");
  checkOptions(given);
  checkNestingOf("options", given);
  const { contextLength, prefix = null, ...options } = given;
  const structural = tokenizer.addedTokens.idsIn(template.source);
  const isSpecial = (id: number) => tokenizer.isSpecial(id);
  const isControl = (id: number) => isSpecial(id) || structural.has(id);
  const breaker = new TextBreaker(tokenizer, unusedCharacter([template.source, messages, options, prefix]));
  const broken = messages.map((message) =>
    breaker.break(message, message.role === "assistant" ? isSpecial : isControl),
  );
  const { xml_tools: xmlTools } = options;
  const prompt = template.render(broken, {
    ...options,
    bosToken: options.bosToken ?? tokenizer.bos?.text,
    eosToken: options.eosToken ?? tokenizer.eos?.text,
    tools: breaker.break(options.tools, isControl),
    ...(xmlTools === undefined ? {} : { xml_tools: breaker.break(xmlTools, isControl) }),
    documents: breaker.break(options.documents ?? null, isControl),
  });
  const beginning = prefix ? prefixParts(prefix, prompt, template.source) : [];
  const text = prompt + beginning.map((part, at) => (at % 2 === 0 ? part : breaker.break(part, isSpecial))).join("");
  if (breaker.count === 0) return tokenizer.encode(text, { ...WHOLE_TEXT, addSpecialTokens: false, contextLength });
  return tokenizer.encodeMarked(text, breaker.mark, { contextLength });
}

/** Breaks up control tokens in JSON-like values by a mark after their first character. */
class TextBreaker {
  /** Marks set so far. */
  count = 0;
  readonly #tokenizer: Tokenizer;
  readonly mark: string;

  constructor(tokenizer: Tokenizer, mark: string) {
    this.#tokenizer = tokenizer;
    this.mark = mark;
  }

  /** A copy of `value` in which no string or key contains a token that `isControl` accepts. */
  break<T>(value: T, isControl: (id: number) => boolean): T {
    return mapStrings(value, (text) => this.#breakText(text, isControl)) as T;
  }

  #breakText(text: string, isControl: (id: number) => boolean): string {
    const { addedTokens } = this.#tokenizer;
    const starts = addedTokens.starts(text, isControl);
    const broken = this.#withMarks(text, starts);
    const isSpelled = addedTokens.isSpelledIn(() => this.#tokenizer.normalize(broken), isControl);
    if (!isSpelled) {
      this.count += starts.length;
      return broken;
    }
    // Only the normalized text contains a token, which may begin anywhere. White space at the ends is kept for templates that
    // trim.
    const all = [...text.matchAll(/\S(?=\S)/gu)].map(({ index }) => index);
    this.count += all.length;
    return this.#withMarks(text, all);
  }

  /** A text with a mark after the characters at these offsets. */
  #withMarks(text: string, starts: readonly number[]): string {
    let result = "";
    let done = 0;
    for (const start of starts) {
      const next = start + String.fromCodePoint(text.codePointAt(start)!).length;
      result += text.slice(done, next) + this.mark;
      done = next;
    }
    return result + text.slice(done);
  }
}

/** A copy of a JSON-like value with every string and key replaced; other values stay as they are. */
function mapStrings(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((item) => mapStrings(item, change));
  if (value === null || typeof value !== "object" || value instanceof Float) return value;
  if (value instanceof Map)
    return new Map([...value].map(([key, item]) => [mapStrings(key, change), mapStrings(item, change)]));
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [change(key), mapStrings(item, change)]));
}

/** A private-use character that occurs nowhere in `value`. */
function unusedCharacter(value: unknown): string {
  const used = new Set<string>();
  mapStrings(value, (text) => {
    for (const character of text.match(/[\uE000-\uF8FF]/g) ?? []) used.add(character);
    return text;
  });
  for (let code = 0xe000; code <= 0xf8ff; code++)
    if (!used.has(String.fromCharCode(code))) return String.fromCharCode(code);
  throw new InvalidArgumentError("messages: they use all 6400 private-use characters; at least one must be free");
}
