/** Reorders tool calls and their results for chat templates that require each call to be followed by its result. */
import type { AssistantMessage, Message, ToolMessage } from "./chat-messages.ts";

const NO_RESULT = "(no result)";

/** Which orders of messages a template supports. */
export interface TakenOrders {
  takes(order: "resultAlone" | "callAlone" | "severalCalls"): boolean;
}

/**
 * The messages unchanged where the template supports their calls. Otherwise, a call without a result gets one that says so, a
 * result without a call becomes a user message, and each of several calls is followed by its result.
 */
export function withTakenCalls(messages: readonly Message[], turns: TakenOrders): readonly Message[] {
  const result: Message[] = [];
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at]!;
    if (message.role === "assistant" && message.toolCalls?.length) {
      const end = endOfResults(messages, at);
      result.push(...takenCalls(message, messages.slice(at + 1, end), end < messages.length, turns));
      at = end - 1;
    } else if (message.role === "tool" && !turns.takes("resultAlone")) result.push(told(message));
    else result.push(message);
  }
  return result;
}

/** The index after the results that follow a call, and system messages between them. */
function endOfResults(messages: readonly Message[], call: number): number {
  let end = call + 1;
  for (let at = end; messages[at]?.role === "tool" || messages[at]?.role === "system"; at++)
    if (messages[at]!.role === "tool") end = at + 1;
  return end;
}

function takenCalls(
  message: AssistantMessage,
  following: readonly Message[],
  goesOn: boolean,
  turns: TakenOrders,
): Message[] {
  const calls = message.toolCalls!;
  const ids = new Set(calls.map(({ id }) => id));
  const isOwn = (one: Message): one is ToolMessage => one.role === "tool" && ids.has(one.toolCallId);
  const behind = following.map((one) =>
    one.role === "tool" && !isOwn(one) && !turns.takes("resultAlone") ? told(one) : one,
  );
  const results = behind.filter(isOwn);
  if (results.length === 0 && goesOn && !turns.takes("callAlone"))
    behind.unshift(
      ...calls.map(({ id, name }): Message => ({ role: "tool", content: NO_RESULT, toolCallId: id, name })),
    );
  if (calls.length === 1 || turns.takes("severalCalls")) return [message, ...behind];
  const own = new Set<Message>();
  const apart = calls.flatMap((call, index): Message[] => {
    const found = behind.filter((one) => isOwn(one) && one.toolCallId === call.id && !own.has(one));
    for (const one of found) own.add(one);
    const first = index === 0 ? message : { role: "assistant" as const, content: null };
    return [{ ...first, toolCalls: [call] }, ...found];
  });
  return [...apart, ...behind.filter((one) => !own.has(one))];
}

/** A tool's result as a user message. */
function told({ content }: ToolMessage): Message {
  return { role: "user", content: `<tool_response>\n${content}\n</tool_response>` };
}
