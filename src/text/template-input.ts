/** Converts messages, tools and options to a chat template's variables: in transformers' form, under the names that it uses. */
import { checkNestingOf, checkString, shown } from "../arguments.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import { ARGUMENTS, parsedArguments, writtenCalls } from "./call-arguments.ts";
import {
  type AssistantMessage,
  checkMessages,
  checkTools,
  type Message,
  type Tool,
  type ToolCall,
  type ToolMessage,
} from "./chat-messages.ts";
import type { ChatTemplate, RenderOptions, TemplateMessage } from "./chat-template.ts";
import { inTakenOrder, TemplateTurns, textOf } from "./template-turns.ts";
import { hasChannels, templateVariables, thinkingSwitches } from "./thinking.ts";

/** Options of a conversation's template. */
export interface TemplateOptions {
  /** Tools that the model may call. Default none. */
  readonly tools?: readonly Tool[] | undefined;
  /** Further variables of the chat template, such as `reasoning_effort`. */
  readonly templateOptions?: Readonly<Record<string, unknown>> | undefined;
}

/** Options of a conversation's prompt. */
export interface ChatPromptOptions extends TemplateOptions {
  /** Whether the model thinks before it answers, for templates with such a switch. Default: the template's own. */
  readonly thinking?: boolean | undefined;
}

/** Input of a chat template. */
export interface TemplateInput {
  readonly messages: readonly TemplateMessage[];
  readonly options: RenderOptions;
}

/**
 * Makes the input of a template from messages and options.
 *
 * @throws InvalidArgumentError for invalid messages or tools.
 * @throws UnsupportedError when there are tools and the template does not support them.
 */
export function templateInput(
  template: ChatTemplate,
  messages: readonly Message[],
  { tools = [], thinking, templateOptions = {} }: ChatPromptOptions,
): TemplateInput {
  checkMessages(messages);
  checkTools(tools);
  checkVariables(templateOptions);
  if (tools.length > 0 && !takesTools(template.source))
    throw new UnsupportedError("tools: the model's chat template has none: it was not trained to call any");
  const turns = turnsOf(template, tools.length > 0);
  const ordered = inTakenOrder(messages, turns);
  return {
    messages: shaped(template, ordered, turns),
    options: {
      ...toolVariables(template.source, tools),
      ...thinkingVariables(template.source, thinking),
      ...templateOptions,
    },
  };
}

/** Messages in the template's form. `turns` says which orders it supports; null while that is being tested. */
function shaped(template: ChatTemplate, messages: readonly Message[], turns: TemplateTurns | null): TemplateMessage[] {
  const shape = new MessageShape(template.source, messages, turns);
  return messages.map((message) => shape.of(message));
}

/** Tested templates, without (false) and with tools (true). */
const known = new WeakMap<ChatTemplate, Map<boolean, TemplateTurns>>();

function turnsOf(template: ChatTemplate, hasTools: boolean): TemplateTurns {
  const made = known.get(template) ?? new Map<boolean, TemplateTurns>();
  known.set(template, made);
  const variables = toolVariables(template.source, hasTools ? [{ name: "tool" }] : []);
  const render = (messages: readonly Message[]) =>
    template.render(shaped(template, messages, null), { ...variables, addGenerationPrompt: true });
  const turns = made.get(hasTools) ?? new TemplateTurns(render);
  made.set(hasTools, turns);
  return turns;
}

/** Whether a template has a variable for tools. */
export function takesTools(template: string): boolean {
  checkString("template", template);
  const names = templateVariables(template);
  return names.has("tools") || names.has("functions") || names.has("xml_tools");
}

function toolVariables(template: string, tools: readonly Tool[]): { tools: object[] | null; xml_tools?: object[] } {
  if (tools.length === 0) return { tools: null };
  const written = tools.map(templateTool);
  const names = templateVariables(template);
  const isXml = names.has("xml_tools") && !names.has("tools");
  // SmolLM3's `xml_tools` takes the bare function objects.
  return isXml ? { tools: null, xml_tools: written.map((tool) => tool.function) } : { tools: written };
}

const RESERVED = ["messages", "tools", "add_generation_prompt", "addGenerationPrompt"];

function checkVariables(variables: Readonly<Record<string, unknown>>): void {
  if (typeof variables !== "object" || variables === null)
    throw new InvalidArgumentError(`templateOptions: expected an object but found ${shown(variables)}`);
  checkNestingOf("templateOptions", variables);
  const name = RESERVED.find((reserved) => Object.hasOwn(variables, reserved));
  if (name !== undefined)
    throw new InvalidArgumentError(
      `templateOptions: expected variables of the template but found ${name}, which has a value`,
    );
}

