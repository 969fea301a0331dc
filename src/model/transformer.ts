/** The decoder that every architecture here configures: blocks of grouped-query attention and a gated MLP, with RMS norms. */
import { UnsupportedError } from "../errors.ts";
import type { Ops } from "../ops/ops.ts";
import type { Decoder, ForwardInputs, ForwardOptions, TextsSeen, WeightLookup, WeightSlot } from "./decoder.ts";
import type { Encoder } from "./encoder.ts";
import type { RopeConfig } from "./rope.ts";
import { scalableActivations } from "./scalable.ts";
import type { TransformerConfig } from "./transformer-config.ts";

const EMBEDDING = "model.embed_tokens.weight";
const HEAD = "lm_head.weight";
const NORM = "model.norm.weight";

function slots(config: TransformerConfig): WeightSlot[] {
  const { hidden, intermediate, vocabulary, norms, biases, headDim } = config;
  const q = config.heads * headDim;
  const kv = config.kvHeads * headDim;
  const vector = (name: string, size: number): WeightSlot => ({ name, shape: [size], role: "vector", tiedTo: null });
  const linear = (module: string, n: number, k: number, bias: boolean): WeightSlot[] => [
    { name: `${module}.weight`, shape: [n, k], role: "linear", tiedTo: null },
    ...(bias ? [vector(`${module}.bias`, n)] : []),
  ];
  const attention = (module: string): WeightSlot[] => [
    ...(config.fused
      ? linear(`${module}.qkv_proj`, q + 2 * kv, hidden, biases.qkv)
      : [
          ...linear(`${module}.q_proj`, q, hidden, biases.qkv),
          ...linear(`${module}.k_proj`, kv, hidden, biases.qkv),
          ...linear(`${module}.v_proj`, kv, hidden, biases.qkv),
        ]),
    ...(norms.queryKey === null
      ? []
      : [
          vector(`${module}.q_norm.weight`, norms.queryKey === "all" ? q : headDim),
          vector(`${module}.k_norm.weight`, norms.queryKey === "all" ? kv : headDim),
        ]),
    ...linear(`${module}.o_proj`, hidden, q, biases.output),
  ];
  const mlp = (module: string): WeightSlot[] => [
    ...(config.fused
      ? linear(`${module}.gate_up_proj`, 2 * intermediate, hidden, biases.mlp)
      : [
          ...linear(`${module}.gate_proj`, intermediate, hidden, biases.mlp),
          ...linear(`${module}.up_proj`, intermediate, hidden, biases.mlp),
        ]),
    ...linear(`${module}.down_proj`, hidden, intermediate, biases.mlp),
  ];
  const block = (layer: string): WeightSlot[] => {
    const norm = (name: string | null) => (name === null ? [] : [vector(`${layer}.${name}.weight`, hidden)]);
    return [
      ...norm(norms.beforeAttention),
      ...attention(`${layer}.self_attn`),
      ...norm(norms.afterAttention),
      ...norm(norms.beforeMlp),
      ...mlp(`${layer}.mlp`),
      ...norm(norms.afterMlp),
    ];
  };
  return [
    { name: EMBEDDING, shape: [vocabulary, hidden], role: "embedding", tiedTo: null },
    ...config.layers.flatMap((_, i) => block(`model.layers.${i}`)),
    vector(NORM, hidden),
    { name: HEAD, shape: [vocabulary, hidden], role: "linear", tiedTo: config.tied ? EMBEDDING : null },
  ];
}

/** What a pass is told beside its inputs. `texts`: of texts that are read whole. */
interface PassOptions<T> extends Omit<ForwardOptions, "cache"> {
  readonly cache: ForwardOptions["cache"] | { readonly texts: TextsSeen<T> };
}

/** One forward pass over one set of operators: the parts of a block as methods. */
class Pass<T> {
  readonly #ops: Ops<T>;
  readonly #config: TransformerConfig;
  readonly #weights: WeightLookup;
  readonly #inputs: ForwardInputs<T>;
  readonly #options: PassOptions<T>;
  readonly #angles = new Map<string, T>();

