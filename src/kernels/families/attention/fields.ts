/** What kernels of attention, of rotary embedding and of pooling are called with. */
import type { Pooling } from "../../../pooling.ts";
import {
  type ArgumentsOf,
  double,
  float,
  inout,
  input,
  list,
  optional,
  output,
  unsized,
  whole,
} from "../../declaration.ts";
import { pagesOfLayer, runsOfTable } from "../../records.ts";

/** angles [tokens, 2, half]: cos and sin of position * inverse frequency, times `scale`. */
export const ropeAnglesFields = {
  /** [tokens], or [1]: that of the first token, which others follow. */
  position: list("i64", "positions"),
  inverseFrequencies: list("f32", "half"),
  angles: output("f32", "tokens", 2, "half"),
  scale: float,
};
export type RopeAnglesArgs = ArgumentsOf<typeof ropeAnglesFields>;

/** Rotates the first 2 * half values of each head; pairs are (i, i + half), as in Hugging Face's models. */
export const ropeFields = {
  x: input("f32", "tokens", "heads", "headDim"),
  angles: input("f32", "tokens", 2, "half"),
  y: output("f32", "tokens", "heads", "headDim"),
};
export type RopeArgs = ArgumentsOf<typeof ropeFields>;

const rule = {
  scale: float,
  /** Last positions that a query sees; 0 for all. */
  window: double,
  /** Scores become cap * tanh(score / cap); 0 for none. */
  softcap: float,
};

/** Causal grouped-query attention over a cache that receives the new keys and values first, where there are any. */
export const attentionFields = {
  q: input("f32", "tokens", "heads", "headDim"),
  /** Null, as v, where the caches hold them already: nothing but y is written then. */
  k: optional("f32", "tokens", "kvHeads", "headDim"),
  v: optional("f32", "tokens", "kvHeads", "headDim"),
  keyCache: inout("f32", "capacity", "kvHeads", "headDim"),
  valueCache: inout("f32", "capacity", "kvHeads", "headDim"),
  /** Position of the first new token. */
  position: input("i64", 1),
  y: output("f32", "tokens", "heads", "headDim"),
  ...rule,
};
export type AttentionArgs = ArgumentsOf<typeof attentionFields>;

/** Of the rows of a step, each over the pages of its own sequence. Rows of no run give NaN. */
const overPages = {
  table: runsOfTable,
  pages: pagesOfLayer,
  /** A score that each query has besides, whose value is zero (Xiao et al. 2024); null without. */
  sinks: optional("f32", "heads"),
  y: output("f32", "rows", "heads", "headDim"),
  ...rule,
};

/** Causal grouped-query attention over pages, which receive the new keys and values first, where there are any. */
export const sequenceAttentionFields = {
  q: input("f32", "rows", "heads", "headDim"),
  /** Null, as v, where the pages hold them already: nothing but y is written then. */
  k: optional("f32", "rows", "kvHeads", "headDim"),
  v: optional("f32", "rows", "kvHeads", "headDim"),
  ...overPages,
};
export type SequenceAttentionArgs = ArgumentsOf<typeof sequenceAttentionFields>;

/** The same of queries, keys and values that are columns of one matrix, of which queries and keys are rotated first. */
export const ropeSequenceAttentionFields = {
  /** [rows, (heads + 2 * kvHeads) * headDim] */
  qkv: unsized("f32"),
  angles: input("f32", "rows", 2, "half"),
  kvHeads: whole,
  ...overPages,
};
export type RopeSequenceAttentionArgs = ArgumentsOf<typeof ropeSequenceAttentionFields>;

/**
 * Grouped-query attention of packed sequences, each over its own tokens: sequence i is rows offsets[i] to offsets[i + 1] - 1.
 * Rows of no sequence give NaN.
 */
export const attendPackedFields = {
  q: input("f32", "rows", "heads", "headDim"),
  k: input("f32", "rows", "kvHeads", "headDim"),
  v: input("f32", "rows", "kvHeads", "headDim"),
  /** [sequences + 1] */
  offsets: list("i64", "bounds"),
  y: output("f32", "rows", "heads", "headDim"),
  scale: float,
  /** Tokens before its own that a query sees at most. */
  before: whole,
  /** Tokens after its own that a query sees at most. */
  after: whole,
};
export type AttendPackedArgs = ArgumentsOf<typeof attendPackedFields>;

/** One vector of each packed sequence, which are as in `attendPackedFields`. Sequences without tokens give NaN. */
export interface PoolPackedArgs {
  readonly pooling: Pooling;
  readonly rows: number;
  readonly dim: number;
  /** [rows, dim] */
  readonly x: Float32Array;
  /** [sequences + 1] */
  readonly offsets: BigInt64Array;
  /** [sequences, dim] */
  readonly y: Float32Array;
}
