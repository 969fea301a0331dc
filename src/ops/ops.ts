/**
 * The operators that models are written with: `function llama<T>(ops: Ops<T>, …): T`. Each method is one line of a paper;
 * the weights' formats decide which operator serves it.
 */
import { checkInstance, checkOptions, checkWhole, shown, unexpected } from "../arguments.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import { type ActivationName, activations } from "../kernels/families/gate/activations.ts";
import type { Pooling } from "../pooling.ts";
import type { Builder } from "./builder.ts";
import type { Argument, TensorSpec } from "./call-arguments.ts";
import { type ExpertLinear, expertLinear } from "./expert-weights.ts";
import { indicesConstant, literalConstant, tapsConstant, type VectorChange, vectorConstant } from "./lowering.ts";
import { loweringOf, type Weight } from "./weight.ts";

/**
 * A contiguous KV cache of one sequence in states of the program, f32 [1, capacity, kvHeads, headDim], as ExecuTorch keeps
 * it.
 */
export interface StateCache<T> {
  /** Keys of the positions so far, [1, capacity, kvHeads, headDim]. */
  readonly keyCache: T;
  /** Values of the positions so far, [1, capacity, kvHeads, headDim]. */
  readonly valueCache: T;
  /** Position of the first query, an integer tensor [1]. */
  readonly position: T;
}

/** A layer's part of the paged KV cache. */
export interface SequenceCache {
  /** Number of the layer in the model. */
  readonly layer: number;
  /** Number of heads of keys and values. */
  readonly kvHeads: number;
  /** Elements of a head. */
  readonly headDim: number;
}

/** Options of attention, beside queries, keys and values. */
export interface AttentionOptions<T> {
  /** The KV cache: contiguous, or the layer's part of the paged one. */
  readonly cache: StateCache<T> | SequenceCache;
  /** Factor of the scores, usually 1 / sqrt(headDim). */
  readonly scale: number;
  /** Sliding window: most positions that a query sees, its own included; 0 for all. */
  readonly window?: number;
  /** Bound of the scores, softcap * tanh(score / softcap); 0 for none. */
  readonly softcap?: number;
  /** Attention sinks [heads]: a further score of each head, without a value. */
  readonly sinks?: Weight | null;
}

/** How a router chooses experts, and how it computes their weights from scores. */
export interface RouterOptions {
  /** Number of experts of each token. */
  readonly topK: number;
  /** Function from logits to scores. Default: softmax. */
  readonly scores?: "softmax" | "sigmoid";
  /** Whether the scores of a token's experts are divided by their sum. Default: true. */
  readonly normalize?: boolean;
  /** Added to that sum. */
  readonly eps?: number;
  /** Factor of all experts' weights. */
  readonly scale?: number;
  /** Numbers [experts] that are added to scores for choosing experts only. */
  readonly bias?: Weight | null;
  /** Factors [experts] of each expert's weight. */
  readonly factors?: Weight | null;
}

/** Result of a router: which tokens go to which experts, with which weights. */
export interface Routing<T> {
  /** The router's result tensor. */
  readonly routing: T;
  /** Number of experts. */
  readonly experts: number;
  /** Number of experts of each token. */
  readonly topK: number;
}

/** State and activation of a short convolution. */
export interface ShortConvolutionOptions {
  /** Number of the recurrent state in the model, which no other call uses. */
  readonly state: number;
  /** Whether SiLU is applied to the sums: y * sigmoid(y). */
  readonly silu?: boolean;
}

/** Options of a linear recurrence, beside queries, keys and values. */
export interface LinearRecurrenceOptions<T> {
  /** Number of the recurrent state in the model, which no other call uses. */
  readonly state: number;
  /** Number of heads of queries and keys. */
  readonly keyHeads: number;
  /** Logarithms [1, T, heads] of the factors by which the state decays at each token. */
  readonly logDecay: T;
  /** Rates [1, T, heads] of the delta rule; without them, the outer product of key and value is added as it is. */
  readonly beta?: T;
  /** Factor of the results. */
  readonly scale?: number;
}

