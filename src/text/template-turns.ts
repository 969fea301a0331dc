/** Arranges messages in an order that a model's chat template supports: many refuse, or drop, what agents send. */
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import { type AssistantMessage, joinedTexts, type Message, type UserMessage } from "./chat-messages.ts";
import { type TakenOrders, withTakenCalls } from "./template-calls.ts";

/** Orders of messages that not every template supports, each with a small conversation that tests it. */
const TRIALS = {
  system: [system("sysa"), user("usra")],
  severalSystems: [system("sysa"), system("sysb"), user("usra")],
  systemAlone: [system("sysa")],
  systemAfterAnswer: [user("usra"), assistant("ansa"), system("sysa"), user("usrb")],
  systemAfterUser: [user("usra"), system("sysa")],
  systemAfterTool: [user("usra"), called(), result("resa"), system("sysa")],
  users: [user("usra"), user("usrb")],
  userAfterTool: [user("usra"), called(), result("resa"), user("usrb")],
  assistants: [user("usra"), assistant("ansa"), assistant("ansb"), user("usrb")],
  answerFirst: [assistant("ansa"), user("usra")],
  answerBehindNothing: [user(""), assistant("ansa"), user("usra")],
  emptyAnswer: [user("usra"), assistant(""), user("usrb")],
  callAlone: [user("usra"), called(), user("usrb")],
  resultAlone: [user("usra"), result("resa")],
  severalCalls: [user("usra"), called("{}", "toola", "toolb"), result("resa"), result("resb", "toolb")],
  argumentText: [user("usra"), called("noobject", "toola"), result("resa")],
} satisfies Record<string, readonly Message[]>;

export type Order = keyof typeof TRIALS;

/** Tests which orders of messages a template supports, by rendering short conversations. */
export class TemplateTurns implements TakenOrders {
  readonly #render: (messages: readonly Message[]) => string;
  readonly #known = new Map<Order, boolean>();

  /** `render` returns the prompt of a conversation. */
  constructor(render: (messages: readonly Message[]) => string) {
    this.#render = render;
  }

  /**
   * Whether the template writes every message of this order. True for a template that fails for any conversation, so that its
   * own error is reported later.
   */
  takes(order: Order): boolean {
    const known = this.#known.get(order) ?? (this.#writes(TRIALS[order]) || !this.#writes([user("usra")]));
    this.#known.set(order, known);
    return known;
  }

  #writes(messages: readonly Message[]): boolean {
    try {
      const text = this.#render(messages);
      const calls = messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
      const names = calls.flatMap(({ name, arguments: args }) => [name, ...(args.match(/\w+/g) ?? [])]);
      if (!names.every((name) => text.includes(name))) return false;
      let at = 0;
      return messages.every(({ content }) => {
        const word = typeof content === "string" ? content : "";
        at = text.indexOf(word, at);
        return at >= 0;
      });
    } catch (error) {
      if (error instanceof InvalidArgumentError || error instanceof InvalidFileError) return false;
      throw error;
    }
  }
}

/**
 * The messages unchanged where the template supports their order. Otherwise, system messages at the beginning are joined, later
 * ones become text of the user message or tool result next to them, and consecutive messages of one role are joined. The form
 * of a message does not depend on messages after the next answer, so that prompts of a conversation share their prefix.
 */
export function inTakenOrder(given: readonly Message[], turns: TemplateTurns): readonly Message[] {
  const messages = withTakenCalls(given, turns);
  const after = messages.findIndex(({ role }) => role !== "system");
  const leading = messages.slice(0, after < 0 ? messages.length : after);
  const others = messages.slice(leading.length);
  const result = [...beginning(leading as { content: string }[], others.length === 0, turns)];
  const isAnswer = others[0]?.role === "assistant";
  if (isAnswer && !turns.takes("answerFirst") && turns.takes("answerBehindNothing")) result.push(user(""));
  for (const [index, message] of others.entries()) {
    if (message.role === "system") {
      const next = others.slice(index + 1).find(({ role }) => role !== "system");
      // No system message is put between a call and its result.
      if (next?.role !== "tool" && takesLater(others[index - 1], turns)) result.push(message);
      else addReminder(result, message.content, next, turns);
    } else if (!isEmpty(message) || turns.takes("emptyAnswer")) add(result, message, turns);
  }
  return result;
}

