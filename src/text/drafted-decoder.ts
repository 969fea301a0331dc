/** A decoder with drafts: tokens that are likely to come are computed beside the last one, for one reading of the weights. */

import type { ComputeOptions, Decoder } from "./decoder.ts";
import { DraftLength } from "./draft-length.ts";
import { SuffixAutomaton } from "./suffix-automaton.ts";

/** Where drafts come from: `lookup` is what followed when the same tokens occurred before in the prompt or the answer. */
export const drafts = ["lookup", "off"] as const;
/** Where drafts come from, as `drafts` names it. */
export type Draft = (typeof drafts)[number];

/** Between texts in which drafts are found: no token. */
const SEPARATOR = 2 ** 24 - 1;

/** How drafts are found. */
export interface DraftSource {
  readonly draft: Draft;
  /** Tokens that the answer is likely to resemble, beside those before it. */
  readonly prediction: readonly number[];
}

/**
 * Gives the same logits as the decoder that it has: a drafted token counts only where it is the one that was drawn, and what
 * was computed of others is forgotten.
 */
export class DraftedDecoder {
  /** Tokens that were drafted, and those of them that came. */
  drafted = 0;
  accepted = 0;
  readonly #decoder: Decoder;
  /** All tokens of the text, and the number of them that drafts are found in by now. */
  readonly #history: readonly number[];
  #prediction: readonly number[];
  #known = 0;
  readonly #text: SuffixAutomaton | null;
  readonly #length = new DraftLength();
  /** The tokens of the last draft, how many of them have come, and the logits behind each and behind the one before them. */
  #draft: readonly number[] = [];
  #taken = 0;
  #logits = new Float32Array(0);
  #matched = 0;

  /** `history`: the tokens of the text, to which each is added as it is drawn. */
  constructor(decoder: Decoder, history: readonly number[], { draft, prediction }: DraftSource) {
    this.#decoder = decoder;
    this.#history = history;
    this.#prediction = prediction;
    this.#text = draft === "lookup" ? new SuffixAutomaton() : null;
  }

  /** Tokens that the context holds, without those that were drafted and have not come. */
  get position(): number {
    return this.#decoder.position - (this.#draft.length - this.#taken);
  }

  /** Appends the last token of the text, and gives the logits behind it. */
  async step(id: number, options: ComputeOptions): Promise<Float32Array> {
    if (this.#draft[this.#taken] === id) {
      this.accepted++;
      this.#taken++;
      return this.#row(this.#taken);
    }
    this.forget();
    const draft = this.#nextDraft();
    const rows = (this.#decoder.recomputed ?? 0) + 1 + draft.length;
    const start = performance.now();
    const logits = draft.length === 0 ? await this.#decoder.step(id, options) : await this.#compute(id, draft, options);
    this.#length.took(rows, performance.now() - start);
    return logits;
  }

  #nextDraft(): readonly number[] {
    const { draftRows = 1, recomputed = 0, contextLength, position } = this.#decoder;
    const most = Math.min(draftRows, contextLength - position) - 1;
    if (!this.#text || most < 1) return [];
    for (const id of this.#prediction) this.#text.push(id);
    if (this.#prediction.length > 0) this.#text.push(SEPARATOR);
    this.#prediction = [];
    while (this.#known < this.#history.length) this.#text.push(this.#history[this.#known++]!);
    this.#matched = this.#text.matchLength;
    const found = this.#text.continuation(this.#length.next(this.#matched, most, recomputed));
    const end = found.indexOf(SEPARATOR);
    return end < 0 ? found : found.slice(0, end);
  }

  async #compute(id: number, draft: readonly number[], options: ComputeOptions): Promise<Float32Array> {
    const before = this.#decoder.position;
    try {
      this.#logits = (await this.#decoder.allLogits!([id, ...draft], options)) as Float32Array<ArrayBuffer>;
    } catch (error) {
      if (this.#decoder.position > before) this.#decoder.rewind!(before);
      throw error;
    }
    this.#draft = draft;
    this.#taken = 0;
    this.drafted += draft.length;
    return this.#row(0);
  }

  #row(index: number): Float32Array {
    const size = this.#logits.length / (this.#draft.length + 1);
    return this.#logits.subarray(index * size, (index + 1) * size);
  }

  /** Forgets what was drafted and has not come. */
  forget(): void {
    if (this.#draft.length === 0) return;
    const { position } = this;
    if (this.#decoder.position > position) this.#decoder.rewind!(position);
    const { recomputed = 0 } = this.#decoder;
    this.#length.cameTrue(this.#matched, { drafted: this.#draft.length, accepted: this.#taken, recomputed });
    this.#draft = [];
    this.#taken = 0;
  }
}