/** Options of attention over packed sequences, beside queries, keys and values. */
export interface PackedAttentionOptions<T> {
  /** Index of each sequence's first token, and behind the last token, int64 [sequences + 1]. */
  readonly offsets: T;
  /** Elements of a head. */
  readonly headDim: number;
  /** Factor of the scores, usually 1 / sqrt(headDim). */
  readonly scale: number;
  /** Most tokens before its own that a query sees. Default: all of its sequence. */
  readonly before?: number | null;
  /** Most tokens after its own that a query sees; 0 is causal. Default: all of its sequence. */
  readonly after?: number | null;
}

/** Activation of a gate: `geluTanh` is GELU approximated with tanh, `quickGelu` x * sigmoid(1.702 x). */
export type Activation = Exclude<ActivationName, "identity">;

const gateActivations: readonly string[] = activations.filter((name) => name !== "identity");

/** Least length that a row is divided by, as in PyTorch's `normalize`. */
const LENGTH_LEAST = 1e-12;

/**
 * The operators that models are written with, as methods over a builder: the same code runs eagerly and is captured.
 * @example
 * const ops = new Ops(builder);
 * const y = ops.add(x, ops.rmsNorm(x, weight, 1e-5));
 */
export class Ops<T> {
  readonly #builder: Builder<T>;

  constructor(builder: Builder<T>) {
    this.#builder = builder;
  }

  /** Calls any registered operator by its full name, such as a user's own. */
  call(operator: string, ...args: Argument<T>[]): T {
    return this.#builder.call(operator, ...args);
  }

  /** Adds a tensor that keeps its values from call to call, zeros at first. */
  state(name: string, spec: TensorSpec): T {
    return this.#builder.state(name, spec);
  }

  /** Type and sizes of a value. */
  spec(value: T): TensorSpec {
    return this.#builder.spec(value);
  }