/** A tool in OpenAI's form. */
function templateTool({ name, description, parameters }: Tool): { type: string; function: object } {
  const { properties = {}, ...schema } = (parameters ?? {}) as Record<string, unknown>;
  return {
    type: "function",
    function: { name, description: description ?? "", parameters: { type: "object", properties, ...schema } },
  };
}

function thinkingVariables(template: string, thinking: boolean | undefined): Record<string, unknown> {
  if (thinking === undefined) return {};
  const known = thinkingSwitches(template);
  if (known.length > 0) return Object.fromEntries(known.map((name) => [name, thinking]));
  // gpt-oss cannot turn thinking off, only reduce it.
  return hasChannels(template) && !thinking ? { reasoning_effort: "low" } : {};
}

/** How a template expects messages. */
class MessageShape {
  readonly #reasoningKey: string | null;
  /** Whether arguments must be JSON text: some templates concatenate them in place of writing JSON. */
  readonly #wantsArgumentText: boolean;
  /** Writes calls as part of the answer's text, for a template without tool calls; null for others. */
  readonly #writeCalls: ((calls: readonly ToolCall[]) => string) | null;
  /** Whether thinking and text before a call must be one text: gpt-oss's template writes both as analysis. */
  readonly #wantsOneText: boolean;
  /** Call ids in the form that the template accepts: Mistral's must have 9 letters or digits. */
  readonly #ids: ReadonlyMap<string, string>;
  readonly #names: ReadonlyMap<string, string>;
  readonly #turns: TemplateTurns | null;

  constructor(source: string, messages: readonly Message[], turns: TemplateTurns | null) {
    this.#turns = turns;
    this.#reasoningKey = reasoningKey(source);
    this.#wantsArgumentText =
      /\+\s*\w+(?:\.function|\[['"]function['"]\])(?:\.arguments|\[['"]arguments['"]\])(?!\s*\|)/.test(source);
    this.#writeCalls = source.includes("tool_calls") ? null : (calls) => writtenCalls(source, calls);
    this.#wantsOneText = hasChannels(source);
    const calls = messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
    this.#names = new Map(calls.map(({ id, name }) => [id, name]));
    const isShort = /length (?:!= )?9/.test(source);
    const ids = calls.map(({ id }, index) => [id, String(index + 1).padStart(9, "0")] as const);
    this.#ids = new Map(isShort ? ids.filter(([id]) => !/^[A-Za-z0-9]{9}$/.test(id)) : []);
  }

  of(message: Message): TemplateMessage {
    if (message.role === "assistant") return this.#assistant(message);
    if (message.role === "tool") return this.#tool(message);
    const { role, content } = message;
    return { role, content: textOf(content) };
  }

  #assistant({ content: said, reasoning: thought, toolCalls = [] }: AssistantMessage): TemplateMessage {
    const isJoined = this.#wantsOneText && toolCalls.length > 0 && said && thought;
    const [content, reasoning] = isJoined ? ["", `${thought}\n\n${said}`] : [said, thought];
    const written = toolCalls.length > 0 && this.#writeCalls ? this.#writeCalls(toolCalls) : "";
    const calls = toolCalls.map(({ id, name, arguments: text }) => ({
      id: this.#idOf(id),
      type: "function",
      function: { name, arguments: this.#arguments(text) },
    }));
    return {
      role: "assistant",
      content: (content ?? "") + written,
      ...(this.#reasoningKey !== null && reasoning ? { [this.#reasoningKey]: reasoning } : {}),
      ...(calls.length > 0 && written === "" ? { tool_calls: calls } : {}),
    };
  }

  #tool({ content, toolCallId, name = this.#names.get(toolCallId) }: ToolMessage): TemplateMessage {
    return { role: "tool", content, tool_call_id: this.#idOf(toolCallId), ...(name === undefined ? {} : { name }) };
  }

  #idOf(id: string): string {
    return this.#ids.get(id) ?? id;
  }

  #arguments(text: string): unknown {
    if (this.#wantsArgumentText) return text;
    const value = parsedArguments(text);
    if (value instanceof Map) return value;
    return !this.#turns || this.#turns.takes("argumentText") ? text : new Map([[ARGUMENTS, value]]);
  }
}

/** The message field that a template reads thinking from; null where it reads none. */
function reasoningKey(source: string): string | null {
  const isRead = (name: string) => new RegExp(`\\.${name}\\b|\\[['"]${name}['"]\\]|['"]${name}['"] in `).test(source);
  return ["reasoning_content", "thinking", "reasoning"].find(isRead) ?? null;
}
