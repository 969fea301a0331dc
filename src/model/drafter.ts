/** What drafts for a decoder with layers of its own, beside the decoder's. */
import type { LayerConfig, LayerPass, LayerPlaces } from "./layer.ts";
import type { WeightSlot } from "./weight-slot.ts";

/** What a drafter is given of the pass that it is in. */
export interface DraftPass<T> extends LayerPass<T> {
  /** Computes one of the drafter's layers, by its index among these. */
  draftLayer(x: T, index: number): T;
  /**
   * Logits of hidden states behind a norm like the decoder's last, of the tokens that are drafted, `draftVocabularySize`. `head`: the
   * slot of its matrix; default: the decoder's.
   */
  draftLogits(x: T, head?: string): T;
}

/**
 * Tokens that are drafted with the decoder's head, those of the least ids: tokenizers number them by how often they occur, and the
 * whole head of a large vocabulary would be most of what a draft costs (FR-Spec, Zhao et al. 2025, counts them). 65,536 would
 * take a third less time, but leave out a seventh of German text.
 */
const DRAFT_TOKENS = 98_304;

/** Tokens, those of the least ids, that the decoder's head tells apart for drafts. */
export function draftVocabularySize(vocabulary: number): number {
  return Math.min(vocabulary, DRAFT_TOKENS);
}

/** Guesses the tokens behind tokens, from the hidden states before them. */
export interface Drafter {
  /** Layers of its own: their caches and states are numbered behind those of the decoder's, which they may share. */
  readonly layers: readonly LayerConfig[];
  /** Elements of the hidden states of its layers. */
  readonly hidden: number;
  /**
   * Whether it sees the tokens before its own alone, whose keys and values the decoder has stored, and works at the position of the first
   * token of a draft for all of them, as Gemma 4's assistants do.
   */
  readonly isFixed: boolean;
  /** Tokens, those of the least ids, that it may guess. */
  readonly vocabularySize: number;
  /** Lists the weights beside those of its layers. */
  slots(): WeightSlot[];
  /** Stores what it reads of all tokens, from the decoder's hidden states of them [1, T, hidden]. Default: nothing. */
  store?<T>(pass: DraftPass<T>, hidden: T, places: readonly LayerPlaces[]): void;
  /** Logits [1, T, V], and hidden states of its own [1, T, hidden], behind tokens and the hidden states before them. */
  draft<T>(pass: DraftPass<T>, before: T): readonly [logits: T, hidden: T];
  /**
   * Computes what `draft` does as far as it has weights of its own: for calibration, which looks at the decoder's head once.
   */
  visit<T>(pass: DraftPass<T>, before: T): readonly T[];
}
