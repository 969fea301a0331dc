/** The decoder that every architecture here configures: an embedding, layers of a mixer and an MLP each, a norm, a head. */
import { UnsupportedError } from "../errors.ts";
import type { Ops } from "../ops/ops.ts";
import { firstRows, type Weight } from "../ops/weight.ts";
import type { Decoder, DraftHead, ForwardInputs, ForwardOptions } from "./decoder.ts";
import type { Drafter, DraftPass } from "./drafter.ts";
import type { Encoder } from "./encoder.ts";
import {
  type LayerConfig,
  type LayerPlaces,
  layerPlaces,
  type PackedSequences,
  type PartActivations,
} from "./layer.ts";
import type { RopeConfig } from "./rope.ts";
import { madeByNorm, type ScalableActivation } from "./scalable.ts";
import { allLayers, type TransformerConfig } from "./transformer-config.ts";
import { vectorSlot, type WeightLookup, type WeightSlot } from "./weight-slot.ts";

const EMBEDDING = "model.embed_tokens.weight";
const HEAD = "lm_head.weight";

function slots(config: TransformerConfig): WeightSlot[] {
  const { hidden, vocabulary, layers, lastNorm, tied, table, drafter } = config;
  const all = allLayers(config);
  const places = layerPlaces(all);
  const layer = ({ mixer, mlp, norms, adapter, factor }: LayerConfig, i: number): WeightSlot[] => {
    const { module, ...at } = places[i]!;
    const size = i < layers.length ? hidden : drafter!.hidden;
    const norm = (name: string | null) => (name === null ? [] : [vectorSlot(`${module}.${name}.weight`, size)]);
    return [
      ...norm(norms.beforeMixer),
      ...mixer.slots(at.mixer.module),
      ...norm(norms.afterMixer),
      ...norm(norms.beforeMlp),
      ...mlp.slots(at.mlp.module),
      ...norm(norms.afterMlp),
      ...(adapter?.slots(at.adapter.module) ?? []),
      ...(factor === undefined ? [] : [vectorSlot(`${module}.${factor}`, 1)]),
    ];
  };
  return [
    { name: EMBEDDING, shape: [vocabulary, hidden], role: "embedding", tiedTo: null },
    ...(table?.slots() ?? []),
    ...all.flatMap(layer),
    ...(drafter?.slots() ?? []),
    vectorSlot(`${lastNorm}.weight`, hidden),
    { name: HEAD, shape: [vocabulary, hidden], role: "linear", tiedTo: tied ? EMBEDDING : null },
  ];
}

/** Activations whose channels can be scaled, in the order of computation. */
function scalable({ layers, hidden, normOffset, lastNorm, drafter }: TransformerConfig): ScalableActivation[] {
  const places = layerPlaces(layers);
  const inLayers = layers.flatMap(({ mixer, mlp, norms }, i) => {
    const part = (norm: string | null, { readers, inner }: PartActivations) =>
      norm === null || readers.length === 0
        ? inner
        : [madeByNorm(`model.layers.${i}.${norm}`, hidden, normOffset, readers), ...inner];
    const { mixer: mixerPlace, mlp: mlpPlace } = places[i]!;
    return [
      ...part(norms.beforeMixer, mixer.scalable(mixerPlace.module, normOffset)),
      ...part(norms.beforeMlp, mlp.scalable(mlpPlace.module, normOffset)),
    ];
  });
  // A drafter reads what the head does.
  return drafter ? inLayers : [...inLayers, madeByNorm(lastNorm, hidden, normOffset, [HEAD])];
}

/** Modules of a checkpoint that no layer reads. */
function unusedModules({ layers }: TransformerConfig): string[] {
  const places = layerPlaces(layers);
  return layers.flatMap(({ mixer, mlp }, i) => [
    ...(mixer.unused?.(places[i]!.mixer.module) ?? []),
    ...(mlp.unused?.(places[i]!.mlp.module) ?? []),
  ]);
}

/** Options of a pass, beside its inputs. `packed`: packed sequences, without a KV cache. */
interface PassOptions<T> extends Omit<ForwardOptions, "cache"> {
  readonly cache: ForwardOptions["cache"] | { readonly packed: PackedSequences<T> };
}

