/** A decoder with drafts: tokens that are likely to come are computed beside the last one, for one reading of the weights. */

import type { ComputeOptions, Decoder } from "./decoder.ts";
import { DraftLength } from "./draft-length.ts";
import type { Draft } from "./draft-source.ts";
import { HeadWriter, ModelWriter } from "./draft-writer.ts";
import { StepCosts } from "./step-costs.ts";
import { SuffixAutomaton } from "./suffix-automaton.ts";
import { type DraftingOptions, WrittenDrafts } from "./written-drafts.ts";

/** Between texts in which drafts are found: no token. */
const SEPARATOR = 2 ** 24 - 1;

/** How drafts are found. */
export interface DraftSource {
  readonly draft: Draft;
  /** Tokens that the answer is likely to resemble, beside those before it. */
  readonly prediction: readonly number[];
  /** Number of ids that are tokens. */
  readonly tokens: number;
  /** How the tokens are drawn. */
  readonly drawing: DraftingOptions;
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
  readonly #costs = new StepCosts();
  readonly #length = new DraftLength(this.#costs);
  readonly #written: WrittenDrafts | null;
  /** The tokens of the last draft, how many of them have come, and the logits behind each and behind the one before them. */
  #draft: readonly number[] = [];
  #taken = 0;
  #logits = new Float32Array(0);
  /** Tokens of the text that the draft was found behind; null where it was written. */
  #matched: number | null = null;
  #stepMs = 0;

  /** `history`: the tokens of the text, to which each is added as it is drawn. */
  constructor(decoder: Decoder, history: readonly number[], { draft, prediction, tokens, drawing }: DraftSource) {
    this.#decoder = decoder;
    this.#history = history;
    this.#prediction = prediction;
    this.#text = draft === "off" ? null : new SuffixAutomaton();
    const writer = () =>
      typeof draft === "object" ? new ModelWriter(draft, drawing.prefixScope) : new HeadWriter(decoder);
    const isWritten = typeof draft === "object" || draft === "mtp";
    this.#written = isWritten ? new WrittenDrafts(writer, tokens, this.#costs, drawing) : null;
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
    this.#forget();
    const draft = await this.#nextDraft(options);
    const rows = (this.#decoder.recomputed ?? 0) + 1 + draft.length;
    const start = performance.now();
    const logits = draft.length === 0 ? await this.#decoder.step(id, options) : await this.#compute(id, draft, options);
    this.#stepMs = performance.now() - start;
    this.#costs.took(rows, this.#stepMs);
    return logits;
  }

  async #nextDraft(options: ComputeOptions): Promise<readonly number[]> {
    const { draftRows = 1, contextLength, position } = this.#decoder;
    const most = Math.min(draftRows, contextLength - position) - 1;
    if (!this.#text || most < 1) return [];
    const found = this.#lookUp(this.#text, most);
    if (found.length > 0 || !this.#written) return found;
    this.#matched = null;
    return this.#written.next(this.#history, most, options);
  }

  /** What followed the last tokens before, where that is likelier to come than what would be written. */
  #lookUp(text: SuffixAutomaton, most: number): readonly number[] {
    for (const id of this.#prediction) text.push(id);
    if (this.#prediction.length > 0) text.push(SEPARATOR);
    this.#prediction = [];
    while (this.#known < this.#history.length) text.push(this.#history[this.#known++]!);
    this.#matched = text.matchLength;
    if (this.#written && this.#length.chance(this.#matched) < this.#written.chance) return [];
    const found = text.continuation(this.#length.next(this.#matched, most, this.#decoder.recomputed));
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

  #forget(): void {
    if (this.#draft.length === 0) return;
    const { position } = this;
    if (this.#decoder.position > position) this.#decoder.rewind!(position);
    const { recomputed = 0 } = this.#decoder;
    if (this.#matched === null) this.#written!.noteAccepted(this.#taken, this.#stepMs, recomputed);
    else this.#length.noteAccepted(this.#matched, { drafted: this.#draft.length, accepted: this.#taken, recomputed });
    this.#draft = [];
    this.#taken = 0;
  }

  /** Forgets what was drafted and has not come, and what drafts were made with. */
  async end(): Promise<void> {
    this.#forget();
    await this.#written?.dispose();
  }
}
