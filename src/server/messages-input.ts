/** Converts Anthropic's messages, tools and fields to the library's. */

import { valueTexts } from "../json-text.ts";
import type { ChatOptions } from "../language/chat-options.ts";
import {
  type AssistantMessage,
  joinedTexts,
  type Message,
  type ToolCall,
  type ToolChoice,
} from "../text/chat-messages.ts";
import { reminder } from "../text/template-turns.ts";
import {
  base64Text,
  contentText,
  otherPart,
  type Part,
  snapshotStart,
  systemText,
  type UnseenPolicy,
} from "./contents.ts";
import type { Thinking } from "./model-options.ts";
import { OfferedTools } from "./offered-tools.ts";
import { given } from "./schemas/fields.ts";
import type {
  AssistantBlock,
  KnownBlocks,
  MessageParam,
  MessagesRequest,
  PromptFields,
  ShownBlock,
  ToolResultBlock,
} from "./schemas/messages.ts";
import type { Warn } from "./warnings.ts";

/** How blocks of a message are read. */
interface Reading {
  /** Path of the message in the request. */
  readonly path: string;
  /** Whether the message is the last one. */
  readonly isLast: boolean;
  /** Whether the message is the first one and another text will be put in front of its last block. */
  readonly isOpening: boolean;
  readonly policy: UnseenPolicy;
  readonly warn: Warn;
  /** Gives the JSON text of the arguments of the tool call that is block number `block`. */
  readonly inputOf: (block: number) => string;
}

/**
 * Converts a conversation: tool results become messages of their own, before the user's text beside them. Arguments of tool
 * calls are taken from `text`, the request's JSON, so that numbers keep all digits.
 */
export function conversationOf(
  { system, messages }: PromptFields,
  { text, policy, warn }: { readonly text: string; readonly policy: UnseenPolicy; readonly warn: Warn },
): Message[] {
  const [content, snapshot] = partedSystem(system ? textOfSystem(system) : "", messages[0]);
  const inputs = new Map<string, string>();
  for (const { indices, text: input } of valueTexts(text, ["messages", null, "content", null, "input"]))
    inputs.set(indices.join(), input);
  const turns = messages.map((message, i) =>
    messagesOf(message, {
      ...{ path: `messages.${i}.content`, isLast: i === messages.length - 1, policy, warn },
      isOpening: i === 0 && (snapshot !== "" || messages[1]?.role === "system"),
      inputOf: (block) => inputs.get([i, block].join())!,
    }),
  );
  const conversation = withQuestionLast(turns, snapshot);
  return content === "" ? conversation : [{ role: "system", content }, ...conversation];
}

/**
 * Splits a system prompt of Claude Code from the repository state at its end. Where the conversation begins with the user,
 * the state can move behind the tools and the system prompt, which other conversations share, so that the prefix cache
 * holds those.
 */
function partedSystem(text: string, first: MessageParam | undefined): [system: string, snapshot: string] {
  const isAsked =
    first?.role === "user" &&
    (typeof first.content === "string" || first.content.every(({ type }) => type !== "tool_result"));
  const at = isAsked ? snapshotStart(text) : text.length;
  return [text.slice(0, at), text.slice(at).trim()];
}

/**
 * Puts the first question last in its turn, behind system texts (with which Claude Code tells of agents and skills) and the
 * repository state. What all conversations have in common stays in front, for the prefix cache.
 */
function withQuestionLast([first = [], ...turns]: readonly Message[][], snapshot: string): Message[] {
  const others = turns.flat();
  const question = first.at(-1);
  if (question?.role !== "user" || first.some(({ role }) => role !== "user")) return [...first, ...others];
  const next = others.findIndex(({ role }) => role !== "system");
  const systems = others.slice(0, next < 0 ? others.length : next);
  const asked = snapshot === "" ? question : { ...question, content: `${reminder(snapshot)}\n\n${question.content}` };
  return [...first.slice(0, -1), ...systems, asked, ...others.slice(systems.length)];
}

function textOfSystem(content: string | readonly { readonly text: string }[]): string {
  return systemText(typeof content === "string" ? content : content.map(({ text }) => text));
}