  /** Adds a vector of the checkpoint as f32, with `change` applied to its values. */
  vector(weight: Weight, change?: VectorChange): T {
    return vectorConstant(this.#builder, weight, change);
  }

  /** Adds a constant of values that the model computes itself; `key` names it. */
  literal(key: string, values: Float32Array): T {
    checkInstance("values", values, Float32Array, "a Float32Array");
    return literalConstant(this.#builder, key, values);
  }

  /** Replaces `index` by `other` in indices [1, T]. */
  replaced(indices: T, index: number, other: number): T {
    return this.call("aten::masked_fill.Scalar_out", indices, this.call("aten::eq.Scalar_out", indices, index), other);
  }

  /** Looks up rows of `weight` [rows, dim] for indices [1, T], to [1, T, dim]. */
  embedding(weight: Weight, indices: T): T {
    const lowering = loweringOf(weight);
    if (!lowering.embedding)
      throw new UnsupportedError(
        `${weight.name}: expected an embedding table in a format whose rows are read but found format ${lowering.kind}`,
      );
    return lowering.embedding(this.#builder, weight, indices);
  }

  /** Computes x W^T + bias for x [..., k], `weight` W [n, k] and bias [n], to [..., n]. */
  linear(x: T, weight: Weight, bias: Weight | null = null): T {
    return loweringOf(weight).linear(this.#builder, x, weight, bias);
  }

  /** Computes RMSNorm, x / sqrt(mean(x^2) + eps) * (weight + offset), of each row. */
  rmsNorm(x: T, weight: Weight, eps: number, offset = 0): T {
    if (typeof offset !== "number") throw unexpected("offset", "a number", offset);
    const change = offset === 0 ? undefined : { key: `+${offset}`, of: (value: number) => value + offset };
    return this.call("lowbit::rms_norm.out", x, vectorConstant(this.#builder, weight, change), eps);
  }

  /** Computes RMSNorm without weights of each part of `size` values of a row. */
  plainRmsNorm(x: T, size: number, eps: number): T {
    checkWhole("size", size, 1);
    const ones = this.literal(`ones_${size}`, new Float32Array(size).fill(1));
    return this.call("lowbit::rms_norm.out", x, ones, eps);
  }

  /** Computes LayerNorm, (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, of each row. */
  layerNorm(x: T, weight: Weight, bias: Weight | null, eps: number): T {
    const [factors, added] = [weight, bias].map((vector) => vector && vectorConstant(this.#builder, vector));
    return this.call("lowbit::layer_norm.out", x, factors!, added ?? null, eps);
  }

  /** Divides each row, or each part of `size` values, by its Euclidean length, sqrt(sum(x^2) + eps); zeros stay zeros. */
  normalize(x: T, size: number = this.spec(x).shape.at(-1)!, eps: number = LENGTH_LEAST ** 2): T {
    checkWhole("size", size, 1);
    const factors = this.literal(`normalize_${size}`, new Float32Array(size).fill(1 / Math.sqrt(size)));
    return this.call("lowbit::rms_norm.out", x, factors, eps / size);
  }

  /** Computes GELU of every element, exactly (by erf) or approximated with tanh. */
  gelu(x: T, approximate: "none" | "tanh" = "none"): T {
    return this.call("aten::gelu.out", x, approximate);
  }

  /**
   * Computes RoPE's cosines and sines [T, 2, half] of `tokens` at positions [T], or from one position [1] on, times
   * `scale`.
   */
  ropeAngles(tokens: T, position: T, inverseFrequencies: T, scale: number): T {
    return this.call("lowbit::rope_angles.out", tokens, position, inverseFrequencies, scale);
  }

  /** Computes the factor 1 + beta ln(1 + floor(position / length)) of positions [T], to [1, T, 1]. */
  positionScaling(position: T, beta: number, length: number): T {
    checkWhole("length", length, 1);
    const lengths = this.literal("position_scaling.length", Float32Array.of(length));
    const ones = this.literal("position_scaling.one", Float32Array.of(1));
    const periods = this.call("aten::div.out_mode", position, lengths, "floor");
    const scaling = this.call("aten::add.out", ones, this.call("aten::log1p.out", periods), beta);
    return this.call("aten::view_copy.out", scaling, [1, -1, 1]);
  }

  /** Applies RoPE: rotates the heads of x [..., heads * headDim] by the angles of `ropeAngles`. */
  rope(x: T, angles: T, headDim: number): T {
    return this.call("lowbit::rope.out", x, angles, headDim);
  }

  /** Adds a contiguous KV cache: zeroed states `<name>.key_cache` and `<name>.value_cache` for `capacity` positions. */
  kvCache(
    name: string,
    shape: Omit<SequenceCache, "layer"> & { readonly capacity: number },
  ): Omit<StateCache<T>, "position"> {
    checkOptions(shape);
    const { capacity, kvHeads, headDim } = shape;
    const state = (part: string) =>
      this.#builder.state(`${name}.${part}_cache`, { dtype: "f32", shape: [1, capacity, kvHeads, headDim] });
    return { keyCache: state("key"), valueCache: state("value") };
  }

  /**
   * Stores keys and values in the KV cache, and computes the attention of the queries over it. With null for keys and
   * values, which only a paged cache allows, another call has stored those of the same tokens.
   */
  attention(q: T, k: T | null, v: T | null, options: AttentionOptions<T>): T {
    checkOptions(options);
    const { cache, scale, window = 0, softcap = 0, sinks = null } = options;
    if (typeof cache !== "object") throw unexpected("cache", "a cache of states or of sequences", cache);
    if ("layer" in cache) {
      const { layer, kvHeads, headDim } = cache;
      const sizes = [layer, kvHeads, headDim, scale, window, softcap];
      const added = sinks && vectorConstant(this.#builder, sinks);
      return this.call("lowbit::update_and_attend.out", q, k, v, this.#builder.sequences(), ...sizes, added);
    }
    if (sinks) throw new UnsupportedError(`${sinks.name}: attention sinks need programs that work on sequences`);
    const { keyCache, valueCache, position } = cache;
    return this.call("lowbit::attention.out", q, k, v, keyCache, valueCache, position, scale, window, softcap);
  }

  /** Computes attention over packed sequences, T tokens in all, each token within its own sequence. */
  attendPacked(q: T, k: T, v: T, options: PackedAttentionOptions<T>): T {
    checkOptions(options);
    const { offsets, headDim, scale, before, after } = options;
    return this.call("lowbit::attend_packed.out", q, k, v, offsets, headDim, scale, before ?? null, after ?? null);
  }

  /** Pools each packed sequence of x [1, T, n] to one vector, [sequences, n]; `offsets` are those of `attendPacked`. */
  poolPacked(x: T, offsets: T, pooling: Pooling): T {
    return this.call("lowbit::pool_packed.out", x, offsets, pooling);
  }

  /**
   * Computes a causal depthwise convolution over each sequence of x [1, T, channels]. `weight` is [channels, 1, taps] as in
   * checkpoints, the last tap for the token itself; `bias` is [channels].
   */
  shortConvolution(x: T, weight: Weight, bias: Weight | null, options: ShortConvolutionOptions): T {
    checkOptions(options);
    const { state, silu = false } = options;
    const taps = tapsConstant(this.#builder, weight);
    const added = bias && vectorConstant(this.#builder, bias);
    return this.call("lowbit::update_short_conv.out", x, taps, added, this.#builder.sequences(), state, silu);
  }

  /** Gives the row before each of x [1, T, n] in its sequence; zeros before the first. */
  previousRows(x: T, options: Pick<ShortConvolutionOptions, "state">): T {
    checkOptions(options);
    const { state } = options;
    const n = this.spec(x).shape.at(-1)!;
    const taps = this.literal(`previous_rows_${n}`, new Float32Array(2 * n).fill(1, 0, n));
    const weight = this.call("aten::view_copy.out", taps, [2, n]);
    return this.call("lowbit::update_short_conv.out", x, weight, null, this.#builder.sequences(), state, false);
  }

  /**
   * Advances the recurrent state S [keyDim, valueDim] of each head by the tokens of its sequence, and reads it with the
   * queries: S = exp(logDecay) S; S = S + k u^T; y = scale S^T q, where u is v, or beta (v - S^T k). q, k [1, T, keyHeads *
   * keyDim]; v [1, T, heads * valueDim].
   */
  linearRecurrence(q: T, k: T, v: T, options: LinearRecurrenceOptions<T>): T {
    checkOptions(options);
    const { state, keyHeads, logDecay, beta = null, scale = 1 } = options;
    const sequences = this.#builder.sequences();
    return this.call("lowbit::linear_recurrence.out", q, k, v, logDecay, beta, sequences, state, keyHeads, scale);
  }

  /** Chooses the experts of each token by logits [1, T, experts]. */
  route(logits: T, options: RouterOptions): Routing<T> {
    checkOptions(options);
    const { topK, scores = "softmax", normalize = true, eps = 0, scale = 1, bias = null, factors = null } = options;
    const [added, multiplied] = [bias, factors].map((vector) => vector && vectorConstant(this.#builder, vector));
    const rest = [topK, scores, normalize, eps, scale];
    const routing = this.call("lowbit::route.out", logits, added!, multiplied!, ...rest);
    return { routing, experts: this.spec(logits).shape.at(-1)!, topK };
  }

  /** Sorts tokens of x [1, T, n] by expert, each once for each of its experts, to [1, T * topK, n]. */
  expertRows(x: T, routed: Routing<T>): T {
    checkOptions(routed);
    const { routing, experts, topK } = routed;
    return this.call("lowbit::expert_rows.out", x, routing, experts, topK);
  }

  /** Multiplies tokens sorted by expert, [1, T * topK, k], with the matrices of their experts. */
  expertLinear(x: T, layer: ExpertLinear<T>): T {
    checkOptions(layer);
    if (!Array.isArray(layer.parts)) throw unexpected("parts", "a list of the experts' parts", layer.parts);
    return expertLinear(this.#builder, x, layer);
  }

  /** Sums the experts' results [1, T * topK, n] of each token with their weights, to [1, T, n]. */
  combineExperts(x: T, routed: Routing<T>): T {
    checkOptions(routed);
    const { routing, experts, topK } = routed;
    return this.call("lowbit::combine_experts.out", x, routing, experts, topK);
  }

  /**
   * Writes the experts' results [1, T * topK, n] of each token to the columns of these, a vector [experts * n], of [1, T, size];
   * everywhere else is one less than the token's least result.
   */
  scatterExperts(x: T, routed: Routing<T>, columns: Weight, size: number): T {
    checkOptions(routed);
    checkWhole("size", size, 1);
    const { routing, experts, topK } = routed;
    const places = indicesConstant(this.#builder, columns);
    return this.call("lowbit::scatter_experts.out", x, routing, places, experts, topK, size);
  }

  /** Computes (clamp(up, -limit, limit) + 1) * c * sigmoid(slope * c), where c = min(gate, limit): the gate of gpt-oss. */
  clampedGate(gate: T, up: T, slope: number, limit: number): T {
    return this.call("lowbit::clamped_gate.out", gate, up, slope, limit);
  }

  /** Computes activation(gate) * up, element by element. */
  gated(activation: Activation, gate: T, up: T): T {
    if (!gateActivations.includes(activation))
      throw new InvalidArgumentError(
        `activation: expected one of ${gateActivations.join(", ")} but found ${shown(activation)}`,
      );
    return this.call("lowbit::gate.out", gate, up, activation);
  }

  /** Computes a + alpha * b, element by element. */
  add(a: T, b: T, alpha = 1): T {
    return this.call("aten::add.out", a, b, alpha);
  }

  /** Computes a * b, element by element. */
  multiply(a: T, b: T): T {
    return this.call("aten::mul.out", a, b);
  }

  /** Multiplies each part of x [..., parts * size] by its factor in `factors` [..., parts], or [parts] for all tokens. */
  scaleParts(x: T, factors: T): T {
    return this.call("lowbit::scale_parts.out", x, factors);
  }

  /** Computes 1 / (1 + exp(-x)), element by element. */
  sigmoid(x: T): T {
    return this.call("lowbit::sigmoid.out", x);
  }

  /** Computes factors * ln(1 + exp(x + bias)), for vectors `bias` and `factors` of the size of x's last dimension. */
  softplus(x: T, bias: T, factors: T): T {
    return this.call("lowbit::softplus.out", x, bias, factors);
  }

  /** Multiplies every element by a number. */
  scale(x: T, factor: number): T {
    return this.call("aten::mul.Scalar_out", x, factor);
  }

  /** Computes cap * tanh(x / cap), element by element. */
  softcap(x: T, cap: number): T {
    return this.call("lowbit::softcap.out", x, cap);
  }

  /** Takes columns first .. last - 1 of the last dimension. */
  columns(x: T, first: number, last: number): T {
    return this.call("aten::slice_copy.Tensor_out", x, -1, first, last);
  }

  /**
   * Takes columns first .. last - 1 of each part of `size` columns of x [..., parts * size], to [..., parts * (last -
   * first)].
   */
  partColumns(x: T, size: number, first: number, last: number): T {
    return this.call("lowbit::part_columns.out", x, size, first, last);
  }

  /** Takes rows of x [1, T, dim] by their indices [R], to [1, R, dim]. */
  selectRows(x: T, indices: T): T {
    return this.call("lowbit::select_rows.out", x, indices);
  }

  /** Takes the last row of x [1, T, dim], to [1, dim]. */
  lastRow(x: T): T {
    return this.call("aten::select_copy.int_out", x, 1, -1);
  }
}
