/** Grouped-query attention (Ainslie et al. 2023), with what families add: windows, norms of queries and keys, soft caps. */
import { UnsupportedError } from "../errors.ts";
import type { LayerPass, PackedSequences, PartActivations, Place, StoringMixer } from "./layer.ts";
import { madeByLinear, madeByNorm } from "./scalable.ts";
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
  /** Sliding window: positions that a query sees, its own included; 0 for all. */
  readonly window: number;
  /** Name of the RoPE that rotates queries and keys; null for none. */
  readonly rope: string | null;
  /** Whether queries and keys have a norm of each head, one over all heads together, or none. */
  readonly queryKeyNorm: "head" | "all" | null;
  /** Factor of the scores, usually 1 / sqrt(headDim). */
  readonly scale: number;
  /** Bound of the scores, cap * tanh(x / cap); 0 for none. */
  readonly softcap: number;
  /** Which projections have a bias. */
  readonly biases: { readonly qkv: boolean; readonly output: boolean };
  /** Whether each head has an attention sink: a further score, without a value. */
  readonly sinks?: boolean;
  /** Largest magnitude to which queries, keys and values are clamped; null or absent for none. */
  readonly clip?: number | null;
  /** Whether the checkpoint has queries, keys and values in one matrix. */
  readonly fused: boolean;
  /** Whether norms of queries and keys come after RoPE, not before. */
  readonly isNormedLast?: boolean;
  /** Name of a norm before the output projection; absent for none. */
  readonly outputNorm?: string;
  /** Rows of a head that the checkpoint stores in pairs for RoPE of neighbours; absent where halves are rotated. */
  readonly pairedRows?: number;
  /** Whether values are the keys before their norm and RoPE, so that there is no value projection. */
  readonly valuesAreKeys?: boolean;
  /** Whether values have a norm of each head, without weights. */
  readonly isValueNormed?: boolean;
  /** Index of the layer whose keys and values are read; absent for a layer with its own. */
  readonly sharedWith?: number;
  /** Factor of queries that grows with their positions; absent for none. */
  readonly queryScaling?: QueryScaling;
  /**
   * Gate of the results: sigmoids of as many values, which `q_proj` gives after each head's query ("values"), or of one
   * value for each head, from a linear layer of its own ("heads"). Default: none.
   */
  readonly gate?: "values" | "heads";
  /** Names of modules, where they differ from Llama's. */
  readonly names?: { readonly [M in keyof typeof llamaNames]?: string };
}

/** Queries are multiplied by 1 + beta ln(1 + floor(position / length)) after RoPE, as in Llama 4. */
interface QueryScaling {
  readonly beta: number;
  readonly length: number;
}

/** Llama's names of modules within an attention. */
const llamaNames = { output: "o_proj", queryNorm: "q_norm", keyNorm: "k_norm", gate: "gate_proj", sinks: "sinks" };

interface Projections<T> {
  readonly q: T;
  /** Keys; null, as are values, where those of another layer are read. */
  readonly k: T | null;
  readonly v: T | null;
  /** Applies the gate to the results. */
  gated(y: T): T;
}

/** A layer's attention: softmax(scale q k^T) v over the KV cache, with projections of queries, keys, values and output. */
export class Attention implements StoringMixer {
  readonly module = "self_attn";
  readonly states = 0;
  readonly config: AttentionConfig;

  constructor(config: AttentionConfig) {
    this.config = config;
  }