function messagesOf(message: MessageParam, reading: Reading): Message[] {
  if (message.role === "system") return [{ role: "system", content: textOfSystem(message.content) }];
  if (message.role === "assistant")
    return typeof message.content === "string"
      ? [{ role: "assistant", content: message.content }]
      : assistantMessages(message.content, reading);
  const { content } = message;
  if (typeof content === "string") return [{ role: "user", content }];
  const results = content.flatMap((block, index): Message[] => {
    if (block.type !== "tool_result") return [];
    const { tool_use_id, content: given, is_error } = block as ToolResultBlock;
    const result = resultText(given ?? "", `${reading.path}.${index}.content`, reading.policy);
    return [{ role: "tool", content: is_error ? `Error: ${result}` : result, toolCallId: tool_use_id }];
  });
  const parts = content.map((block) => (block.type === "tool_result" ? null : partOf(block as ShownBlock)));
  if (parts.every((part) => part === null)) return results;
  const place = { path: reading.path, isNew: reading.isLast };
  const said = (some: readonly (Part | null)[]): Message => ({
    role: "user",
    content: contentText(some, place, reading.policy, "\n"),
  });
  if (!reading.isOpening || results.length > 0 || parts.length < 2) return [...results, said(parts)];
  const last = parts.length - 1;
  return [said(parts.with(last, null)), said(parts.map((part, index) => (index === last ? part : null)))];
}

/** The text of a tool's result: images and files in it are named, unless the policy refuses them everywhere. */
function resultText(content: string | readonly ShownBlock[], path: string, policy: UnseenPolicy): string {
  if (typeof content === "string") return content;
  return contentText(content.map(partOf), { path, isNew: false }, policy);
}

function partOf(block: ShownBlock): Part {
  if (block.type === "text") return block.text as string;
  if (block.type === "image") return { what: "image", label: (block as KnownBlocks["image"]).source.media_type ?? "" };
  if (block.type === "document") return documentPart(block as KnownBlocks["document"]);
  if (block.type === "search_result") {
    const { title, source, content } = block as KnownBlocks["search_result"];
    return [title, source, ...content.map(({ text }) => text)].join("\n");
  }
  if (block.type === "tool_reference") return `[tool ${(block as KnownBlocks["tool_reference"]).tool_name}]`;
  return block.type === "container_upload" ? { what: "file", label: "" } : otherPart(block);
}

function documentPart({ source, title, context }: KnownBlocks["document"]): Part {
  const text = documentText(source as DocumentSource);
  if (text === null) return { what: "document", label: title || (source as DocumentSource).media_type || "" };
  return [title, context, text].filter(Boolean).join("\n\n");
}

interface DocumentSource {
  readonly type: string;
  readonly media_type?: string | null;
  readonly data?: string;
  readonly content?: string | readonly ShownBlock[];
}

/** The text of a document; null where it is not text. */
function documentText({ type, media_type, data, content }: DocumentSource): string | null {
  if (type === "text") return data!;
  if (type === "content") return resultText(content!, "", "name");
  return type === "base64" ? base64Text(media_type ?? "", data!) : null;
}

/** Converts an answer of blocks. Results of tools that a server has run divide it, as do those of the client's tools. */
function assistantMessages(content: readonly AssistantBlock[], { inputOf, warn }: Reading): Message[] {
  const result: Message[] = [];
  let answer = new Answer();
  for (const [index, block] of content.entries()) {
    if (block.type === "text") answer.say(block.text as string);
    else if (block.type === "thinking") answer.think(block.thinking as string);
    else if (isUse(block)) answer.call({ id: block.id, name: block.name, arguments: inputOf(index) });
    else if (block.type === "image") answer.say(`[image not shown]`);
    else if (block.type === "compaction") answer.say(String(block.content ?? ""));
    else if (block.type.endsWith("_tool_result")) {
      const { tool_use_id, content: given } = block as { tool_use_id: string; content?: unknown };
      result.push(...answer.messages(), { role: "tool", content: ranText(given), toolCallId: tool_use_id });
      answer = new Answer();
    } else {
      answer.part();
      if (block.type !== "redacted_thinking") warn(`blocks of type ${block.type} are left out of answers`);
    }
  }
  if (result.length === 0 || !answer.isEmpty) result.push(...answer.messages(true));
  return result;
}

