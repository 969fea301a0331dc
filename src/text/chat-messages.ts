/** Messages, tools and tool calls of a conversation, in one form for all models. */
import { checkNestingOf } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";

/** A text part of a user message. */
export interface TextPart {
  /** Kind of the part. */
  readonly type: "text";
  /** The text. */
  readonly text: string;
}

/** A tool call that a model asks for. */
export interface ToolCall {
  /** Id of the call, which the message with its result repeats. */
  readonly id: string;
  /** Name of the tool. */
  readonly name: string;
  /**
   * JSON text of the arguments object, as the model wrote it: incomplete where the answer was cut, and invalid JSON where the
   * model made a mistake.
   */
  readonly arguments: string;
}

/** A system message: instructions before a conversation. */
interface SystemMessage {
  /** Who speaks. */
  readonly role: "system";
  /** The instructions. */
  readonly content: string;
}

/** A user message. */
export interface UserMessage {
  /** Who speaks. */
  readonly role: "user";
  /** The text, or parts that are joined to one text. */
  readonly content: string | readonly TextPart[];
}

/** An answer of the model: its text, the thinking before it, and tool calls. */
export interface AssistantMessage {
  /** Who speaks. */
  readonly role: "assistant";
  /** The answer's text; null where the model only called tools. */
  readonly content: string | null;
  /** The model's thinking before the answer. Most templates omit it from later prompts. */
  readonly reasoning?: string | undefined;
  /** Calls of tools, in their order. */
  readonly toolCalls?: readonly ToolCall[] | undefined;
}

/** Result of a tool call. */
export interface ToolMessage {
  /** Who speaks. */
  readonly role: "tool";
  /** The result, as text. */
  readonly content: string;
  /** Field `id` of the call. */
  readonly toolCallId: string;
  /** Name of the tool; default: that of the call with this id. */
  readonly name?: string | undefined;
}

/** A message of a conversation. */
export type Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage;

/** A function that a model may ask to have called. */
export interface Tool {
  /** Letters, digits, `_`, `-` and `.`, at most 128. */
  readonly name: string;
  /** What the function does and when to call it, for the model. */
  readonly description?: string | undefined;
  /** JSON schema of the arguments, which are an object. Default: any object. */
  readonly parameters?: object | undefined;
  /**
   * Whether a call that the model makes on its own is constrained to the schema from its beginning. A required call always is.
   * UnsupportedError for schemas that cannot be enforced. Default false: the arguments are what the model wrote.
   */
  readonly strict?: boolean | undefined;
  /**
   * For a tool whose one argument is a text in a grammar: the argument's name, and the grammar (EBNF with a rule `root`) that
   * calls are constrained to.
   */
  readonly text?: { readonly argument: string; readonly ebnf: string } | undefined;
}

/**
 * Whether tools are called: as the model decides ("auto", the default where there are tools), none, at least one ("required"),
 * or the named one. With `names`, the model sees all tools but may call only those, as it decides or at least one.
 */
export type ToolChoice =
  | "auto"
  | "none"
  | "required"
  | { readonly name: string }
  | { readonly names: readonly string[]; readonly mode: "auto" | "required" };

/** Joins two texts of an answer that a call or thinking divided, with a blank line unless white space separates them. */
export function joinedTexts(a: string, b: string): string {
  return a === "" || b === "" || /\s$/.test(a) || /^\s/.test(b) ? a + b : `${a}\n\n${b}`;
}

/** Checks messages. InvalidArgumentError that names the message and field at fault. */
export function checkMessages(messages: readonly Message[]): void {
  if (!Array.isArray(messages)) throw wrong("messages", "a list of messages", messages);
  for (const [index, message] of messages.entries()) checkMessage(message, `messages[${index}]`);
}

