/** Which requests share the next step, with how many rows each. A pure function of what waits. */
import type { Pending, StepLimits } from "./scheduler.ts";

/** A request's share of a step: its next `rows` tokens. */
export interface Part {
  readonly pending: Pending;
  readonly rows: number;
}

/** What is left to compute of a request. */
function restOf({ ids, sequence }: Pending): number {
  return ids.length - sequence.position;
}

/** Rows of the next `rows` tokens of a request that it wants logits of. */
function logitRowsOf({ sequence, logitsFrom }: Pending, rows: number): number {
  return Math.max(0, sequence.position + rows - Math.max(sequence.position, logitsFrom));
}

/** Whether an older prompt is about to compute the page that a prompt without tokens of its own needs next. */
function computesFor(older: Pending, prompt: Pending, { pagePositions }: StepLimits): boolean {
  if (!prompt.isFresh || older.age >= prompt.age || older.sequence.branch !== prompt.sequence.branch) return false;
  const held = prompt.sequence.position;
  const end = held + pagePositions;
  if (older.sequence.position < held || Math.min(prompt.logitsFrom, older.ids.length) < end) return false;
  for (let i = 0; i < end; i++) if (older.ids[i] !== prompt.ids[i]) return false;
  return true;
}

/**
 * Single tokens first, those served longest ago before others, then parts of prompts in the order in which they came, with
 * equal shares of what is left. Only requests of one method go together: that of the one served longest ago.
 */
export function planStep(waiting: readonly Pending[], limits: StepLimits): Part[] {
  const inTurn = waiting.toSorted((a, b) => a.servedAt - b.servedAt || a.age - b.age);
  const method = inTurn[0]?.method;
  const together = inTurn.filter((pending) => pending.method === method);
  const tokens = together.filter((pending) => restOf(pending) === 1);
  const allPrompts = together.filter((pending) => restOf(pending) > 1);
  const prompts = allPrompts.filter((prompt) => !allPrompts.some((other) => computesFor(other, prompt, limits)));
  const parts: Part[] = [];
  let logitRows = limits.logitRows;
  const take = (pending: Pending, most: number): number => {
    let rows = Math.min(most, restOf(pending));
    while (rows > 0 && logitRowsOf(pending, rows) > logitRows) rows--;
    if (rows < 1 || parts.length >= limits.sequences) return 0;
    logitRows -= logitRowsOf(pending, rows);
    parts.push({ pending, rows });
    return rows;
  };
  // A prompt that is served longest ago has a place, however many answers there are.
  const isPromptDue = prompts.length > 0 && prompts[0]!.servedAt <= (tokens[0]?.servedAt ?? Number.POSITIVE_INFINITY);
  const places = Math.min(limits.sequences, limits.rows) - (isPromptDue ? 1 : 0);
  for (const pending of tokens.slice(0, Math.max(isPromptDue ? 0 : 1, places))) take(pending, 1);
  const answering = parts.length;
  let left = answering > 0 ? Math.min(limits.promptRows, limits.rows - answering) : limits.rows;
  const atOnce = Math.min(prompts.length, limits.sequences - answering);
  for (let i = 0; i < atOnce && left > 0; i++) left -= take(prompts[i]!, Math.ceil(left / (atOnce - i)));
  return parts;
}