  get #names() {
    return { ...llamaNames, ...this.config.names };
  }

  get cache(): "own" | number {
    return this.config.sharedWith ?? "own";
  }

  get readsPackedSequences(): boolean {
    return this.config.softcap === 0 && this.cache === "own" && !this.config.sinks;
  }

  /** Linear layers of keys and values; none where those of another layer are read. */
  get #keyValueProjections(): readonly string[] {
    const { sharedWith, valuesAreKeys = false } = this.config;
    if (sharedWith !== undefined) return [];
    return valuesAreKeys ? ["k_proj"] : ["k_proj", "v_proj"];
  }

  unused(module: string): readonly string[] {
    if (this.config.sharedWith === undefined) return [];
    return ["k_proj", "v_proj", "k_norm", "v_norm"].map((name) => `${module}.${name}`);
  }

  slots(module: string): WeightSlot[] {
    const { hidden, heads, kvHeads, headDim, biases, fused, queryKeyNorm, outputNorm, gate } = this.config;
    const names = this.#names;
    const [q, kv] = [heads * headDim, kvHeads * headDim];
    const project = (name: string, n: number) => linearSlots(`${module}.${name}`, n, hidden, biases.qkv);
    const turned = (name: string, n: number) => this.#paired(project(name, n));
    const norm = (name: string, all: number) =>
      queryKeyNorm === null ? [] : [vectorSlot(`${module}.${name}.weight`, queryKeyNorm === "all" ? all : headDim)];
    const keyValues = this.#keyValueProjections;
    return [
      ...(fused
        ? project("qkv_proj", q + 2 * kv)
        : [
            ...turned("q_proj", gate === "values" ? 2 * q : q),
            ...keyValues.flatMap((name) => (name === "k_proj" ? turned(name, kv) : project(name, kv))),
          ]),
      ...(gate === "heads" ? linearSlots(`${module}.${names.gate}`, heads, hidden) : []),
      ...norm(names.queryNorm, q),
      ...(keyValues.length > 0 ? norm(names.keyNorm, kv) : []),
      ...(this.config.sinks ? [vectorSlot(`${module}.${names.sinks}`, heads)] : []),
      ...(outputNorm === undefined ? [] : [vectorSlot(`${module}.${outputNorm}.weight`, q)]),
      ...linearSlots(`${module}.${names.output}`, hidden, q, biases.output),
    ];
  }

  #paired(slots: readonly WeightSlot[]): WeightSlot[] {
    const { pairedRows: rotated, headDim } = this.config;
    return slots.map((slot) => (rotated === undefined ? slot : { ...slot, pairs: { headDim, rotated } }));
  }

  scalable(module: string, normOffset: number): PartActivations {
    const {
      heads,
      kvHeads,
      headDim,
      biases,
      fused,
      outputNorm,
      gate,
      isValueNormed = false,
      clip = null,
    } = this.config;
    const output = `${module}.${this.#names.output}`;
    const projections = fused ? ["qkv_proj"] : ["q_proj", ...this.#keyValueProjections];
    const readers = gate === "heads" ? [...projections, this.#names.gate] : projections;
    const firstValue = fused ? (heads + kvHeads) * headDim : 0;
    // Query heads of a group share one head of values.
    const rowOf = (c: number) => {
      const head = Math.floor(Math.floor(c / headDim) / (heads / kvHeads));
      return firstValue + head * headDim + (c % headDim);
    };
    const values = { size: heads * headDim, rowOf };
    const source = `${module}.${projections.at(-1)}`;
    const named = readers.map((name) => `${module}.${name}.weight`);
    // Values cannot be scaled where a norm undoes factors, a clamp has fixed bounds, or other layers read them, too.
    if (isValueNormed || clip !== null || projections.at(-1) === "q_proj") return { readers: named, inner: [] };
    return {
      readers: named,
      inner: [
        outputNorm === undefined
          ? madeByLinear(source, biases.qkv, values, output)
          : madeByNorm(`${module}.${outputNorm}`, heads * headDim, normOffset, [`${output}.weight`]),
      ],
    };
  }

  forward<T>(pass: LayerPass<T>, x: T, place: Place): T {
    const { ops, cache } = pass;
    const { module, cacheLayer } = place;
    const { kvHeads, headDim, window, scale, softcap, biases, outputNorm, isValueNormed = false } = this.config;
    const names = this.#names;
    const { q, k, v, gated } = this.#projections(pass, x, module);
    const sinks = this.config.sinks ? pass.weight(`${module}.${names.sinks}`) : null;
    const rotatedQ = this.#scaledByPosition(pass, this.#rotated(pass, q, `${module}.${names.queryNorm}`));
    const rotatedK = k === null ? null : this.#rotated(pass, k, `${module}.${names.keyNorm}`);
    const normedV = v === null || !isValueNormed ? v : ops.plainRmsNorm(v, headDim, pass.eps);
    const boundV = normedV === null ? null : this.#clipped(pass, normedV);
    const sizes = { kvHeads, headDim };
    const attend = () => {
      if (typeof cache === "object" && "packed" in cache)
        return ops.attendPacked(rotatedQ, rotatedK!, boundV!, { headDim, scale, ...windowOf(cache.packed, window) });
      const kept =
        cache === "sequences"
          ? { layer: cacheLayer, ...sizes }
          : { ...ops.kvCache(module, { ...cache, ...sizes }), position: pass.position };
      return ops.attention(rotatedQ, rotatedK, boundV, { cache: kept, scale, window, softcap, sinks });
    };
    const mixed = gated(attend());
    const normed = outputNorm === undefined ? mixed : pass.norm(mixed, `${module}.${outputNorm}`);
    return pass.linear(normed, `${module}.${names.output}`, biases.output);
  }

  store<T>(pass: LayerPass<T>, x: T, { module, cacheLayer }: Place): void {
    const { kvHeads, headDim, scale, biases } = this.config;
    const [k, v = k] = this.#keyValueProjections.map((name) => pass.linear(x, `${module}.${name}`, biases.qkv));
    const keys = this.#rotated(pass, k!, `${module}.${this.#names.keyNorm}`);
    const cache = { layer: cacheLayer, kvHeads, headDim };
    // Attention with window 1 stores keys and values with the least reading: each token sees only itself.
    pass.ops.attention(keys, keys, this.#clipped(pass, v!), { cache, scale, window: 1 });
  }

  /** Projects x to queries, keys and values; gives the function that gates the results. */
  #projections<T>(pass: LayerPass<T>, x: T, module: string): Projections<T> {
    const { ops } = pass;
    const { headDim, heads, kvHeads, biases, fused, gate } = this.config;
    const project = (name: string) => pass.linear(x, `${module}.${name}`, biases.qkv);
    if (fused) {
      const [q, kv] = [heads * headDim, kvHeads * headDim];
      const all = project("qkv_proj");
      const columns = (first: number, last: number) => ops.columns(all, first, last);
      return { q: columns(0, q), k: columns(q, q + kv), v: columns(q + kv, q + 2 * kv), gated: (y) => y };
    }
    const q = project("q_proj");
    const [k = null, v = k] = this.#keyValueProjections.map(project);
    if (gate === undefined) return { q, k, v, gated: (y) => y };
    if (gate === "heads") {
      const factors = ops.sigmoid(pass.linear(x, `${module}.${this.#names.gate}`));
      return { q, k, v, gated: (y) => ops.scaleParts(y, factors) };
    }
    const half = (first: number) => ops.partColumns(q, 2 * headDim, first, first + headDim);
    return { q: half(0), k, v, gated: (y) => ops.gated("sigmoid", half(headDim), y) };
  }

  #clipped<T>({ ops }: LayerPass<T>, x: T): T {
    const { clip = null } = this.config;
    return clip === null ? x : ops.call("aten::clamp.out", x, -clip, clip);
  }

  /** Applies norm and RoPE to queries or keys. */
  #rotated<T>(pass: LayerPass<T>, x: T, norm: string): T {
    const { rope, queryKeyNorm, headDim, isNormedLast = false } = this.config;
    const normed = (value: T) => this.#clipped(pass, queryKeyNorm === null ? value : pass.norm(value, norm));
    const rotated = (value: T) => (rope === null ? value : pass.ops.rope(value, pass.angles(rope), headDim));
    return isNormedLast ? normed(rotated(x)) : rotated(normed(x));
  }

  /** Multiplies queries by the factor that grows with their positions. */
  #scaledByPosition<T>(pass: LayerPass<T>, q: T): T {
    const { queryScaling } = this.config;
    if (!queryScaling) return q;
    if (pass.cache !== "sequences" && !("packed" in pass.cache))
      throw new UnsupportedError("queries that grow with positions are not supported in programs for ExecuTorch");
    const { beta, length } = queryScaling;
    const factors = pass.once("query_scaling", () => pass.ops.positionScaling(pass.position, beta, length));
    return pass.ops.scaleParts(q, factors);
  }
}

/**
 * Tokens before and after a query in a packed sequence; a bidirectional window, as transformers counts it, is half on each
 * side.
 */
function windowOf<T>({ offsets, isBidirectional }: PackedSequences<T>, window: number) {
  if (isBidirectional) {
    const half = window === 0 ? null : Math.floor(window / 2);
    return { offsets, before: half, after: half };
  }
  return { offsets, before: window === 0 ? null : window - 1, after: 0 };
}
