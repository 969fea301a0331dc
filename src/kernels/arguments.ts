/** Arguments of each kernel family, already validated by the operator: typed views, sizes, opened weights. */
import type { DType } from "../dtype.ts";
import type { Pooling } from "../pooling.ts";
import type { WeightSpec } from "../quantized.ts";
import type { Kernel, LayoutPacker, PackedLayout, PackedWeights, PackTarget } from "./contract.ts";
import type { LayerPages, SequenceTable, StatePart } from "./sequence-table.ts";

/** y [m, n] = x [m, k] times quantized weights [n, k] transposed, plus the bias packed with them. */
export interface PackedLinearArgs {
  readonly m: number;
  readonly x: Float32Array;
  readonly weights: PackedWeights;
  readonly y: Float32Array;
}

/** Float weights as stored: f32 values, or f16/bf16 bit patterns. */
export interface FloatWeights {
  readonly dtype: DType;
  readonly data: Float32Array | Uint16Array;
}

/** y [m, n] = x [m, k] times float weights [n, k] transposed, plus bias [n]. */
export interface FloatLinearArgs {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly x: Float32Array;
  readonly weights: FloatWeights;
  readonly bias: Float32Array | null;
  readonly y: Float32Array;
}

/** Token or row ids. */
export type Indices = BigInt64Array | Int32Array;

/** y [count, dim] = rows of float weights [rows, dim]. */
export interface FloatEmbeddingArgs {
  readonly rows: number;
  readonly dim: number;
  readonly weights: FloatWeights;
  readonly indices: Indices;
  readonly y: Float32Array;
}

/** y [count, dim] = rows of TorchAO-packed integers, (q - zero) * scale with scales and zeros [rows, groups]. */
export interface PackedEmbeddingArgs {
  readonly bits: number;
  readonly rows: number;
  readonly dim: number;
  readonly packed: Uint8Array;
  readonly scales: Float32Array;
  readonly zeros: Int8Array;
  readonly indices: Indices;
  readonly y: Float32Array;
}

/** y [count, k] = rows of packed linear weights [n, k]. */
export interface SharedEmbeddingArgs {
  readonly weights: PackedWeights;
  readonly indices: Indices;
  readonly y: Float32Array;
}

/**
 * Grouped-query attention of rows that are several texts, one after the other, each over the rows of its own text: text i is
 * the rows from offsets[i] to before offsets[i + 1]. Rows of no text give NaN.
 */
export interface AttendTextsArgs {
  readonly rows: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** [rows, heads, headDim] */
  readonly q: Float32Array;
  /** [rows, kvHeads, headDim] */
  readonly k: Float32Array;
  readonly v: Float32Array;
  /** [texts + 1] */
  readonly offsets: BigInt64Array;
  readonly scale: number;
  /** Rows before its own that a query sees at most. */
  readonly before: number;
  /** Rows after its own that a query sees at most. */
  readonly after: number;
  /** [rows, heads, headDim] */
  readonly y: Float32Array;
}

/** One row of each text, which are as in `AttendTextsArgs`. Texts without rows give NaN. */
export interface PoolTextsArgs {
  readonly pooling: Pooling;
  readonly rows: number;
  readonly dim: number;
  /** [rows, dim] */
  readonly x: Float32Array;
  /** [texts + 1] */
  readonly offsets: BigInt64Array;
  /** [texts, dim] */
  readonly y: Float32Array;
}

/** angles [tokens, 2, half]: cos and sin of position * inverse frequency, times `scale`. */
export interface RopeAnglesArgs {
  readonly tokens: number;
  /** [tokens], or [1]: that of the first token, which others follow. */
  readonly position: BigInt64Array;
  readonly inverseFrequencies: Float32Array;
  readonly scale: number;
  readonly angles: Float32Array;
}

/** Rotates the first 2 * half values of each head; pairs are (i, i + half), as in Hugging Face's models. */
export interface RopeArgs {
  readonly tokens: number;
  readonly heads: number;
  readonly headDim: number;
  readonly half: number;
  /** [tokens, heads, headDim] */
  readonly x: Float32Array;
  /** [tokens, 2, half] */
  readonly angles: Float32Array;
  readonly y: Float32Array;
}

