/** Grouped-query attention (Ainslie et al. 2023), with what families add: windows, norms of queries and keys, soft caps. */
import type { LayerPass, Mixer, PartActivations, Place, TextsSeen } from "./layer.ts";
import { madeByLinear } from "./scalable.ts";
import { linearSlots, vectorSlot, type WeightSlot } from "./weight-slot.ts";

export interface AttentionConfig {
  /** Elements of a token's hidden state. */
  readonly hidden: number;
  /** Query heads. */
  readonly heads: number;
  /** Key and value heads. */
  readonly kvHeads: number;
  /** Elements of a head. */
  readonly headDim: number;
  /** Last positions that a query sees; 0 for all. */
  readonly window: number;
  /** Which of the config's ropes turns queries and keys; null for none. */
  readonly rope: string | null;
  /** Whether queries and keys have a norm of each head, one of all heads together, or none. */
  readonly queryKeyNorm: "head" | "all" | null;
  /** Factor on scores. */
  readonly scale: number;
  /** Bound cap * tanh(x / cap) of scores; 0 for none. */
  readonly softcap: number;
  /** Which projections have a bias. */
  readonly biases: { readonly qkv: boolean; readonly output: boolean };
  /** Whether each head has a score without a value. */
  readonly sinks?: boolean;
  /** Bound of the magnitudes of queries, keys and values; null or absent for none. */
  readonly clip?: number | null;
  /** Whether queries, keys and values are one matrix. */
  readonly fused: boolean;
  /** What checkpoints call some of its modules, where it is not what Llama's do. */
  readonly names?: { readonly [M in keyof typeof llamaNames]?: string };
}

/** Names of modules within an attention. */
const llamaNames = { output: "o_proj", queryNorm: "q_norm", keyNorm: "k_norm", sinks: "sinks" };

/** A layer's attention: softmax(scale q k^T) v over the positions that its cache holds, between four projections. */
export class Attention implements Mixer {
  readonly module = "self_attn";
  readonly cache = "own";
  readonly states = 0;
  readonly config: AttentionConfig;

  constructor(config: AttentionConfig) {
    this.config = config;
  }

  get #names() {
    return { ...llamaNames, ...this.config.names };
  }

  get readsTexts(): boolean {
    return this.config.softcap === 0 && !this.config.sinks;
  }

  slots(module: string): WeightSlot[] {
    const { hidden, heads, kvHeads, headDim, biases, fused, queryKeyNorm } = this.config;
    const names = this.#names;
    const [q, kv] = [heads * headDim, kvHeads * headDim];
    const project = (name: string, n: number) => linearSlots(`${module}.${name}`, n, hidden, biases.qkv);
    const norms =
      queryKeyNorm === null
        ? []
        : [
            vectorSlot(`${module}.${names.queryNorm}.weight`, queryKeyNorm === "all" ? q : headDim),
            vectorSlot(`${module}.${names.keyNorm}.weight`, queryKeyNorm === "all" ? kv : headDim),
          ];
    return [
      ...(fused
        ? project("qkv_proj", q + 2 * kv)
        : [...project("q_proj", q), ...project("k_proj", kv), ...project("v_proj", kv)]),
      ...norms,
      ...(this.config.sinks ? [vectorSlot(`${module}.${names.sinks}`, heads)] : []),
      ...linearSlots(`${module}.${names.output}`, hidden, q, biases.output),
    ];
  }

  scalable(module: string): PartActivations {
    const { heads, kvHeads, headDim, biases, fused } = this.config;
    const projections = fused ? ["qkv_proj"] : ["q_proj", "k_proj", "v_proj"];
    const firstValue = fused ? (heads + kvHeads) * headDim : 0;
    // Queries of several heads read the values of one.
    const rowOf = (c: number) => {
      const head = Math.floor(Math.floor(c / headDim) / (heads / kvHeads));
      return firstValue + head * headDim + (c % headDim);
    };
    const values = { size: heads * headDim, rowOf };
    // Clipping is no product: values must stay what they are.
    const isClipped = (this.config.clip ?? null) !== null;
    const made = madeByLinear(`${module}.${projections.at(-1)}`, biases.qkv, values, `${module}.${this.#names.output}`);
    return { readers: projections.map((name) => `${module}.${name}.weight`), inner: isClipped ? [] : [made] };
  }

  forward<T>(pass: LayerPass<T>, x: T, place: Place): T {
    const { ops, cache } = pass;
    const { module, cacheLayer } = place;
    const { kvHeads, headDim, window, scale, softcap, biases } = this.config;
    const names = this.#names;
    const [q, k, projected] = this.#projections(pass, x, module);
    const [turnedQ, turnedK] = [
      this.#turned(pass, q, `${module}.${names.queryNorm}`),
      this.#turned(pass, k, `${module}.${names.keyNorm}`),
    ];
    const v = this.#clipped(pass, projected);
    const sinks = this.config.sinks ? pass.weight(`${module}.${names.sinks}`) : null;
    const sizes = { kvHeads, headDim };
    const attend = () => {
      if (typeof cache === "object" && "texts" in cache)
        return ops.attendTexts(turnedQ, turnedK, v, { headDim, scale, ...textWindow(cache.texts, window) });
      const kept =
        cache === "sequences"
          ? { layer: cacheLayer, ...sizes }
          : { ...ops.kvCache(module, { ...cache, ...sizes }), position: pass.position };
      return ops.attention(turnedQ, turnedK, v, { cache: kept, scale, window, softcap, sinks });
    };
    return pass.linear(attend(), `${module}.${names.output}`, biases.output);
  }

  /** Queries, keys and values. */
  #projections<T>(pass: LayerPass<T>, x: T, module: string): readonly [T, T, T] {
    const { headDim, heads, kvHeads, biases, fused } = this.config;
    const project = (name: string) => pass.linear(x, `${module}.${name}`, biases.qkv);
    if (!fused) return [project("q_proj"), project("k_proj"), project("v_proj")];
    const [q, kv] = [heads * headDim, kvHeads * headDim];
    const all = project("qkv_proj");
    const columns = (first: number, last: number) => pass.ops.columns(all, first, last);
    return [columns(0, q), columns(q, q + kv), columns(q + kv, q + 2 * kv)];
  }

  #clipped<T>({ ops }: LayerPass<T>, x: T): T {
    const clip = this.config.clip ?? null;
    return clip === null ? x : ops.call("aten::clamp.out", x, -clip, clip);
  }

  /** Queries or keys behind their norm and rope. */
  #turned<T>(pass: LayerPass<T>, x: T, norm: string): T {
    const { rope, queryKeyNorm, headDim } = this.config;
    const normed = this.#clipped(pass, queryKeyNorm === null ? x : pass.norm(x, norm));
    return rope === null ? normed : pass.ops.rope(normed, pass.angles(rope), headDim);
  }
}

/** Rows that a query of a text sees; those of windows in both directions, as transformers counts them, are half on each side. */
function textWindow<T>({ offsets, isBidirectional }: TextsSeen<T>, window: number) {
  if (isBidirectional) {
    const half = window === 0 ? null : Math.floor(window / 2);
    return { offsets, before: half, after: half };
  }
  return { offsets, before: window === 0 ? null : window - 1, after: 0 };
}
