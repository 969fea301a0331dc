/** An answer as a list of blocks: thinking, texts and tool calls. */
import type { ChatEvent } from "../language/chat-options.ts";
import type { LogProbabilities } from "../text/log-probabilities.ts";

/** What is known of a block when it begins. */
type BlockStart =
  | { readonly kind: "reasoning" | "text" }
  | { readonly kind: "toolCall"; readonly id: string; readonly name: string };

/** A complete block; the text of a tool call is its arguments. */
export type Block =
  | { readonly kind: "reasoning" | "text"; readonly text: string }
  | { readonly kind: "toolCall"; readonly id: string; readonly name: string; readonly text: string };

/** Beginning, deltas and end of each block of an answer, numbered from 0. */
export type BlockEvent =
  | { readonly type: "begin"; readonly index: number; readonly block: BlockStart }
  | {
      readonly type: "delta";
      readonly index: number;
      readonly block: BlockStart;
      readonly text: string;
      readonly logprobs: readonly LogProbabilities[];
    }
  /** `isLast`: whether no other block follows. */
  | { readonly type: "end"; readonly index: number; readonly block: Block; readonly isLast: boolean };

/**
 * Groups the events of an answer into blocks, each of which ends before the next begins. With `onlyOneCall`, tool calls
 * after the first are left out.
 */
export async function* blockEvents(
  events: AsyncIterable<ChatEvent>,
  { onlyOneCall = false }: { readonly onlyOneCall?: boolean } = {},
): AsyncGenerator<BlockEvent> {
  let index = -1;
  let block = null as BlockStart | null;
  let text = "";
  let isLast = true;
  const end = (isLast: boolean): BlockEvent[] =>
    block ? [{ type: "end", index, block: { ...block, text }, isLast }] : [];
  for await (const event of events) {
    isLast = !(onlyOneCall && "index" in event && event.index > 0);
    if (!isLast) continue;
    const isNew = event.type === "toolCall" || (event.type !== "toolArguments" && event.type !== block?.kind);
    if (isNew) {
      yield* end(false);
      block = event.type === "toolCall" ? { kind: "toolCall", id: event.id, name: event.name } : { kind: event.type };
      text = "";
      yield { type: "begin", index: ++index, block };
    }
    if (event.type === "toolCall") continue;
    text += event.text;
    const logprobs = event.type === "text" ? (event.logprobs ?? []) : [];
    yield { type: "delta", index, block: block!, text: event.text, logprobs };
  }
  yield* end(isLast);
}

/** Whether a text is a JSON object. */
export function isJsonObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
