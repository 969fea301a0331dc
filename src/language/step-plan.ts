/** Which requests share the next step, with how many rows each. A pure function of what waits. */
import type { Sequence } from "../sequences/sequence.ts";

/** Tokens to compute after those that a sequence holds. */
export interface SequenceRequest {
  readonly sequence: Sequence;
  /** The method that computes it. */
  readonly method: string;
  /** All tokens of the sequence, those that it holds included. */
  readonly ids: readonly number[];
  /** Logits are given of the tokens from this one on, in `logits` [ids.length - logitsFrom, vocabulary]. */
  readonly logitsFrom: number;
  readonly logits: Float32Array;
  readonly signal?: AbortSignal | undefined;
}

/** A request under way. */
export interface Pending extends SequenceRequest {
  /** Requests are numbered as they come; the sequence keeps the number of its first. */
  readonly age: number;
  /** Whether the sequence holds nothing yet but what was found in the store. */
  isFresh: boolean;
  /** When it was last in a step, in steps. */
  servedAt: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** How steps are made up. */
export interface StepLimits {
  /** Rows of a step at most. */
  readonly rows: number;
  /** Of those, rows of prompts while answers are under way: the longest gap between two tokens is what they take. */
  readonly promptRows: number;
  /** Rows of which a step gives logits at most. */
  readonly logitRows: number;
  /** Sequences of a step at most. */
  readonly sequences: number;
  /** Tokens of a page, of which prefixes are shared. */
  readonly pagePositions: number;
}

/** A request's share of a step: its next `rows` tokens. */
export interface Part {
  readonly pending: Pending;
  readonly rows: number;
}

/** What is left to compute of a request. */
function restOf({ ids, sequence }: Pending): number {
  return ids.length - sequence.position;
}

/** Whether an older prompt is about to compute pages that a prompt without tokens of its own begins with, too. */
function computesFor(older: Pending, prompt: Pending, { pagePositions }: StepLimits): boolean {
  if (!prompt.isFresh || older.age >= prompt.age || older.sequence.branch !== prompt.sequence.branch) return false;
  const most = Math.min(prompt.logitsFrom, older.ids.length);
  let common = 0;
  while (common < most && older.ids[common] === prompt.ids[common]) common++;
  const shared = Math.floor(common / pagePositions) * pagePositions;
  return older.sequence.position < shared;
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
    const { sequence, logitsFrom } = pending;
    const withoutLogits = Math.max(0, logitsFrom - sequence.position);
    const rows = Math.min(most, restOf(pending), withoutLogits + logitRows);
    if (rows < 1 || parts.length >= limits.sequences) return 0;
    logitRows -= Math.max(0, rows - withoutLogits);
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