function beginning(systems: readonly { content: string }[], isAlone: boolean, turns: TemplateTurns): Message[] {
  if (systems.length === 0) return [];
  const content = systems.map((message) => message.content).join("\n\n");
  if (!turns.takes("system") || (isAlone && !turns.takes("systemAlone"))) return [{ role: "user", content }];
  if (systems.length === 1 || !turns.takes("severalSystems")) return [{ role: "system", content }];
  return systems.map((message) => ({ role: "system", content: message.content }));
}

function takesLater(before: Message | undefined, turns: TemplateTurns): boolean {
  // If one of these positions is unsupported, the others are not used either: the decision must not depend on later messages.
  const isTaken = turns.takes("systemAfterAnswer") && turns.takes("systemAfterUser");
  return isTaken && (before?.role !== "tool" || turns.takes("systemAfterTool"));
}

/** Wraps text that the user did not write in tags, as coding agents do. */
export function reminder(text: string): string {
  return `<system-reminder>\n${text}\n</system-reminder>`;
}

/** Adds a system message to the next message, or to the one before it if an answer comes next. */
function addReminder(result: Message[], content: string, next: Message | undefined, turns: TemplateTurns): void {
  const text = reminder(content);
  const last = result.at(-1);
  const isJoined =
    (last?.role === "user" && !turns.takes("users")) || (last?.role === "tool" && !turns.takes("userAfterTool"));
  if (isJoined || (next?.role !== "user" && (last?.role === "user" || last?.role === "tool"))) joinLast(result, text);
  else result.push(new Reminder(text));
}

/** A user message made of system text, to be joined with the user's next message. */
class Reminder implements UserMessage {
  readonly role = "user";
  readonly content: string;

  constructor(content: string) {
    this.content = content;
  }
}

function add(result: Message[], message: Message, turns: TemplateTurns): void {
  const last = result.at(-1);
  if (message.role === "user") {
    const text = textOf(message.content);
    const isJoined = last?.role === "user" && (last instanceof Reminder || !turns.takes("users"));
    if (isJoined || (last?.role === "tool" && !turns.takes("userAfterTool"))) joinLast(result, text);
    else result.push(message);
  } else if (message.role === "assistant" && last?.role === "assistant" && !turns.takes("assistants"))
    result[result.length - 1] = joinedAnswers(last, message);
  else if (message.role === "tool" && last instanceof Reminder) {
    result.pop();
    result.push({ ...message, content: `${last.content}\n\n${message.content}` });
  } else result.push(message);
}

/** Whether a message is an answer without text and calls. */
function isEmpty(message: Message): boolean {
  return message.role === "assistant" && !message.content && !message.toolCalls?.length;
}

/** Appends text to the last message, which is a user's or tool's. */
function joinLast(result: Message[], text: string): void {
  const last = result.at(-1) as UserMessage;
  const content = `${textOf(last.content)}\n\n${text}`;
  result[result.length - 1] = last instanceof Reminder ? { role: "user", content } : { ...last, content };
}

/** Joins two consecutive answers. */
export function joinedAnswers(a: AssistantMessage, b: AssistantMessage): AssistantMessage {
  const reasoning = (a.reasoning ?? "") + (b.reasoning ?? "");
  const toolCalls = [...(a.toolCalls ?? []), ...(b.toolCalls ?? [])];
  return {
    role: "assistant",
    content: a.content === null || b.content === null ? (a.content ?? b.content) : joinedTexts(a.content, b.content),
    ...(reasoning === "" ? {} : { reasoning }),
    ...(toolCalls.length === 0 ? {} : { toolCalls }),
  };
}

/** A user message's content as one string. */
export function textOf(content: UserMessage["content"]): string {
  return typeof content === "string" ? content : content.map(({ text }) => text).join("");
}

function system(content: string): Message {
  return { role: "system", content };
}

function user(content: string): Message {
  return { role: "user", content };
}

function assistant(content: string): Message {
  return { role: "assistant", content };
}

function called(args = "{}", ...names: string[]): Message {
  const calls = names.length > 0 ? names : ["toola"];
  return {
    role: "assistant",
    content: null,
    toolCalls: calls.map((name) => ({ id: idOf(name), name, arguments: args })),
  };
}

function result(content: string, name = "toola"): Message {
  return { role: "tool", content, toolCallId: idOf(name), name };
}

/** A call id of nine letters and digits, which all templates accept. */
function idOf(name: string): string {
  return `call${name}`;
}