/** One forward pass, on one set of operators. */
class Pass<T> implements DraftPass<T> {
  readonly ops: Ops<T>;
  readonly eps: number;
  readonly tokens: T;
  readonly embedded: T;
  readonly position: T;
  readonly cache: PassOptions<T>["cache"];
  readonly #config: TransformerConfig;
  readonly #places: readonly LayerPlaces[];
  readonly #weights: WeightLookup;
  readonly #inputs: ForwardInputs<T>;
  readonly #options: PassOptions<T>;
  readonly #made = new Map<string, T>();

  constructor(
    ops: Ops<T>,
    config: TransformerConfig,
    weights: WeightLookup,
    inputs: ForwardInputs<T>,
    options: PassOptions<T>,
  ) {
    this.ops = ops;
    this.eps = config.eps;
    const { ids, as } = config.placeholders ?? { ids: [], as: 0 };
    this.tokens = ids.reduce((tokens, id) => ops.replaced(tokens, id, as), inputs.tokens);
    this.position = inputs.position;
    this.cache = options.cache;
    this.#config = config;
    this.#places = layerPlaces(allLayers(config));
    this.#weights = weights;
    this.#inputs = inputs;
    this.#options = options;
    this.embedded = this.#scaled(ops.embedding(weights(EMBEDDING), this.tokens), config.scales.embedding);
  }

  /** Logits of the wanted tokens. */
  run(): T {
    return this.logits(this.norm(this.#wantedRows(this.#layers()), this.#config.lastNorm));
  }

  /** Logits and hidden states of the wanted tokens; stores what the drafter reads of all tokens. */
  runForDrafts(drafter: Drafter): readonly [T, T] {
    const hidden = this.hiddenStates();
    drafter.store?.(this, hidden, this.#places.slice(this.#config.layers.length));
    const wanted = this.#wantedRows(hidden);
    return [this.logits(wanted), wanted];
  }

  /** Logits of all tokens, and the drafter's results for each of them. */
  runAll(drafter: Drafter): readonly [T, ...T[]] {
    const hidden = this.hiddenStates();
    // The state after those of all layers.
    const state = this.#places.at(-1)!.mixer.firstState + drafter.layers.at(-1)!.mixer.states;
    const drafted = drafter.visit(this, this.ops.previousRows(hidden, { state }));
    return [this.logits(hidden), ...drafted];
  }

  draftLayer(x: T, index: number): T {
    const { layers, drafter } = this.#config;
    return this.#layer(x, drafter!.layers[index]!, this.#places[layers.length + index]!);
  }

  logits(x: T): T {
    return this.#finished(this.ops.linear(x, this.weight(HEAD)));
  }

  draftLogits(x: T, name = HEAD): T {
    const { vocabulary, drafter } = this.#config;
    const { vocabularySize } = drafter!;
    const head = this.weight(name);
    const first = vocabularySize === vocabulary ? head : firstRows(head, vocabularySize);
    return this.#finished(
      first ? this.ops.linear(x, first) : this.ops.columns(this.ops.linear(x, head), 0, vocabularySize),
    );
  }

  #finished(logits: T): T {
    const { scales, logitSoftcap } = this.#config;
    const scaled = this.#scaled(logits, scales.logits);
    return logitSoftcap > 0 ? this.ops.softcap(scaled, logitSoftcap) : scaled;
  }

  /** Hidden states of all tokens after the last norm. */
  hiddenStates(): T {
    return this.norm(this.#layers(), this.#config.lastNorm);
  }

  weight(name: string): Weight {
    return this.#weights(name);
  }

  linear(x: T, module: string, hasBias = false): T {
    return this.ops.linear(x, this.weight(`${module}.weight`), hasBias ? this.weight(`${module}.bias`) : null);
  }

  norm(x: T, module: string): T {
    return this.ops.rmsNorm(x, this.weight(`${module}.weight`), this.eps, this.#config.normOffset);
  }

  angles(rope: string): T {
    return this.once(`${rope}.angles`, () => {
      const { tokens, position } = this.#inputs;
      const { key, inverseFrequencies, scale } = this.#frequencies(rope, this.#config.ropes[rope]!);
      return this.ops.ropeAngles(tokens, position, this.ops.literal(key, inverseFrequencies), scale);
    });
  }

  once(key: string, make: () => T): T {
    const made = this.#made.get(key) ?? make();
    this.#made.set(key, made);
    return made;
  }

  #layers(): T {
    return this.#config.layers.reduce((x, layer, i) => this.#layer(x, layer, this.#places[i]!), this.embedded);
  }

  #layer(input: T, { mixer, mlp, norms, adapter, factor }: LayerConfig, { module, ...places }: LayerPlaces): T {
    const { residual } = this.#config.scales;
    const norm = (value: T, name: string | null) => (name === null ? value : this.norm(value, `${module}.${name}`));
    const mixed = mixer.forward(this, norm(input, norms.beforeMixer), places.mixer);
    let x = this.ops.add(input, norm(mixed, norms.afterMixer), residual);
    const thought = mlp.forward(this, norm(x, norms.beforeMlp), places.mlp);
    x = this.ops.add(x, norm(thought, norms.afterMlp), residual);
    if (adapter) x = this.ops.add(x, adapter.forward(this, x, places.adapter), residual);
    return factor === undefined ? x : this.#multiplied(x, `${module}.${factor}`);
  }

  /**
   * x times the number in a slot [1]: 0.5 in every row, normed to 1 and multiplied by the slot, gives that factor for each
   * row.
   */
  #multiplied(x: T, name: string): T {
    const { ops } = this;
    const halves = this.once("halves", () => ops.sigmoid(ops.scale(ops.columns(this.embedded, 0, 1), 0)));
    return ops.scaleParts(x, ops.rmsNorm(halves, this.weight(name), 0));
  }