  constructor(
    ops: Ops<T>,
    config: TransformerConfig,
    weights: WeightLookup,
    inputs: ForwardInputs<T>,
    options: PassOptions<T>,
  ) {
    this.#ops = ops;
    this.#config = config;
    this.#weights = weights;
    this.#inputs = inputs;
    this.#options = options;
  }

  /** Logits of the wanted rows. */
  run(): T {
    const { scales, softcaps } = this.#config;
    const x = this.#norm(this.#wantedRows(this.#blocks()), "model.norm");
    const scaled = this.#scaled(this.#ops.linear(x, this.#weights(HEAD)), scales.logits);
    return softcaps.logits > 0 ? this.#ops.softcap(scaled, softcaps.logits) : scaled;
  }

  /** Hidden states of all rows behind the last norm. */
  hiddenStates(): T {
    return this.#norm(this.#blocks(), "model.norm");
  }

  /** One block: x += norm(attention(norm(x))); x += norm(mlp(norm(x))), where each norm may be absent. */
  #blocks(): T {
    const { layers, norms, scales } = this.#config;
    let x = this.#scaled(this.#ops.embedding(this.#weights(EMBEDDING), this.#inputs.tokens), scales.embedding);
    for (const i of layers.keys()) {
      const name = `model.layers.${i}`;
      const norm = (value: T, part: string | null) => (part === null ? value : this.#norm(value, `${name}.${part}`));
      const mixed = this.#attention(norm(x, norms.beforeAttention), `${name}.self_attn`, i);
      x = this.#ops.add(x, norm(mixed, norms.afterAttention), scales.residual);
      const thought = this.#mlp(norm(x, norms.beforeMlp), `${name}.mlp`);
      x = this.#ops.add(x, norm(thought, norms.afterMlp), scales.residual);
    }
    return x;
  }

