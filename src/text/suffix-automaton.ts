/**
 * The suffix automaton of a growing sequence of tokens (Blumer et al., 1985): after each token it knows the longest suffix of
 * the sequence that occurred before, and where. A token takes amortized constant time and some 200 bytes.
 */

/** Token ids are below this, so that state * TOKEN_SPAN + token is an exact number. */
const TOKEN_SPAN = 2 ** 24;

export class SuffixAutomaton {
  /** All tokens so far. */
  readonly tokens: number[] = [];
  /** By state: length of its longest substring, its suffix link, and the latest end of an occurrence of it. */
  readonly #length: number[] = [0];
  readonly #link: number[] = [-1];
  readonly #end: number[] = [-1];
  /** By state: the tokens with a transition from it. */
  readonly #nextTokens: number[][] = [[]];
  readonly #next = new Map<number, number>();
  #last = 0;
  /** The state of the longest suffix that occurred before, and that suffix's length. */
  #matched = 0;
  #matchLength = 0;
  #matchEnd = -1;

  /** Length of the longest suffix of the sequence that occurred before. */
  get matchLength(): number {
    return this.#matchLength;
  }

  /** Index of the last token of that suffix's latest earlier occurrence; -1 where there was none. */
  get matchEnd(): number {
    return this.#matchLength === 0 ? -1 : this.#matchEnd;
  }

  /** Appends a token. */
  push(token: number): void {
    this.#match(token);
    this.#extend(token);
    // Extending may split the state: move to the one that contains the match's length.
    while (this.#length[this.#link[this.#matched]!]! >= this.#matchLength && this.#matched !== 0)
      this.#matched = this.#link[this.#matched]!;
    if (this.#matched !== 0) this.#end[this.#matched] = this.tokens.length - 1;
  }

  /** Extends the longest suffix that occurred before by a token, in the automaton of the tokens before it. */
  #match(token: number): void {
    let state = this.#matched;
    let length = this.#matchLength;
    while (state !== 0 && !this.#next.has(key(state, token))) {
      state = this.#link[state]!;
      length = this.#length[state]!;
    }
    const next = this.#next.get(key(state, token));
    this.#matched = next ?? 0;
    this.#matchLength = next === undefined ? 0 : length + 1;
    this.#matchEnd = this.#end[this.#matched]!;
  }

  #extend(token: number): void {
    const added = this.#state(this.#length[this.#last]! + 1, this.tokens.length, []);
    this.tokens.push(token);
    let state = this.#last;
    this.#last = added;
    for (; state >= 0 && !this.#next.has(key(state, token)); state = this.#link[state]!) this.#set(state, token, added);
    if (state < 0) {
      this.#link[added] = 0;
      return;
    }
    const next = this.#next.get(key(state, token))!;
    const length = this.#length[state]! + 1;
    if (this.#length[next] === length) {
      this.#link[added] = next;
      return;
    }
    const split = this.#state(length, this.#end[next]!, this.#nextTokens[next]!);
    for (const one of this.#nextTokens[split]!) this.#next.set(key(split, one), this.#next.get(key(next, one))!);
    this.#link[split] = this.#link[next]!;
    for (; state >= 0 && this.#next.get(key(state, token)) === next; state = this.#link[state]!)
      this.#next.set(key(state, token), split);
    this.#link[next] = split;
    this.#link[added] = split;
  }

  #set(state: number, token: number, next: number): void {
    this.#nextTokens[state]!.push(token);
    this.#next.set(key(state, token), next);
  }

  #state(length: number, end: number, nextTokens: readonly number[]): number {
    this.#length.push(length);
    this.#link.push(0);
    this.#end.push(end);
    return this.#nextTokens.push([...nextTokens]) - 1;
  }
}

function key(state: number, token: number): number {
  return state * TOKEN_SPAN + token;
}
