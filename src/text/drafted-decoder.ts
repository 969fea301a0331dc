/**
 * Speculative decoding: a decoder that computes drafted tokens in the same step as the last token, for one read of the weights.
 */

import type { ComputeOptions, Decoder } from "./decoder.ts";
import { DraftLength } from "./draft-length.ts";
import { DraftLookup, type Match } from "./draft-lookup.ts";
import type { Draft } from "./draft-source.ts";
import { HeadWriter, ModelWriter } from "./draft-writer.ts";
import { StepCosts } from "./step-costs.ts";
import type { Tokenizer } from "./tokenizer.ts";
import { type DraftingOptions, WrittenDrafts } from "./written-drafts.ts";

/** Where drafts come from, and what finding them needs. */
export interface DraftSource {
  readonly draft: Draft;
  /** Tokens that the answer is likely to resemble, in which drafts are looked up, too. */
  readonly prediction: readonly number[];
  /** The model's tokenizer. */
  readonly tokenizer: Tokenizer;
  /** Sampler options of the answer's tokens. */
  readonly drawing: DraftingOptions;
}

/**
 * Returns the same logits as the decoder it wraps: a drafted token counts only if it is the one drawn, and the state of
 * rejected tokens is rewound.
 */
export class DraftedDecoder {
  /** Number of tokens drafted, and of those that were accepted. */
  drafted = 0;
  accepted = 0;
  readonly #decoder: Decoder;
  /** All tokens of the text. */
  readonly #history: readonly number[];
  readonly #text: DraftLookup | null;
  readonly #costs = new StepCosts();
  readonly #length = new DraftLength(this.#costs);
  readonly #written: WrittenDrafts | null;
  /**
   * Tokens of the last draft, how many of them were accepted so far, and the logits after the drawn token and after each of
   * them.
   */
  #draft: readonly number[] = [];
  #taken = 0;
  #logits = new Float32Array(0);
  /** How the draft was found; null where a writer drafted it. */
  #matched: Match | null = null;
  #stepMs = 0;

  /** `history`: the tokens of the text, to which the caller appends each drawn token. */
  constructor(decoder: Decoder, history: readonly number[], { draft, prediction, tokenizer, drawing }: DraftSource) {
    this.#decoder = decoder;
    this.#history = history;
    this.#text = draft === "off" ? null : new DraftLookup(history, prediction, tokenizer);
    const writer = () =>
      typeof draft === "object" ? new ModelWriter(draft, drawing.prefixScope) : new HeadWriter(decoder);
    const isWritten = typeof draft === "object" || draft === "mtp";
    this.#written = isWritten ? new WrittenDrafts(writer, tokenizer.vocabSize, this.#costs, drawing) : null;
  }

  /** Number of tokens in the context, without drafted tokens that were not accepted. */
  get position(): number {
    return this.#decoder.position - (this.#draft.length - this.#taken);
  }

  /** Appends the last token of the text and returns the logits after it. */
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

  /** Looks up what followed an earlier occurrence of the last tokens; empty where a writer's draft is more probable. */
  #lookUp(text: DraftLookup, most: number): readonly number[] {
    this.#matched = text.find((match) => this.#length.chance(match));
    if (!this.#matched) return [];
    if (this.#written && this.#length.chance(this.#matched) < this.#written.chance) return [];
    const count = this.#length.next(this.#matched, most, this.#decoder.recomputed);
    return count === 0 ? [] : text.continuation(count);
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

  /** Rewinds drafted tokens that were not accepted, and disposes the writer. */
  async end(): Promise<void> {
    this.#forget();
    await this.#written?.dispose();
  }
}
