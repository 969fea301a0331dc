/** The decoder that every architecture here configures: blocks of grouped-query attention and a gated MLP, with RMS norms. */
import type { Ops } from "../ops/ops.ts";
import type { Decoder, ForwardInputs, ForwardOptions, WeightLookup, WeightSlot } from "./decoder.ts";
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

/** One forward pass over one set of operators: the parts of a block as methods. */
class Pass<T> {
  readonly #ops: Ops<T>;
  readonly #config: TransformerConfig;
  readonly #weights: WeightLookup;
  readonly #inputs: ForwardInputs<T>;
  readonly #options: ForwardOptions;
  readonly #angles = new Map<string, T>();

  constructor(
    ops: Ops<T>,
    config: TransformerConfig,
    weights: WeightLookup,
    inputs: ForwardInputs<T>,
    options: ForwardOptions,
  ) {
    this.#ops = ops;
    this.#config = config;
    this.#weights = weights;
    this.#inputs = inputs;
    this.#options = options;
  }

  /** Logits. One block: x += norm(attention(norm(x))); x += norm(mlp(norm(x))), where each norm may be absent. */
  run(): T {
    const { layers, norms, scales, softcaps } = this.#config;
    let x = this.#scaled(this.#ops.embedding(this.#weights(EMBEDDING), this.#inputs.tokens), scales.embedding);
    for (const i of layers.keys()) {
      const name = `model.layers.${i}`;
      const norm = (value: T, part: string | null) => (part === null ? value : this.#norm(value, `${name}.${part}`));
      const mixed = this.#attention(norm(x, norms.beforeAttention), `${name}.self_attn`, i);
      x = this.#ops.add(x, norm(mixed, norms.afterAttention), scales.residual);
      const thought = this.#mlp(norm(x, norms.beforeMlp), `${name}.mlp`);
      x = this.#ops.add(x, norm(thought, norms.afterMlp), scales.residual);
    }
    x = this.#wantedRows(x);
    const logits = this.#ops.linear(this.#norm(x, "model.norm"), this.#weights(HEAD));
    const scaled = this.#scaled(logits, scales.logits);
    return softcaps.logits > 0 ? this.#ops.softcap(scaled, softcaps.logits) : scaled;
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
    const mixed = this.#ops.attention(turn(q, "q_norm"), turn(k, "k_norm"), v, {
      cache:
        cache === "sequences"
          ? { layer: index, ...sizes }
          : { ...this.#ops.kvCache(module, { ...cache, ...sizes }), position: this.#inputs.position },
      scale: scales.attention,
      window,
      softcap: softcaps.attention,
    });
    return this.#linear(mixed, `${module}.o_proj`, biases.output);
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
