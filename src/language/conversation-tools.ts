/** Functions (tools) that a conversation calls for its model. */
import { InvalidArgumentError } from "../errors.ts";
import { jsonText, parseExactly } from "../json-text.ts";
import type { Tool, ToolCall, ToolMessage } from "../text/chat-messages.ts";

/** What a tool's function is told about its call. */
interface ToolContext {
  /** The call, with its id and the text of its arguments. */
  readonly call: ToolCall;
  /** The abort signal of the answer under way. */
  readonly signal: AbortSignal | undefined;
}

/** A tool with the function that runs its calls. */
export interface ExecutableTool extends Tool {
  /**
   * Called with the arguments that the model wrote, as an object. They follow the schema `parameters` for sure only where
   * the tool is strict. Integers beyond 2^53 are BigInts. The model reads what it returns or throws: a string as it is,
   * anything else as JSON.
   */
  execute?(args: Record<string, unknown>, context: ToolContext): unknown;
}

/** Runs a call of a tool without `execute`. */
export type OnToolCall = (call: ToolCall, context: ToolContext) => unknown;

/** What runs calls: functions of tools, and `onToolCall` for tools without one. */
export interface ToolRunner {
  readonly tools: readonly ExecutableTool[];
  readonly onToolCall: OnToolCall | undefined;
}

/** Whether all calls can be run here. */
export function canRun(calls: readonly ToolCall[], { tools, onToolCall }: ToolRunner): boolean {
  return calls.every(({ name }) => {
    const tool = tools.find((tool) => tool.name === name);
    // A call of an unknown tool is answered with an error that the model reads.
    return onToolCall !== undefined || tool === undefined || tool.execute !== undefined;
  });
}

/**
 * Runs a call and gives its result for the model. An error is a result, too, so that the model can correct its call; an
 * abort is thrown.
 */
export async function runCall(
  call: ToolCall,
  { tools, onToolCall }: ToolRunner,
  signal: AbortSignal | undefined,
): Promise<ToolMessage> {
  const message = (content: string): ToolMessage => ({
    ...{ role: "tool", content, toolCallId: call.id, name: call.name },
  });
  signal?.throwIfAborted();
  const tool = tools.find(({ name }) => name === call.name);
  try {
    if (!tool) throw new InvalidArgumentError(`there is no tool ${call.name}`);
    const args = argumentsOf(call);
    const context = { call, signal };
    return message(textOf(await (tool.execute ? tool.execute(args, context) : onToolCall!(call, context))));
  } catch (error) {
    signal?.throwIfAborted();
    return message(`Error: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function argumentsOf({ name, arguments: text }: ToolCall): Record<string, unknown> {
  let value: unknown;
  try {
    value = parseExactly(text);
  } catch (cause) {
    throw new InvalidArgumentError(`the arguments of ${name} are no JSON: ${(cause as Error).message}`);
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new InvalidArgumentError(`the arguments of ${name} are no object`);
}

/** The return value of a tool's function, as text for the model. */
export function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  return value === undefined ? "" : jsonText(value);
}