type Use = { readonly id: string; readonly name: string };

function isUse(block: AssistantBlock): block is AssistantBlock & Use {
  return block.type === "tool_use" || block.type === "server_tool_use" || block.type === "mcp_tool_use";
}

/** The result of a server's tool as text: JSON without the fields that only that server can read. */
function ranText(content: unknown): string {
  if (typeof content === "string") return content;
  const isTexts =
    Array.isArray(content) && content.every((part) => part?.type === "text" && typeof part.text === "string");
  if (isTexts) return content.map(({ text }) => text).join("");
  return JSON.stringify(content ?? null, (key, value) => (key.startsWith("encrypted_") ? undefined : value));
}

/** Collects the blocks of an answer into messages. */
class Answer {
  #text = "";
  #reasoning = "";
  #isApart = false;
  readonly #calls: ToolCall[] = [];

  get isEmpty(): boolean {
    return this.#text === "" && this.#reasoning === "" && this.#calls.length === 0;
  }

  /** Adds text; consecutive text blocks are one text. */
  say(text: string): void {
    this.#text = this.#isApart ? joinedTexts(this.#text, text) : this.#text + text;
    this.#isApart = false;
  }

  think(text: string): void {
    this.#reasoning += text;
    this.part();
  }

  call(call: ToolCall): void {
    this.#calls.push(call);
    this.part();
  }

  part(): void {
    this.#isApart = true;
  }

  messages(always = false): AssistantMessage[] {
    if (this.isEmpty && !always) return [];
    return [
      {
        role: "assistant",
        content: this.#text === "" && this.#calls.length > 0 ? null : this.#text,
        ...(this.#reasoning === "" ? {} : { reasoning: this.#reasoning }),
        ...(this.#calls.length === 0 ? {} : { toolCalls: this.#calls }),
      },
    ];
  }
}

/** The offered tools. Tools that Anthropic's servers run have other types, and are left out. */
export function messageTools({ tools }: PromptFields, max: number, warn: Warn): OfferedTools {
  const offered = new OfferedTools(max, warn);
  for (const tool of tools ?? []) {
    if ((tool.type ?? "custom") !== "custom") offered.leaveOut(tool.type as string);
    else {
      const { name, description, input_schema, strict } = tool as {
        name: string;
        description?: string;
        input_schema: object;
        strict?: boolean;
      };
      offered.addFunction({ name, description, parameters: input_schema, strict });
    }
  }
  return offered;
}

/** Thinking options of a request: off unless asked for, as in Anthropic's API. */
export function thinkingOf({ thinking, output_config }: PromptFields): Thinking {
  const effort = thinking?.type === "disabled" ? null : output_config?.effort;
  if (thinking?.type === "adaptive") return { effort };
  return { effort, thinking: thinking?.type === "enabled" ? { budget: thinking.budget_tokens } : false };
}

/** Options of generation, except those of thinking, which depend on the model. */
export function answerOptions(request: MessagesRequest, tools: OfferedTools): ChatOptions {
  const { temperature, top_p, top_k, stop_sequences, max_tokens } = request;
  return {
    ...promptOptions(request, tools),
    ...given({ temperature, topP: top_p, topK: top_k, stop: stop_sequences }),
    maxTokens: max_tokens,
  };
}

/** Options that the prompt depends on, except messages and thinking. */
export function promptOptions(
  { tool_choice }: PromptFields,
  tools: OfferedTools,
): Pick<ChatOptions, "tools" | "toolChoice"> {
  return tools.options(tool_choice ? toolChoiceOf(tool_choice) : null);
}

function toolChoiceOf(choice: NonNullable<MessagesRequest["tool_choice"]>): ToolChoice {
  if (choice.type === "tool") return { name: choice.name };
  return choice.type === "any" ? "required" : choice.type;
}

export function takesOneCall({ tool_choice }: MessagesRequest): boolean {
  return (
    tool_choice != null && "disable_parallel_tool_use" in tool_choice && tool_choice.disable_parallel_tool_use === true
  );
}
