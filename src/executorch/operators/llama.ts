/** ExecuTorch's custom operators for language models: updates of a contiguous KV cache, and attention over it. */
import type { AttentionArgs } from "../../kernels/families/attention/fields.ts";
import { attention } from "../../kernels/families/index.ts";
import { attentionMultiplications } from "../../ops/attention.ts";
import type { Arguments, TensorSpec } from "../../ops/call-arguments.ts";
import { defineOperator, type Operator, overload } from "../../ops/operator.ts";
import { bytesOf, isSameShape, type Tensor } from "../../tensor.ts";
import { type SdpaArgs, sdpaReference } from "../kernels/attention.ts";
import { type RowsCopyArgs, rowsCopyReference } from "../kernels/movement.ts";

/** The shape [1, length, heads, D] that all tensors of these operators have. */
function fourSizes(args: Arguments<TensorSpec>, name: string): [number, number, number, number] {
  const { shape } = args.tensor(name);
  if (shape.length !== 4 || shape[0] !== 1) args.fail(name, `expected shape [1, T, heads, D] but found [${shape}]`);
  return shape as [number, number, number, number];
}

/** Position of the first new token. ShapeError when the tokens do not fit the cache. */
function startOf(args: Arguments<TensorSpec>, tokens: number, capacity: number): number {
  const start = args.integer("start_pos", 0);
  if (start + tokens > capacity)
    args.fail("start_pos", `expected at most ${capacity - tokens} for ${tokens} tokens but found ${start}`);
  return start;
}

/** cache[:, start_pos : start_pos + T] = value; the out tensor is not used. */
const updateCache = defineOperator<RowsCopyArgs>({
  schema: "llama::update_cache.out(Tensor value, Tensor(a!) cache, int start_pos, *, Tensor(b!) out) -> Tensor(b!)",
  kernels: [rowsCopyReference],
  shape(args) {
    const [, tokens, ...value] = fourSizes(args, "value");
    const [, capacity, ...cache] = fourSizes(args, "cache");
    args.tensor("cache", args.tensor("value").dtype);
    if (!isSameShape(value, cache)) args.fail("value", `expected rows of [${cache}] but found [${value}]`);
    startOf(args, tokens, capacity);
    return { dtype: args.tensor("value").dtype, shape: [1] };
  },
  prepare(args) {
    const source = bytesOf(args.tensor("value").data);
    const rowBytes = source.length / args.tensor("value").shape[1]!;
    return { source, target: bytesOf(args.tensor("cache").data).subarray(args.number("start_pos") * rowBytes) };
  },
});

function scaleOf(args: Arguments<TensorSpec>, headDim: number): number {
  return args.optionalNumber("scale") ?? 1 / Math.sqrt(headDim);
}

/** Shape of attention of `query` over caches. ShapeError for anything that does not fit. */
function attentionShape(args: Arguments<TensorSpec>, [key, value]: readonly [string, string]): TensorSpec {
  const query = fourSizes(args, "query");
  const [, tokens, heads, dim] = query;
  const [, capacity, kvHeads, keyDim] = fourSizes(args, key);
  if (heads % kvHeads !== 0 || dim !== keyDim)
    args.fail("query", `expected heads of [${[kvHeads, keyDim]}] or multiples but found [${[heads, dim]}]`);
  if (!isSameShape(args.tensor(value).shape, args.tensor(key).shape))
    args.fail(value, `expected the shape of ${key} [${args.tensor(key).shape}]`);
  const start = startOf(args, tokens, capacity);
  const mask = args.optionalTensor("attn_mask");
  if (mask && !isSameShape(mask.shape, [tokens, start + tokens]))
    args.fail("attn_mask", `expected shape [${[tokens, start + tokens]}] but found [${mask.shape}]`);
  return { dtype: "f32", shape: query };
}

interface CausalTensors {
  readonly keyCache: Tensor;
  readonly valueCache: Tensor;
  /** New keys, and `v` new values; both null where the caches hold them already. */
  readonly k: Float32Array | null;
  readonly v: Float32Array | null;
}

function causalArgs(args: Arguments<Tensor>, { keyCache, valueCache, k, v }: CausalTensors): AttentionArgs {
  const q = args.tensor("query");
  const [, tokens, heads, headDim] = q.shape as [number, number, number, number];
  return {
    tokens,
    heads,
    kvHeads: keyCache.shape[2]!,
    headDim,
    capacity: keyCache.shape[1]!,
    q: q.data as Float32Array,
    k,
    v,
    keyCache: keyCache.data as Float32Array,
    valueCache: valueCache.data as Float32Array,
    position: BigInt64Array.of(BigInt(args.number("start_pos"))),
    scale: scaleOf(args, headDim),
    window: 0,
    softcap: 0,
    y: args.tensor("out").data as Float32Array,
  };
}

const tokensQuery = (args: Arguments<Tensor>) => ({ layout: null, bits: null, m: args.tensor("query").shape[1]! });

function sdpaMultiplications(args: Arguments<TensorSpec>, keys: string): number {
  const query = args.tensor("query");
  return attentionMultiplications(
    query,
    Math.min(args.number("start_pos") + query.shape[1]!, args.tensor(keys).shape[1]!),
  );
}

