/** From Anthropic's messages, tools and fields to the library's. */

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

/** How blocks become texts. */
interface Reading {
  /** Path of the message in the request. */
  readonly path: string;
  /** Whether it is the last one. */
  readonly isLast: boolean;
  /** Whether it is the first one, and something is put in front of its last block. */
  readonly isOpening: boolean;
  readonly policy: UnseenPolicy;
  readonly warn: Warn;
  /** Text of the arguments of the call that a block is. */
  readonly inputOf: (block: number) => string;
}

/**
 * The conversation: results of tools are messages of their own, in front of what the user says beside them. Arguments of
 * calls are those of `text`, the request as it came, with all digits of their numbers.
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
 * A system prompt without the state of the project at its end, which Claude Code tells there, and that: where a turn of the
 * user begins the conversation, it can stand there, behind the tools, which other conversations have, too.
 */
function partedSystem(text: string, first: MessageParam | undefined): [system: string, snapshot: string] {
  const isAsked =
    first?.role === "user" &&
    (typeof first.content === "string" || first.content.every(({ type }) => type !== "tool_result"));
  const at = isAsked ? snapshotStart(text) : text.length;
  return [text.slice(0, at), text.slice(at).trim()];
}

/**
 * The first question behind what stands beside it: the systems that follow it, in which Claude Code tells of agents and skills,
 * and the state of the project. What is the same in all conversations is in front, so that they begin alike.
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

/** What a tool gave: what a model cannot see of that is named, unless it is refused everywhere. */
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

/** The text of a document; null where it is none. */
function documentText({ type, media_type, data, content }: DocumentSource): string | null {
  if (type === "text") return data!;
  if (type === "content") return resultText(content!, "", "name");
  return type === "base64" ? base64Text(media_type ?? "", data!) : null;
}

/** An answer of blocks. Results of tools that a server has run part it, as those do that the client has run. */
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

/** What a server's tool gave, as text: JSON without what only the server can read. */
function ranText(content: unknown): string {
  if (typeof content === "string") return content;
  const isTexts =
    Array.isArray(content) && content.every((part) => part?.type === "text" && typeof part.text === "string");
  if (isTexts) return content.map(({ text }) => text).join("");
  return JSON.stringify(content ?? null, (key, value) => (key.startsWith("encrypted_") ? undefined : value));
}

/** An answer as its blocks come. */
class Answer {
  #text = "";
  #reasoning = "";
  #isApart = false;
  readonly #calls: ToolCall[] = [];

  get isEmpty(): boolean {
    return this.#text === "" && this.#reasoning === "" && this.#calls.length === 0;
  }

  /** Blocks of text that nothing parts are one text. */
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

/** Tools that Anthropic's servers run have a type of their own. */
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

/** How models think: only where they are asked to, as the API has it. */
export function thinkingOf({ thinking, output_config }: PromptFields): Thinking {
  const effort = thinking?.type === "disabled" ? null : output_config?.effort;
  if (thinking?.type === "adaptive") return { effort };
  return { effort, thinking: thinking?.type === "enabled" ? { budget: thinking.budget_tokens } : false };
}

/** Options but those of thinking, which depend on the model. */
export function answerOptions(request: MessagesRequest, tools: OfferedTools): ChatOptions {
  const { temperature, top_p, top_k, stop_sequences, max_tokens } = request;
  return {
    ...promptOptions(request, tools),
    ...given({ temperature, topP: top_p, topK: top_k, stop: stop_sequences }),
    maxTokens: max_tokens,
  };
}

/** What the prompt depends on beside the messages and thinking. */
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