/** Causal grouped-query attention over a cache that receives the new keys and values first, where there are any. */
export interface AttentionArgs {
  readonly tokens: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Positions that the caches hold. */
  readonly capacity: number;
  /** [tokens, heads, headDim] */
  readonly q: Float32Array;
  /** [tokens, kvHeads, headDim]; null, both, where the caches hold them already: nothing but y is written then. */
  readonly k: Float32Array | null;
  readonly v: Float32Array | null;
  /** [capacity, kvHeads, headDim] */
  readonly keyCache: Float32Array;
  readonly valueCache: Float32Array;
  /** [1]: position of the first new token. */
  readonly position: BigInt64Array;
  readonly scale: number;
  /** Last positions that a query sees; 0 for all. */
  readonly window: number;
  /** Scores become cap * tanh(score / cap); 0 for none. */
  readonly softcap: number;
  /** [tokens, heads, headDim] */
  readonly y: Float32Array;
}

/**
 * Causal grouped-query attention of the rows of a step, each over the pages of its own sequence, which receive the new keys
 * and values first, where there are any. Rows of no run give NaN.
 */
export interface SequenceAttentionArgs {
  readonly rows: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** [rows, heads, headDim] */
  readonly q: Float32Array;
  /** [rows, kvHeads, headDim]; null, both, where the pages hold them already: nothing but y is written then. */
  readonly k: Float32Array | null;
  readonly v: Float32Array | null;
  readonly table: SequenceTable;
  readonly pages: LayerPages;
  readonly scale: number;
  /** Last positions that a query sees; 0 for all. */
  readonly window: number;
  /** Scores become cap * tanh(score / cap); 0 for none. */
  readonly softcap: number;
  /** [heads]: a score that each query has besides, whose value is zero (Xiao et al. 2024); null without. */
  readonly sinks: Float32Array | null;
  /** [rows, heads, headDim] */
  readonly y: Float32Array;
}

/** Attention that rotates queries and keys first; queries, keys and values are columns of one matrix. */
export interface RopeSequenceAttentionArgs extends Omit<SequenceAttentionArgs, "q" | "k" | "v"> {
  /** [rows, (heads + 2 * kvHeads) * headDim] */
  readonly qkv: Float32Array;
  /** [rows, 2, half] */
  readonly angles: Float32Array;
  readonly half: number;
}

/**
 * Causal depthwise convolution of the rows of a step, each over the inputs of its own sequence, zeros before the first:
 * y[t, c] = bias[c] + sum_j weight[j, c] x[t - taps + 1 + j, c]. Rows of no run give NaN.
 */
export interface ShortConvolutionArgs {
  readonly rows: number;
  readonly channels: number;
  /** Inputs that a result depends on: that of its row and those before it. */
  readonly taps: number;
  /** [rows, channels] */
  readonly x: Float32Array;
  /** [taps, channels], the last for the row itself. */
  readonly weight: Float32Array;
  /** [channels] */
  readonly bias: Float32Array | null;
  /** Whether y is y * sigmoid(y). */
  readonly silu: boolean;
  readonly table: SequenceTable;
  /** f32 [taps - 1, channels]: the inputs before the first row, the oldest first. */
  readonly state: StatePart;
  /** [rows, channels] */
  readonly y: Float32Array;
}

/**
 * Linear recurrence of the rows of a step, each on the state S [keyDim, valueDim] of a head of its own sequence, zeros at
 * first: S = exp(logDecay) S; u = v, or beta (v - S^T k) where there is a beta; S = S + k u^T; y = scale S^T q. Heads share
 * the queries and keys of a key head, each as many. Rows of no run give NaN.
 */
export interface LinearRecurrenceArgs {
  readonly rows: number;
  readonly keyHeads: number;
  readonly heads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  /** [rows, keyHeads, keyDim] */
  readonly q: Float32Array;
  readonly k: Float32Array;
  /** [rows, heads, valueDim] */
  readonly v: Float32Array;
  /** [rows, heads] */
  readonly logDecay: Float32Array;
  /** [rows, heads] */
  readonly beta: Float32Array | null;
  readonly scale: number;
  readonly table: SequenceTable;
  /** f32 [heads, keyDim, valueDim] */
  readonly state: StatePart;
  /** [rows, heads, valueDim] */
  readonly y: Float32Array;
}

/**
 * The largest of each block of logits, NaN where one of them is; logits that are not allowed become -Infinity first. Blocks
 * are of `BLOCK_TOKENS` logits, the last one filled up with -Infinity.
 */
export interface VocabularyMaximaArgs {
  /** [blocks, BLOCK_TOKENS], changed where a logit is not allowed. */
  readonly x: Float32Array;
  /** [blocks, BLOCK_TOKENS / 32], bit i % 32 of word i / 32 set where logit i is allowed. */
  readonly allowed: Uint32Array;
  /** [blocks] */
  readonly maxima: Float32Array;
}

