/**
 * Arguments of calls in a conversation's history: as values for chat templates, and as text for templates without tool calls.
 */
import { parseShaped } from "../json-text.ts";
import type { ToolCall } from "./chat-messages.ts";
import { floatText } from "./template/print.ts";
import { Float } from "./template/values.ts";

/**
 * Arguments as Python's json would read them: objects become maps in the order of the text, integers of any size are exact, and
 * 1.0 is a float. Text that is not JSON stays a string, so that the model sees what it wrote; "" is an empty map.
 */
export function parsedArguments(text: string): unknown {
  if (text.trim() === "") return new Map();
  try {
    return parseShaped(text, { number: numberOf, object: (entries) => new Map(entries) });
  } catch {
    return text;
  }
}

/** Key of the text that a model wrote in place of named arguments, for templates that need a name. */
export const ARGUMENTS = "arguments";

function numberOf(text: string): bigint | Float {
  return /^-?\d+$/.test(text) ? BigInt(text) : new Float(Number(text));
}

/** Text of calls in the model's own form, for templates that have no place for calls. */
export function writtenCalls(template: string, calls: readonly ToolCall[]): string {
  if (template.includes("List of tools: ")) return pythonCalls(calls);
  const objects = calls.map(
    ({ name, arguments: text }) => `{"name": ${JSON.stringify(name)}, "arguments": ${text || "{}"}}`,
  );
  return template.includes("<tool_call>")
    ? objects.map((object) => `<tool_call>\n${object}\n</tool_call>`).join("\n")
    : `<|tool_call|>[${objects.join(", ")}]`;
}

/** Text of calls in Python syntax, as LFM2 writes them. */
function pythonCalls(calls: readonly ToolCall[]): string {
  const written = calls.map(({ name, arguments: text }) => {
    const values = parsedArguments(text);
    const entries = values instanceof Map ? [...values] : [[ARGUMENTS, values]];
    return `${name}(${entries.map(([key, value]) => `${key}=${pythonText(value)}`).join(", ")})`;
  });
  return `<|tool_call_start|>[${written.join(", ")}]<|tool_call_end|>`;
}

function pythonText(value: unknown): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "bigint") return String(value);
  if (value instanceof Float) return floatText(value.value);
  if (Array.isArray(value)) return `[${value.map(pythonText).join(", ")}]`;
  if (!(value instanceof Map)) return JSON.stringify(value);
  return `{${[...value].map(([key, item]) => `${JSON.stringify(key)}: ${pythonText(item)}`).join(", ")}}`;
}