function checkMessage(message: unknown, at: string): void {
  if (typeof message !== "object" || message === null) throw wrong(at, "a message", message);
  const { role, content, reasoning, toolCalls, toolCallId, name } = message as Record<string, unknown>;
  if (role !== "system" && role !== "user" && role !== "assistant" && role !== "tool")
    throw wrong(`${at}.role`, "system, user, assistant or tool", role);
  const isParts = role === "user" && Array.isArray(content) && content.every(isTextPart);
  const isAbsent = role === "assistant" && content === null;
  if (typeof content !== "string" && !isParts && !isAbsent)
    throw wrong(`${at}.content`, role === "user" ? "a text or text parts" : "a text", content);
  if (role === "assistant" && reasoning !== undefined && typeof reasoning !== "string")
    throw wrong(`${at}.reasoning`, "a text", reasoning);
  if (role === "assistant" && toolCalls !== undefined) checkCalls(toolCalls, `${at}.toolCalls`);
  if (role !== "tool") return;
  if (typeof toolCallId !== "string") throw wrong(`${at}.toolCallId`, "the id of a call", toolCallId);
  if (name !== undefined && typeof name !== "string") throw wrong(`${at}.name`, "the name of a tool", name);
}

function isTextPart(part: unknown): boolean {
  const { type, text } = (part ?? {}) as Partial<TextPart>;
  return type === "text" && typeof text === "string";
}

function checkCalls(calls: unknown, at: string): void {
  if (!Array.isArray(calls)) throw wrong(at, "a list of calls", calls);
  for (const [index, call] of calls.entries()) {
    const { id, name, arguments: text } = (call ?? {}) as Partial<ToolCall>;
    for (const [field, value] of Object.entries({ id, name, arguments: text }))
      if (typeof value !== "string") throw wrong(`${at}[${index}].${field}`, "a text", value);
  }
}

/** Checks a list of tools. InvalidArgumentError that names the tool and field at fault, also for a name that comes twice. */
export function checkTools(tools: readonly Tool[]): void {
  if (!Array.isArray(tools)) throw wrong("tools", "a list of tools", tools);
  const names = new Set<string>();
  for (const [index, tool] of tools.entries()) {
    const at = `tools[${index}]`;
    const { name, description, parameters, strict, text } = (tool ?? {}) as Partial<Tool>;
    if (typeof name !== "string" || !/^[\w.-]{1,128}$/.test(name))
      throw wrong(`${at}.name`, "1 to 128 letters, digits, _, - and .", name);
    if (names.has(name)) throw wrong(`${at}.name`, "a name that no other tool has", name);
    if (description !== undefined && typeof description !== "string")
      throw wrong(`${at}.description`, "a text", description);
    if (
      parameters !== undefined &&
      (typeof parameters !== "object" || parameters === null || Array.isArray(parameters))
    )
      throw wrong(`${at}.parameters`, "a JSON schema", parameters);
    checkNestingOf(`${at}.parameters`, parameters);
    if (strict !== undefined && typeof strict !== "boolean") throw wrong(`${at}.strict`, "true or false", strict);
    if (text !== undefined && (typeof text?.argument !== "string" || typeof text.ebnf !== "string"))
      throw wrong(`${at}.text`, "the name of an argument and its grammar", text);
    names.add(name);
  }
}

/** Checks a tool choice. InvalidArgumentError for a choice that these tools do not allow. */
export function checkToolChoice(choice: ToolChoice, tools: readonly Tool[]): void {
  if (choice === "auto" || choice === "none") return;
  const names = tools.map(({ name }) => name);
  if (choice === "required") {
    if (names.length === 0) throw wrong("toolChoice", "tools to choose from", choice);
    return;
  }
  const { name, names: several, mode } = (choice ?? {}) as { name?: unknown; names?: unknown; mode?: unknown };
  const isSeveral = Array.isArray(several) && several.length > 0 && (mode === "auto" || mode === "required");
  if (typeof name !== "string" && !isSeveral)
    throw wrong("toolChoice", "auto, none, required, { name } or { names, mode }", choice);
  const other = (isSeveral ? several : [name]).find((one) => !names.includes(one as string));
  if (other !== undefined)
    throw wrong(
      isSeveral ? "toolChoice.names" : "toolChoice.name",
      `one of the tools (${names.join(", ") || "none"})`,
      other,
    );
}

function wrong(at: string, expected: string, found: unknown): InvalidArgumentError {
  const shown = typeof found === "string" ? JSON.stringify(found.slice(0, 80)) : briefly(found);
  return new InvalidArgumentError(`${at}: expected ${expected} but found ${shown}`);
}

/** A short description of a value without its contents: messages may be long and private. */
function briefly(value: unknown): string {
  if (Array.isArray(value)) return `a list of ${value.length}`;
  return value === null || typeof value !== "object"
    ? String(value)
    : `an object with ${Object.keys(value).join(", ")}`;
}
