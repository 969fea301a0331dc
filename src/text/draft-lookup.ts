/**
 * Drafts by lookup: what followed an earlier occurrence of the last tokens. Where the answer differs from the text that it
 * follows, it is followed on behind the difference.
 */
import { LimitError } from "../errors.ts";
import { SuffixAutomaton } from "./suffix-automaton.ts";
import { type Tokenizer, WHOLE_TEXT } from "./tokenizer.ts";

/** Separates the texts in which drafts are looked up; no token has this id. */
const SEPARATOR = 2 ** 24 - 1;
/** Most places that are followed. */
const PLACES = 4;
/** How far behind and ahead of the expected token another one is looked for. */
const BEHIND = 4;
const AHEAD = 12;
/** Most trust in a place: longer texts are left no later. */
const TRUST_MAX = 32;
/** Most tokens before an answer that are read once more, with JSON's escapes or without. */
const REREAD_MAX = 8192;
/**
 * Tokens with escapes in an answer until texts before it are read with such, and ends of lines until they are read without.
 * Reading takes as long as two steps of a small model.
 */
const ESCAPES = 2;
const LINES = 3;

/** How a draft was found. */
export interface Match {
  /** Number of last tokens that stand before the draft's source, too. */
  readonly length: number;
  /** Whether those before them do so, but for some that were changed. */
  readonly isResumed: boolean;
}

/** A place in the tokens at which the next ones of the answer may stand. */
class Place implements Match {
  /** Index of the token that is expected next. */
  source: number;
  length: number;
  /** Grows with tokens that were expected and falls with others. */
  trust: number;

  constructor(source: number, length: number) {
    this.source = source;
    this.length = length;
    this.trust = Math.min(length, TRUST_MAX);
  }

  get isResumed(): boolean {
    return this.trust > this.length;
  }

  /** Moves past the answer's next token. */
  follow(id: number, tokens: readonly number[]): void {
    if (tokens[this.source] === id) {
      this.source++;
      this.length++;
      this.trust = Math.min(this.trust + 1, TRUST_MAX);
      return;
    }
    const isFirst = this.length > 0;
    const found = nearest(id, tokens, this.source);
    if (found >= 0) this.source = found + 1;
    else if (isFirst) this.source++;
    this.length = found < 0 ? 0 : 1;
    this.trust -= isFirst ? Math.ceil(this.trust / 4) : 1;
  }
}

/** Index of an id nearest to another index; -1 for none. */
function nearest(id: number, tokens: readonly number[], index: number): number {
  for (let i = 1; i <= AHEAD; i++) {
    if (tokens[index + i] === id) return index + i;
    if (i <= BEHIND && tokens[index - i] === id) return index - i;
  }
  return -1;
}

/** Looks up drafts for one answer. A token takes constant time, amortized. */
export class DraftLookup {
  readonly #automaton = new SuffixAutomaton();
  readonly #history: readonly number[];
  readonly #prediction: readonly number[];
  readonly #tokenizer: Tokenizer;
  /** Number of tokens of the history before the answer, and of those that were read. */
  readonly #start: number;
  #read = 0;
  /** Tokens of the answer with a backslash, and with the end of a line. */
  #escapes = 0;
  #lines = 0;
  #places: readonly Place[] = [];
  #best: Place | null = null;

  /**
   * `history`: tokens before the answer, to which the caller appends the answer's. `prediction`: tokens that it may resemble.
   */
  constructor(history: readonly number[], prediction: readonly number[], tokenizer: Tokenizer) {
    this.#history = history;
    this.#prediction = prediction;
    this.#tokenizer = tokenizer;
    this.#start = history.length;
  }

  /** Reads the tokens that were appended, and finds the place where the next ones are likeliest, by `chance`; null for none. */
  find(chance: (match: Match) => number): Match | null {
    if (this.#read === 0) this.#add(this.#prediction);
    while (this.#read < this.#history.length) this.#take(this.#history[this.#read++]!);
    this.#best = null;
    let most = 0;
    for (const place of this.#places) {
      const own = (this.#automaton.tokens[place.source] ?? SEPARATOR) === SEPARATOR ? 0 : chance(place);
      if (own > most) [this.#best, most] = [place, own];
    }
    return this.#best && { length: this.#best.length, isResumed: this.#best.isResumed };
  }

  /** At most `most` tokens from the place that was found. */
  continuation(most: number): readonly number[] {
    if (!this.#best) return [];
    const { source } = this.#best;
    const found = this.#automaton.tokens.slice(source, source + most);
    const end = found.indexOf(SEPARATOR);
    return end < 0 ? found : found.slice(0, end);
  }

  #take(id: number): void {
    for (const place of this.#places) place.follow(id, this.#automaton.tokens);
    this.#automaton.push(id);
    if (this.#read < this.#start) return;
    if (this.#read > this.#start) this.#reread(id);
    const { matchLength, matchEnd } = this.#automaton;
    const places = new Map(this.#places.filter(({ trust }) => trust > 0).map((place) => [place.source, place]));
    const same = places.get(matchEnd + 1);
    if (same) same.length = Math.max(same.length, matchLength);
    else if (matchLength > 0) places.set(matchEnd + 1, new Place(matchEnd + 1, matchLength));
    // Of places of the same chance, the longest match comes first.
    const inOrder = [...places.values()].sort((a, b) => b.length - a.length || b.trust - a.trust);
    const least = Math.min(...inOrder.map(({ trust }) => trust));
    if (inOrder.length > PLACES)
      inOrder.splice(
        inOrder.findIndex(({ trust }) => trust === least),
        1,
      );
    this.#places = inOrder;
  }

  /** Adds the texts before the answer as they are within strings of JSON, or within none, once the answer has such tokens. */
  #reread(id: number): void {
    if (id >= this.#tokenizer.vocabSize) return;
    const text = this.#tokenizer.decode([id]);
    if (text.includes("\\") && ++this.#escapes === ESCAPES) this.#addRewritten(escaped);
    if (text.includes("\n") && ++this.#lines === LINES) this.#addRewritten(unescaped);
  }

  #addRewritten(rewrite: (text: string) => string): void {
    const last = this.#history.slice(Math.max(0, this.#start - REREAD_MAX), this.#start);
    const before = [...this.#prediction, ...last].slice(-REREAD_MAX);
    const known = before.filter((id) => id < this.#tokenizer.vocabSize);
    const text = this.#tokenizer.decode(known, { skipSpecialTokens: true });
    const rewritten = rewrite(text);
    if (rewritten === text) return;
    try {
      const ids = this.#tokenizer.encode(rewritten, { ...WHOLE_TEXT, addSpecialTokens: false });
      this.#automaton.push(SEPARATOR);
      this.#add(ids);
    } catch (error) {
      // Without these tokens, less is drafted.
      if (!(error instanceof LimitError)) throw error;
    }
  }

  #add(ids: readonly number[]): void {
    if (ids.length === 0) return;
    for (const id of ids) this.#automaton.push(id);
    this.#automaton.push(SEPARATOR);
  }
}

/** A text as it is within a string of JSON. */
function escaped(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

/** A text without the escapes of JSON's strings that code has most of. */
function unescaped(text: string): string {
  return text.replace(/\\[nt"\\]/g, (sign) => JSON.parse(`"${sign}"`));
}