const sdpaSchema =
  "llama::custom_sdpa.out(Tensor query, Tensor key, Tensor value, int start_pos, Tensor? attn_mask=None, float drpout_p=0.0, bool is_causal=False, float? scale=None, *, Tensor(a!) out) -> Tensor(a!)";

/** Causal attention over float caches that hold the new keys and values already. */
const causalSdpa = defineOperator<AttentionArgs>({
  schema: sdpaSchema,
  kernels: attention,
  shape: (args) => attentionShape(args, ["key", "value"]),
  multiplications: (args) => sdpaMultiplications(args, "key"),
  query: tokensQuery,
  prepare: (args) =>
    causalArgs(args, { keyCache: args.tensor("key"), valueCache: args.tensor("value"), k: null, v: null }),
});

const anySdpa = defineOperator<SdpaArgs>({
  schema: sdpaSchema,
  kernels: [sdpaReference],
  shape: (args) => attentionShape(args, ["key", "value"]),
  multiplications: (args) => sdpaMultiplications(args, "key"),
  prepare: (args) => sdpaArgs(args, null),
});

function sdpaArgs(args: Arguments<Tensor>, quantized: SdpaArgs["quantized"]): SdpaArgs {
  const q = args.tensor("query");
  return {
    q,
    k: args.tensor("key"),
    v: args.tensor("value"),
    quantized,
    start: args.number("start_pos"),
    causal: args.boolean("is_causal"),
    mask: args.optionalTensor("attn_mask"),
    scale: scaleOf(args, q.shape[3]!),
    out: args.tensor("out"),
  };
}

const customSdpa = overload(anySdpa, {
  operator: causalSdpa,
  fits: (args) =>
    args.boolean("is_causal") &&
    args.optionalTensor("attn_mask") === null &&
    ["query", "key", "value"].every((name) => args.tensor(name).dtype === "f32"),
});

/** Writes new keys and values to the caches first; seq_len is their number. */
const sdpaWithCache = defineOperator<AttentionArgs>({
  schema:
    "llama::sdpa_with_kv_cache.out(Tensor query, Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, int start_pos, int seq_len, Tensor? attn_mask=None, float drpout_p=0.0, bool is_causal=False, float? scale=None, *, Tensor(c!) out) -> Tensor(c!)",
  kernels: attention,
  shape(args) {
    if (!args.boolean("is_causal") || args.optionalTensor("attn_mask"))
      args.fail("is_causal", "only causal attention without a mask is supported");
    for (const name of ["query", "key", "value", "key_cache", "value_cache"]) args.tensor(name, "f32");
    const tokens = fourSizes(args, "query")[1];
    const rows = [1, tokens, ...fourSizes(args, "key_cache").slice(2)];
    for (const name of ["key", "value"])
      if (!isSameShape(args.tensor(name).shape, rows))
        args.fail(name, `expected shape [${rows}] but found [${args.tensor(name).shape}]`);
    return attentionShape(args, ["key_cache", "value_cache"]);
  },
  multiplications: (args) => sdpaMultiplications(args, "key_cache"),
  query: tokensQuery,
  prepare: (args) =>
    causalArgs(args, {
      keyCache: args.tensor("key_cache"),
      valueCache: args.tensor("value_cache"),
      k: args.tensor("key").data as Float32Array,
      v: args.tensor("value").data as Float32Array,
    }),
});

/** Attention over int8 keys and values, each row with a scale and a zero point. */
const quantizedSdpa = defineOperator<SdpaArgs>({
  schema:
    "llama::custom_quantized_sdpa.out(Tensor query, Tensor key, Tensor value, int start_pos, Tensor? attn_mask=None, float drpout_p=0.0, bool is_causal=False, float? scale=None, Tensor? q_zero_points=None, Tensor? q_scales=None, Tensor? k_zero_points=None, Tensor? k_scales=None, Tensor? v_zero_points=None, Tensor? v_scales=None, bool is_seq_at_dim_2=False, *, Tensor(a!) out) -> Tensor(a!)",
  kernels: [sdpaReference],
  shape(args) {
    if (args.boolean("is_seq_at_dim_2")) args.fail("is_seq_at_dim_2", "only False is supported");
    for (const [name, short] of quantizedInputs) {
      const [, length, heads] = fourSizes(args, name);
      for (const part of [`${short}_zero_points`, `${short}_scales`])
        if (!isSameShape(args.tensor(part).shape, [1, length, heads, 1]))
          args.fail(part, `expected shape [${[1, length, heads, 1]}] but found [${args.tensor(part).shape}]`);
    }
    return attentionShape(args, ["key", "value"]);
  },
  multiplications: (args) => sdpaMultiplications(args, "key"),
  prepare(args) {
    const [q, k, v] = quantizedInputs.map(([, short]) => ({
      scales: args.tensor(`${short}_scales`),
      zeros: args.tensor(`${short}_zero_points`),
    }));
    return sdpaArgs(args, { q: q!, k: k!, v: v! });
  },
});

const quantizedInputs = [
  ["query", "q"],
  ["key", "k"],
  ["value", "v"],
] as const;

export const llamaOperators: readonly Operator[] = [updateCache, customSdpa, sdpaWithCache, quantizedSdpa];