  #wantedRows(x: T): T {
    const { rows } = this.#inputs;
    if (rows !== null) return this.ops.selectRows(x, rows);
    return this.#options.logits === "last" ? this.ops.lastRow(x) : x;
  }

  #scaled(x: T, factor: number): T {
    return factor === 1 ? x : this.ops.scale(x, factor);
  }

  #frequencies(name: string, { inverseFrequencies, scale, long }: RopeConfig) {
    const key = `${name}.inverse_frequencies`;
    if (!long || !this.#options.longContext) return { key, inverseFrequencies, scale };
    return { key: `${name}.long_inverse_frequencies`, inverseFrequencies: long.inverseFrequencies, scale };
  }
}

/** UnsupportedError for a contiguous KV cache where layers have recurrent states or share keys and values. */
function checkKept(architecture: string, { layers }: TransformerConfig, { cache }: ForwardOptions): void {
  if (cache === "sequences" || layers.every(({ mixer }) => mixer.cache === "own" && mixer.states === 0)) return;
  throw new UnsupportedError(
    `${architecture} has layers that keep recurrent states, or share keys and values, which programs for ExecuTorch have no place for`,
  );
}

/**
 * An architecture's decoder without its head, as an encoder of packed sequences. UnsupportedError for mixers that cannot work
 * on these (`readsPackedSequences`), and for LongRoPE.
 */
export function transformerEncoder(file: string, decoder: Decoder, isBidirectional: boolean): Encoder {
  const { transformer: config, slots, longContextFrom, ...network } = decoder;
  if (!config?.layers.every(({ mixer }) => mixer.readsPackedSequences) || longContextFrom !== null)
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
        { cache: { packed: { offsets, isBidirectional } }, logits: "all", longContext: false },
      ).hiddenStates(),
  };
}

/** The drafter of a decoder as functions over operators. */
function draftHead(config: TransformerConfig, drafter: Drafter): DraftHead {
  const options = { cache: "sequences", logits: "all", longContext: false } as const;
  return {
    hidden: config.hidden,
    vocabularySize: drafter.vocabularySize,
    isFixed: drafter.isFixed,
    forward: (ops, weights, inputs) => new Pass(ops, config, weights, inputs, options).runForDrafts(drafter),
    forwardAll: (ops, weights, inputs) => new Pass(ops, config, weights, inputs, options).runAll(drafter),
    draft: (ops, weights, { before, ...inputs }) =>
      drafter.draft(new Pass(ops, config, weights, inputs, options), before),
  };
}

/** Makes the decoder of the architecture named `architecture`. */
export function transformer(architecture: string, config: TransformerConfig): Decoder {
  const long = Object.values(config.ropes).flatMap((rope) => (rope.long ? [rope.long.from] : []));
  return {
    architecture,
    vocabularySize: config.vocabulary,
    contextLength: config.contextLength,
    longContextFrom: long[0] ?? null,
    layers: config.layers.length,
    slots: slots(config),
    unused: unusedModules(config),
    // Computed on demand: the lists grow with sizes that only tensors confirm.
    get scalable() {
      return scalable(config);
    },
    transformer: config,
    draftHead: config.drafter ? draftHead(config, config.drafter) : null,
    forward(ops, weights, inputs, options) {
      checkKept(architecture, config, options);
      return new Pass(ops, config, weights, inputs, options).run();
    },
  };
}
