/** Drafters: draft heads with layers of their own, beside the decoder's. */
import type { LayerConfig, LayerPass, LayerPlaces } from "./layer.ts";
import type { WeightSlot } from "./weight-slot.ts";

/** The forward pass of a draft, as a drafter uses it. */
export interface DraftPass<T> extends LayerPass<T> {
  /** Computes one of the drafter's layers, by its index. */
  draftLayer(x: T, index: number): T;
  /** Computes the decoder's logits, over `draftVocabularySize` ids, of hidden states after its last norm. */
  draftLogits(x: T): T;
}

/**
 * Number of token ids, the lowest ones, whose logits a draft computes with the decoder's head: tokenizers number tokens by
 * frequency, and the whole head of a large vocabulary would be most of a draft's cost (FR-Spec, Zhao et al. 2025, counts
 * frequencies instead). 65,536 would take a third less time, but leave out a seventh of German text.
 */
const DRAFT_TOKENS = 98_304;

/** Number of token ids, the lowest ones, whose logits drafts compute with the decoder's head. */
export function draftVocabularySize(vocabulary: number): number {
  return Math.min(vocabulary, DRAFT_TOKENS);
}

/** Predicts the tokens after given tokens, from the hidden states before them. */
export interface Drafter {
  /** Layers of its own; their KV caches and states are numbered after the decoder's, which they may share. */
  readonly layers: readonly LayerConfig[];
  /** Elements of its layers' hidden states. */
  readonly hidden: number;
  /**
   * Whether it attends only to earlier tokens, whose keys and values the decoder has stored, at the position of the draft's
   * first token, as Gemma 4's assistants do.
   */
  readonly isFixed: boolean;
  /** Number of token ids, the lowest ones, that it can predict. */
  readonly vocabularySize: number;
  /** Lists its weights, without those of its layers. */
  slots(): WeightSlot[];
  /** Stores what it reads of all tokens, given the decoder's hidden states [1, T, hidden]. Default: nothing. */
  store?<T>(pass: DraftPass<T>, hidden: T, places: readonly LayerPlaces[]): void;
  /**
   * Computes logits [1, T, V] and its own hidden states [1, T, hidden] after the tokens, given the hidden states before
   * them.
   */
  draft<T>(pass: DraftPass<T>, before: T): readonly [logits: T, hidden: T];
  /** Computes the part of `draft` that has weights of its own: for calibration, which visits the decoder's head once. */
  visit<T>(pass: DraftPass<T>, before: T): readonly T[];
}