  #wantedRows(x: T): T {
    const { rows } = this.#inputs;
    if (rows !== null) return this.#ops.selectRows(x, rows);
    return this.#options.logits === "last" ? this.#ops.lastRow(x) : x;
  }

  #attention(x: T, module: string, index: number): T {
    const { headDim, kvHeads, biases, norms, scales, softcaps, layers } = this.#config;
    const { window, rope } = layers[index]!;
    const { cache } = this.#options;
    const sizes = { kvHeads, headDim };
    const [q, k, v] = this.#projections(x, module);
    const turn = (value: T, name: string) => {
      const normed = norms.queryKey === null ? value : this.#norm(value, `${module}.${name}`);
      return rope === null ? normed : this.#ops.rope(normed, this.#anglesOf(rope), headDim);
    };
    const [turnedQ, turnedK] = [turn(q, "q_norm"), turn(k, "k_norm")];
    const scale = scales.attention;
    const attend = () => {
      if (typeof cache === "object" && "texts" in cache)
        return this.#ops.attendTexts(turnedQ, turnedK, v, { headDim, scale, ...textWindow(cache.texts, window) });
      const place =
        cache === "sequences"
          ? { layer: index, ...sizes }
          : { ...this.#ops.kvCache(module, { ...cache, ...sizes }), position: this.#inputs.position };
      return this.#ops.attention(turnedQ, turnedK, v, { cache: place, scale, window, softcap: softcaps.attention });
    };
    return this.#linear(attend(), `${module}.o_proj`, biases.output);
  }

  /** Queries, keys and values. */
  #projections(x: T, module: string): readonly [T, T, T] {
    const { headDim, heads, kvHeads, biases, fused } = this.#config;
    const project = (name: string) => this.#linear(x, `${module}.${name}`, biases.qkv);
    if (!fused) return [project("q_proj"), project("k_proj"), project("v_proj")];
    const [q, kv] = [heads * headDim, kvHeads * headDim];
    const all = project("qkv_proj");
    return [
      this.#ops.columns(all, 0, q),
      this.#ops.columns(all, q, q + kv),
      this.#ops.columns(all, q + kv, q + 2 * kv),
    ];
  }

  #mlp(x: T, module: string): T {
    const { intermediate, biases, fused, activation } = this.#config;
    const project = (name: string) => this.#linear(x, `${module}.${name}`, biases.mlp);
    const both = fused ? project("gate_up_proj") : null;
    const gate = both ? this.#ops.columns(both, 0, intermediate) : project("gate_proj");
    const up = both ? this.#ops.columns(both, intermediate, 2 * intermediate) : project("up_proj");
    return this.#linear(this.#ops.gated(activation, gate, up), `${module}.down_proj`, biases.mlp);
  }

  #linear(x: T, module: string, bias: boolean): T {
    return this.#ops.linear(x, this.#weights(`${module}.weight`), bias ? this.#weights(`${module}.bias`) : null);
  }

  #norm(x: T, module: string): T {
    const { eps, norms } = this.#config;
    return this.#ops.rmsNorm(x, this.#weights(`${module}.weight`), eps, norms.offset);
  }

  #scaled(x: T, factor: number): T {
    return factor === 1 ? x : this.#ops.scale(x, factor);
  }

  /** cos and sin of a rope, computed once for all layers. */
  #anglesOf(name: string): T {
    let angles = this.#angles.get(name);
    if (angles === undefined) {
      const { tokens, position } = this.#inputs;
      const { key, inverseFrequencies, scale } = this.#frequencies(name, this.#config.ropes[name]!);
      angles = this.#ops.ropeAngles(tokens, position, this.#ops.literal(key, inverseFrequencies), scale);
      this.#angles.set(name, angles);
    }
    return angles;
  }

  #frequencies(name: string, { inverseFrequencies, scale, long }: RopeConfig) {
    const key = `${name}.inverse_frequencies`;
    if (!long || !this.#options.longContext) return { key, inverseFrequencies, scale };
    return { key: `${name}.long_inverse_frequencies`, inverseFrequencies: long.inverseFrequencies, scale };
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

/**
 * The decoder of an architecture without its head, for texts that are read whole. UnsupportedError for what its attention
 * would need besides.
 */
export function transformerEncoder(file: string, decoder: Decoder, isBidirectional: boolean): Encoder {
  const { transformer: config, slots, longContextFrom, ...network } = decoder;
  if (!config || config.softcaps.attention > 0 || longContextFrom !== null)
    throw new UnsupportedError(`${file}: ${decoder.architecture} is not supported as a model of embeddings`);
  return {
    ...network,
    transformer: null,
    scalable: [],
    slots: slots.filter(({ name }) => name !== HEAD),
    hidden: config.hidden,
    firstPosition: 0,
    tokenTypes: 1,
    hiddenStates: (ops, weights, { tokens, positions, offsets }) =>
      new Pass(
        ops,
        config,
        weights,
        { tokens, position: positions, rows: null },
        { cache: { texts: { offsets, isBidirectional } }, logits: "all", longContext: false },
      ).hiddenStates(),
  };
}

/** The decoder of an architecture named `architecture`. */
export function transformer(architecture: string, config: TransformerConfig): Decoder {
  const long = Object.values(config.ropes).flatMap((rope) => (rope.long ? [rope.long.from] : []));
  return {
    architecture,
    vocabularySize: config.vocabulary,
    contextLength: config.contextLength,
    longContextFrom: long[0] ?? null,
    layers: config.layers.length,
    slots: slots(config),
    // Made when they are asked for: their lists are as long as sizes that only tensors prove.
    get scalable() {
      return scalableActivations(config);
    },
    transformer: config,
    forward: (ops, weights, inputs, options) => new Pass(ops, config, weights, inputs, options).run(),
  };
}
