/** Which requests share the next step, with how many tokens each. A pure function of what waits. */
import type { Sequence } from "../sequences/sequence.ts";

/** Where a draft stands. */
interface DraftRow {
  /** The hidden state of the token before it [hidden]. */
  readonly before: Float32Array;
  /** Its position in the text. */
  readonly position: number;
  /** Position of the keys and values that it sees last: its own, or those of the token before. */
  readonly row: number;
}

/** Tokens to compute after those that a sequence holds. */
export interface SequenceRequest {
  readonly sequence: Sequence;
  /** The method that computes it. */
  readonly method: string;
  /** All tokens of the sequence, those that it holds included. */
  readonly ids: readonly number[];
  /** Which of them are of answers: steps compute those of prompts apart. */
  readonly isAnswer: readonly boolean[];
  /** Logits are given of the tokens from this one on, in `logits` [ids.length - logitsFrom, vocabulary]. */
  readonly logitsFrom: number;
  readonly logits: Float32Array;
  /** Whether the sequence can be cut back to where the last step of it began. */
  readonly keepsStart: boolean;
  /** Hidden states of the tokens whose logits are given, [ids.length - logitsFrom, hidden], where they are wanted. */
  readonly hidden?: Float32Array | undefined;
  /** A request that drafts behind the last token of `ids`: the sequence holds no more afterwards than before. */
  readonly draft?: DraftRow | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A request under way. */
export interface Pending extends SequenceRequest {
  /** Requests are numbered as they come. */
  readonly order: number;
  /** The number of the sequence's first request. */
  readonly age: number;
  /** Whether the sequence holds nothing yet but what was found in the store. */
  isFresh: boolean;
  /** When it was last in a step, in steps. */
  servedAt: number;
  /** Tokens that were found in the store when it began. */
  found: number;
  readonly resolve: (found: number) => void;
  readonly reject: (error: unknown) => void;
}

/** How steps are made up. */
export interface StepLimits {
  /** Tokens of a step at most. */
  readonly tokens: number;
  /**
   * Most tokens of a step with parts of prompts while answers are under way, one of each included: the longest gap between
   * two of their tokens is what they take. Prompts are given half of them at least.
   */
  readonly prefillTokens: number;
  /** Tokens of which a step gives logits at most. */
  readonly logitRows: number;
  /** Sequences of a step at most. */
  readonly sequences: number;
  /** Tokens of a page, of which prefixes are shared. */
  readonly pagePositions: number;
  /** Whether sequences can be gone on from where a step has ended a page only, as those of recurrent layers. */
  readonly endsPages: boolean;
}

/** A request's share of a step: its next `tokens`, all of a prompt or all of an answer. */
export interface Part {
  readonly pending: Pending;
  readonly tokens: number;
}

/** Whether the next token of a request is of a prompt. */
export function isPrefill(request: SequenceRequest): boolean {
  return !request.isAnswer[nextToken(request)];
}

/** What is left to compute of a request. */
function restOf({ ids, sequence, draft }: Pending): number {
  return draft ? 1 : ids.length - sequence.position;
}

/** The index among its ids of a request's next token. */
export function nextToken({ ids, sequence, draft }: SequenceRequest): number {
  return draft ? ids.length - 1 : sequence.position;
}

/** Tokens of a request, at most `most`, that are all of a prompt or all of an answer. */
function tokensAlike(request: Pending, most: number): number {
  const start = nextToken(request);
  let end = start;
  while (end < start + most && request.isAnswer[end] === request.isAnswer[start]) end++;
  return end - start;
}

/** The end of the pages that an older prompt is about to compute and another, without tokens of its own, begins with; else 0. */
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
 * Tokens of a part of a prompt, at most `tokens`: of one that is to end pages, up to the last page that it can end and that the same
 * prompt can go on from, whose last token is computed again.
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

/** Prompts of so many times `prefillTokens` are not divided, so that they wait once. */
const SHORT = 2;

/** The part of `prefillTokens` that is kept for long prompts beside short ones. */
const LONG_SHARE = 4;

/** Tokens for prompts of a step with so many answers. */
function tokensBeside(answers: number, { tokens, prefillTokens }: StepLimits): number {
  return Math.min(tokens - answers, Math.max(prefillTokens - answers, Math.ceil(prefillTokens / 2)));
}

/** What is known of a step beside the requests that wait. */
export interface StepCompany {
  /** Answers that are under way and do not wait yet. */
  readonly late: number;
  /** Most tokens of a step of prompts alone, unless that divides short ones. */
  readonly tokens: number;
}

/**
 * Single tokens first, those served longest ago before others, then parts of prompts: short ones whole, others with equal
 * shares of what is left. Only requests of one method go together: that of the one served longest ago.
 */
export function planStep(waiting: readonly Pending[], limits: StepLimits, { late, tokens: most }: StepCompany): Part[] {
  const inTurn = waiting.toSorted((a, b) => a.servedAt - b.servedAt || a.order - b.order);
  const method = inTurn[0]?.method;
  const together = inTurn.filter((pending) => pending.method === method);
  const single = together.filter((pending) => restOf(pending) === 1);
  const allPrompts = together.filter((pending) => restOf(pending) > 1);
  /** By prompt, where others wait for it to have come. */
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
    const room = tokensAlike(pending, Math.min(most, restOf(pending), withoutLogits + logitRows));
    const tokens = tokensToEnd(pending, room, awaited.get(pending) ?? Infinity, limits);
    if (tokens < 1 || parts.length >= limits.sequences) return 0;
    logitRows -= Math.max(0, tokens - withoutLogits);
    parts.push({ pending, tokens });
    return tokens;
  };
  // A prompt that is served longest ago has a place, however many answers there are.
  const isPromptDue = prompts.length > 0 && prompts[0]!.servedAt <= (single[0]?.servedAt ?? Number.POSITIVE_INFINITY);
  const places = Math.min(limits.sequences, limits.tokens) - (isPromptDue ? 1 : 0);
  for (const pending of single.slice(0, Math.max(isPromptDue ? 0 : 1, places))) take(pending, 1);
  const answering = parts.length;
  // Whoever waits longest has a place; the shortest have their tokens first.
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
