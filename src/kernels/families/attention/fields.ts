/** Arguments of the kernels of attention, rotary embedding (RoPE) and pooling. */
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

/** RoPE: angles [tokens, 2, half] are cos and sin of position * inverse frequency, times `scale`. */
export const ropeAnglesFields = {
  /** [tokens]: a position for each token; or [1]: the first token's, the others have the next ones. */
  position: list("i64", "positions"),
  inverseFrequencies: list("f32", "half"),
  angles: output("f32", "tokens", 2, "half"),
  scale: float,
};
export type RopeAnglesArgs = ArgumentsOf<typeof ropeAnglesFields>;

/** RoPE: rotates the first 2 * half values of each head, in pairs (i, i + half) as Hugging Face's models do. */
export const ropeFields = {
  x: input("f32", "tokens", "heads", "headDim"),
  angles: input("f32", "tokens", 2, "half"),
  y: output("f32", "tokens", "heads", "headDim"),
};
export type RopeArgs = ArgumentsOf<typeof ropeFields>;

const rule = {
  scale: float,
  /** Sliding window: how many of the last positions a query sees; 0 for all. */
  window: double,
  /** Scores become cap * tanh(score / cap); 0 for none. */
  softcap: float,
};

/** Causal grouped-query attention over a contiguous KV cache. New keys and values, if any, are stored in it first. */
export const attentionFields = {
  q: input("f32", "tokens", "heads", "headDim"),
  /** k and v are null if the caches hold them already: only y is written then. */
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

/** Arguments of attention of a step's rows, each over the pages of its own sequence. Rows that belong to no run give NaN. */
const overPages = {
  table: runsOfTable,
  pages: pagesOfLayer,
  /** Attention sinks (Xiao et al. 2024): one more score for each head, whose value is zero; null without. */
  sinks: optional("f32", "heads"),
  y: output("f32", "rows", "heads", "headDim"),
  ...rule,
};

/** Causal grouped-query attention over the pages of the KV cache. New keys and values, if any, are stored in them first. */
export const sequenceAttentionFields = {
  q: input("f32", "rows", "heads", "headDim"),
  /** k and v are null if the pages hold them already: only y is written then. */
  k: optional("f32", "rows", "kvHeads", "headDim"),
  v: optional("f32", "rows", "kvHeads", "headDim"),
  ...overPages,
};
export type SequenceAttentionArgs = ArgumentsOf<typeof sequenceAttentionFields>;

/** `sequenceAttentionFields` with queries, keys and values as columns of one matrix; RoPE rotates queries and keys first. */
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
 * Rows that belong to no sequence give NaN.
 */
export const attendPackedFields = {
  q: input("f32", "rows", "heads", "headDim"),
  k: input("f32", "rows", "kvHeads", "headDim"),
  v: input("f32", "rows", "kvHeads", "headDim"),
  /** [sequences + 1] */
  offsets: list("i64", "bounds"),
  y: output("f32", "rows", "heads", "headDim"),
  scale: float,
  /** How many tokens before its own a query sees at most. */
  before: whole,
  /** How many tokens after its own a query sees at most. */
  after: whole,
};
export type AttendPackedArgs = ArgumentsOf<typeof attendPackedFields>;

/** Pools each packed sequence (see `attendPackedFields`) into one vector. Sequences without tokens give NaN. */
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