/**
 * Weights 2^((logit - largest) * scale) of logits of at least `least`, 0 of others, and their sums, as the reference kernel
 * computes them, bit for bit. Weights of blocks without such a logit are left alone; their sums are 0.
 */
export interface VocabularyWeightsArgs {
  /** [blocks, BLOCK_TOKENS], without NaN or Infinity. */
  readonly x: Float32Array;
  /** [blocks] */
  readonly maxima: Float32Array;
  /** [3]: the largest logit, which is finite; a scale, which is a normal number over 0; the least logit. */
  readonly settings: Float32Array;
  /** [blocks, BLOCK_TOKENS] */
  readonly weights: Float32Array;
  /** [blocks] */
  readonly sums: Float32Array;
}

/** Copies, of each of `outer` blocks `stride` bytes apart, the `blockBytes` bytes at `offset`. */
export interface SelectArgs {
  readonly outer: number;
  readonly stride: number;
  readonly offset: number;
  readonly blockBytes: number;
  readonly x: Uint8Array;
  readonly y: Uint8Array;
}

/** y [rows, columns] = those columns of rows of x [rows, dim]; NaN for columns that there are not. */
export interface GatherColumnsArgs {
  readonly rows: number;
  readonly dim: number;
  readonly x: Float32Array;
  readonly columns: Indices;
  readonly y: Float32Array;
}

/** Packs weights [n, k] in `layout` at the start of `target`, with zeros behind them. */
export interface Int4PackArgs {
  readonly spec: WeightSpec;
  readonly layout: PackedLayout;
  /** What packs into the layout. */
  packer(target: PackTarget): LayoutPacker;
  /** [n, k/2], even k in the low nibble, each value + 8. */
  readonly nibbles: Uint8Array;
  /** [n, groups] float32, or bfloat16 bit patterns. */
  readonly scales: Float32Array | Uint16Array;
  readonly bias: Float32Array | null;
  /** At least of the layout's `byteLength`. */
  readonly target: Uint8Array;
}

/** How logits of a router become weights of experts. */
export const routerScores = ["softmax", "sigmoid"] as const;

/**
 * Chooses the `topK` experts of each row by its scores, the softmax or the sigmoid of its logits, and says where their rows
 * go: `routing` as `kernels/routing.ts` describes it. Of experts of one score, the first are chosen.
 */
export interface RouteArgs {
  readonly rows: number;
  readonly experts: number;
  readonly topK: number;
  /** Place among `routerScores`. */
  readonly scores: number;
  /** Whether weights of a row are divided by their sum, to which `eps` is added. */
  readonly normalize: boolean;
  readonly eps: number;
  /** Number that all weights are multiplied with. */
  readonly scale: number;
  /** [rows, experts] */
  readonly logits: Float32Array;
  /** [experts], added to scores where experts are chosen, not to weights; null without. */
  readonly bias: Float32Array | null;
  /** [experts], what weights of each expert are multiplied with; null without. */
  readonly factors: Float32Array | null;
  readonly routing: Int32Array;
}

/** y [rows * topK, dim]: rows of x [rows, dim] in the order of their experts, once for each of them. */
export interface ExpertRowsArgs {
  readonly rows: number;
  readonly experts: number;
  readonly topK: number;
  readonly dim: number;
  readonly x: Float32Array;
  readonly routing: Int32Array;
  readonly y: Float32Array;
}

/** y [rows, dim]: sums of the rows of x [rows * topK, dim] that each row's experts made, times their weights. */
export type CombineExpertsArgs = ExpertRowsArgs;

/** The matrices of all experts of a linear layer, and what multiplies with one. `A`: arguments of a linear layer. */
export interface ExpertMatrices<A> {
  /** Kernels for the rows of one expert, each from some rows on, with the fewest first, and from 1. */
  readonly choices: readonly { readonly from: number; readonly kernel: Kernel<A> }[];
  /** Arrays that hold the matrices of all experts one after the other, and likewise their biases where those are apart. */
  readonly wholes: readonly ArrayBufferView[];
  /** The arguments of a call of m rows of one expert. */
  of(expert: number, m: number, x: Float32Array, y: Float32Array): A;
}

/** y [places, n] = x [places, k] times the matrix of each row's expert, where `routing` says which rows are whose. */
export interface ExpertLinearArgs<A> {
  readonly places: number;
  readonly experts: number;
  readonly n: number;
  readonly k: number;
  readonly x: Float32Array;
  readonly routing: Int32Array;
  readonly y: Float32Array;
  /** The same for calls of any number of rows. */
  readonly matrices: ExpertMatrices<A>;
}
