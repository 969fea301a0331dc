/**
 * Plans the next step of the scheduler: which requests share it, with how many tokens each. A pure function of what waits.
 */
import type { Sequence } from "../sequences/sequence.ts";

/** Where a draft head computes a token. */
interface DraftRow {
  /** Hidden state of the token before the draft, [hidden]. */
  readonly before: Float32Array;
  /** Position of the draft for RoPE. */
  readonly position: number;
  /** The last position of the KV cache that the draft attends to: its own, or that of the token before. */
  readonly row: number;
}

/** A request to compute tokens after those that a sequence holds. */
export interface SequenceRequest {
  readonly sequence: Sequence;
  /** The program's method that computes the tokens. */
  readonly method: string;
  /** All tokens of the sequence, including those that it holds. */
  readonly ids: readonly number[];
  /** Index of the first token whose logits are wanted; they go to `logits` [ids.length - logitsFrom, vocabulary]. */
  readonly logitsFrom: number;
  readonly logits: Float32Array;
  /** Whether the sequence must be able to drop the tokens of its last step again, such as rejected drafts. */
  readonly keepsStart: boolean;
  /**
   * Receives the hidden states of the tokens whose logits are given, [ids.length - logitsFrom, hidden], where they are
   * wanted.
   */
  readonly hidden?: Float32Array | undefined;
  /** Set for a request that drafts the token after the last of `ids`; it adds no tokens to the sequence. */
  readonly draft?: DraftRow | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A request under way. */
export interface Pending extends SequenceRequest {
  /** Number of the request, in the order in which they come. */
  readonly order: number;
  /** Number of the sequence's first request: lower means older. */
  readonly age: number;
  /** Whether the prefix cache is still to be searched for the request's tokens. */
  isFresh: boolean;
  /** Number of the step that last computed tokens of it. */
  servedAt: number;
  /** Tokens that were found in the prefix cache. */
  found: number;
  readonly resolve: (found: number) => void;
  readonly reject: (error: unknown) => void;
}

/** Limits of a step. */
export interface StepLimits {
  /** Most tokens of a step. */
  readonly tokens: number;
  /**
   * Most tokens of a step with parts of prompts beside answers under way, one token of each answer included. Such a step's
   * time is the longest gap between two tokens of an answer. Prompts get at least half of them.
   */
  readonly prefillTokens: number;
  /** Most tokens of which a step gives logits. */
  readonly logitRows: number;
  /** Most sequences of a step. */
  readonly sequences: number;
  /** Positions of a page: prefixes are shared in whole pages. */
  readonly pagePositions: number;
  /** Whether a sequence can only be continued from the end of a page that also ended a step, as with recurrent layers. */
  readonly endsPages: boolean;
}

/** A request's share of a step: its next `tokens`. */
export interface Part {
  readonly pending: Pending;
  readonly tokens: number;
}

/** Number of tokens of a request that are still to be computed. */
function restOf({ ids, sequence, draft }: Pending): number {
  return draft ? 1 : ids.length - sequence.position;
}

/** Index, among the request's ids, of the next token to compute. */
export function nextToken({ ids, sequence, draft }: SequenceRequest): number {
  return draft ? ids.length - 1 : sequence.position;
}

/**
 * End of the pages that an older request is about to compute and that a fresh prompt begins with, too, so that it should
 * wait; 0 where there are none.
 */
function sharedEnd(older: Pending, prompt: Pending, { pagePositions }: StepLimits): number {
  const isShared = older.sequence.branch === prompt.sequence.branch && older.sequence.salt === prompt.sequence.salt;
  if (!prompt.isFresh || older.age >= prompt.age || !isShared) return 0;
  const most = Math.min(prompt.logitsFrom, older.ids.length);
  let common = 0;
  while (common < most && older.ids[common] === prompt.ids[common]) common++;
  const shared = Math.floor(common / pagePositions) * pagePositions;
  return older.sequence.position < shared ? shared : 0;
}

/**
 * Tokens of a part of a prompt, at most `tokens`. Where parts must end with pages: up to the last page boundary that the
 * part reaches and that is before `ends` and before the prompt's last token.
 */
function tokensToEnd(
  { ids, sequence: { position } }: Pending,
  tokens: number,
  ends: number,
  limits: StepLimits,
): number {
  const end = Math.min(position + tokens, ends, ids.length - 1);
  if (!limits.endsPages) return tokens;
  const lastPage = Math.floor(end / limits.pagePositions) * limits.pagePositions;
  return lastPage > position ? lastPage - position : tokens;
}

/** Prompts of up to this many times `prefillTokens` are computed in one step. */
const SHORT = 2;

/** 1 / LONG_SHARE of `prefillTokens` is kept for long prompts beside short ones. */
const LONG_SHARE = 4;

/** Tokens of prompts in a step beside `answers` tokens of answers. */
function tokensBeside(answers: number, { tokens, prefillTokens }: StepLimits): number {
  return Math.min(tokens - answers, Math.max(prefillTokens - answers, Math.ceil(prefillTokens / 2)));
}

/** What planning needs to know beside the waiting requests. */
export interface StepCompany {
  /** Answers under way that have not asked for their next token yet. */
  readonly late: number;
  /** Most tokens of a step of prompts alone; a short prompt may take more, so that it is not divided. */
  readonly tokens: number;
}

/**
 * Single tokens come first, those served longest ago before others, then parts of prompts: short ones whole, the others
 * with equal shares of what is left. A step has requests of one method only, that of the request served longest ago.
 */
export function planStep(waiting: readonly Pending[], limits: StepLimits, { late, tokens: most }: StepCompany): Part[] {
  const inTurn = waiting.toSorted((a, b) => a.servedAt - b.servedAt || a.order - b.order);
  const method = inTurn[0]?.method;
  const together = inTurn.filter((pending) => pending.method === method);
  const single = together.filter((pending) => restOf(pending) === 1);
  const allPrompts = together.filter((pending) => restOf(pending) > 1);
  /** The end of the pages that others wait for, by the prompt that computes them. */
  const awaited = new Map<Pending, number>();
  const prompts = allPrompts.filter((prompt) => {
    const older = allPrompts.find((other) => sharedEnd(other, prompt, limits) > 0);
    if (older) awaited.set(older, Math.min(awaited.get(older) ?? Infinity, sharedEnd(older, prompt, limits)));
    return !older;
  });
  const parts: Part[] = [];
  let logitRows = limits.logitRows;
  const take = (pending: Pending, most: number): number => {
    const withoutLogits = Math.max(0, pending.logitsFrom - nextToken(pending));
    const room = Math.min(most, restOf(pending), withoutLogits + logitRows);
    const tokens = tokensToEnd(pending, room, awaited.get(pending) ?? Infinity, limits);
    if (tokens < 1 || parts.length >= limits.sequences) return 0;
    logitRows -= Math.max(0, tokens - withoutLogits);
    parts.push({ pending, tokens });
    return tokens;
  };
  // The prompt served longest ago of all requests gets a place, however many answers there are.
  const isPromptDue = prompts.length > 0 && prompts[0]!.servedAt <= (single[0]?.servedAt ?? Number.POSITIVE_INFINITY);
  const places = Math.min(limits.sequences, limits.tokens) - (isPromptDue ? 1 : 0);
  for (const pending of single.slice(0, Math.max(isPromptDue ? 0 : 1, places))) take(pending, 1);
  const answering = parts.length;
  // Places go to the prompts that have waited longest; among those, the shortest get their tokens first.
  const atOnce = prompts.slice(0, limits.sequences - answering).sort((a, b) => restOf(a) - restOf(b));
  const reserve = Math.ceil(limits.prefillTokens / LONG_SHARE);
  const shortest = atOnce.length > 0 ? restOf(atOnce[0]!) : 0;
  const wanted = shortest <= SHORT * limits.prefillTokens ? shortest + (atOnce.length > 1 ? reserve : 0) : 0;
  const alone = Math.min(Math.max(most, wanted), limits.tokens);
  let left = answering + late > 0 ? tokensBeside(answering, limits) : alone;
  for (const [i, prompt] of atOnce.entries()) {
    if (left <= 0) break;
    const others = atOnce.length - i - 1;
    const isShort = restOf(prompt) <= left - (others > 0 ? reserve : 0);
    left -= take(prompt, isShort ? restOf(prompt) : Math.ceil(left / (1 + others)));
  }
  return parts;
}
