/**
 * Layers of a decoder: a mixer, through which a token sees earlier ones, an MLP, which works on one token alone, and norms.
 * Mixers and MLPs share an interface, so that each new kind is a file of its own.
 */
import type { Ops } from "../ops/ops.ts";
import type { Weight } from "../ops/weight.ts";
import type { ScalableActivation } from "./scalable.ts";
import type { WeightSlot } from "./weight-slot.ts";

/** Packed sequences, without a KV cache, and which tokens each token sees. */
export interface PackedSequences<T> {
  /** Index of each sequence's first token, and the number of tokens, int64 [sequences + 1]. */
  readonly offsets: T;
  /** Whether tokens see those after them (bidirectional attention). */
  readonly isBidirectional: boolean;
}

/** A contiguous KV cache in states of the program. */
export interface CacheStates {
  /** Positions of the cache. */
  readonly capacity: number;
}

/** The forward pass, as the parts of a layer use it. */
export interface LayerPass<T> {
  /** Token ids, int64 [1, T]. */
  readonly tokens: T;
  /** Embeddings of the tokens before the first layer, [1, T, hidden]. */
  readonly embedded: T;
  /** The operators that the pass is written with. */
  readonly ops: Ops<T>;
  /** Added under the square root by the model's norms. */
  readonly eps: number;
  /** Positions of the tokens, int64 [T]; of the first token alone, [1], with a contiguous KV cache. */
  readonly position: T;
  /** The KV cache: paged, contiguous, or none for packed sequences. */
  readonly cache: "sequences" | CacheStates | { readonly packed: PackedSequences<T> };
  /** The weight of a slot. */
  weight(name: string): Weight;
  /** Applies the linear layer `module`, with its bias where it has one. */
  linear(x: T, module: string, hasBias?: boolean): T;
  /** Applies RMSNorm with the weights of `module`; where x is longer than the weights, to each part of their size. */
  norm(x: T, module: string): T;
  /** Cosines and sines of one of the config's RoPEs, computed once in a pass. */
  angles(rope: string): T;
  /** The result of `make`, which is called once in a pass for each `key`. */
  once(key: string, make: () => T): T;
}

/** Place of a layer's part in the model. */
export interface Place {
  /** Full name of the part, which begins its weights' names: "model.layers.3.self_attn". */
  readonly module: string;
  /** Index of the KV cache that the part reads, among the model's: its own, or that of the layer it shares with. */
  readonly cacheLayer: number;
  /** Index of the part's first recurrent state among the model's; its other states follow. */
  readonly firstState: number;
}

/** Activations of a part whose channels can be scaled against weights (AWQ, SmoothQuant). */
export interface PartActivations {
  /**
   * Names of the linear weights that read the part's input. Empty where something else reads it as well, so that it cannot
   * be scaled.
   */
  readonly readers: readonly string[];
  /** Activations within the part, in the order of computation. */
  readonly inner: readonly ScalableActivation[];
}

/**
 * A stacked tensor, in which checkpoints may store one weight of all experts: [experts, n, k], or [experts, n] for biases.
 */
export interface ExpertStack {
  /** Full name of the tensor; with "*" for the expert's number where each expert has a matrix [n, k] of its own. */
  readonly tensor: string;
  /** Number of experts. */
  readonly experts: number;
  /** Slots whose rows an expert's matrix holds, equally many of each; "*" stands for the expert's number. */
  readonly slots: readonly string[];
  /** Whether rows of the slots are interleaved, one of each slot in turn; otherwise all rows of a slot are consecutive. */
  readonly isInterleaved: boolean;
  /** Whether matrices are stored transposed, [k, n]. */
  readonly isTransposed: boolean;
}

/** A part of a layer: a mixer or an MLP. */
export interface LayerPart {
  /** Name of the part within its layer, such as "self_attn"; null where its weights' names begin with the layer's. */
  readonly module: string | null;
  /** Lists the part's weights; `module` is its full name. */
  slots(module: string): WeightSlot[];
  /** Stacked tensors that checkpoints may have in place of the slots'; absent for none. */
  stacks?(module: string): ExpertStack[];
  /**
   * Lists activations whose channels can be scaled; `module` is the part's full name, `normOffset` is added to norm
   * weights.
   */
  scalable(module: string, normOffset: number): PartActivations;
  /** Computes the part for x [1, T, hidden], to the same shape. */
  forward<T>(pass: LayerPass<T>, x: T, place: Place): T;
  /** Modules of the part in checkpoints that nothing reads. Default: none. */
  unused?(module: string): readonly string[];
}

/** Weights that all layers share, beside the embedding. */
export interface SharedTable {
  /** Lists the table's weights. */
  slots(): WeightSlot[];
}

/** The part of a layer through which a token sees earlier ones: attention, or a recurrence. */
export interface Mixer extends LayerPart {
  /** Keys and values that the mixer reads: its own, or those of another layer, by its index; null for a mixer without. */
  readonly cache: "own" | number | null;
  /** Number of recurrent states that it keeps of a sequence. */
  readonly states: number;
  /** Whether it can work on packed sequences, without a KV cache or state. */
  readonly readsPackedSequences: boolean;
}

/** A mixer that can store keys and values without computing attention. */
export interface StoringMixer extends Mixer {
  /** Stores keys and values of x [1, T, hidden], for later calls of the layer. */
  store<T>(pass: LayerPass<T>, x: T, place: Place): void;
}

/** Names of a layer's norms; null for a norm that it lacks. */
export interface LayerNorms {
  /** Name of the norm before the mixer. */
  readonly beforeMixer: string | null;
  /** Name of the norm after the mixer. */
  readonly afterMixer: string | null;
  /** Name of the norm before the MLP. */
  readonly beforeMlp: string | null;
  /** Name of the norm after the MLP. */
  readonly afterMlp: string | null;
}

/**
 * Config of a layer: x += afterMixer(mixer(beforeMixer(x))); x += afterMlp(mlp(beforeMlp(x))); x += adapter(x); x *=
 * factor.
 */
export interface LayerConfig {
  /** Prefix of its weights' names, where that is not "model.layers." and its number. */
  readonly module?: string;
  /** The part through which a token sees earlier ones. */
  readonly mixer: Mixer;
  /** The part that works on one token alone. */
  readonly mlp: LayerPart;
  /** Norms before and after both parts. */
  readonly norms: LayerNorms;
  /** A part after the MLP; absent for none. */
  readonly adapter?: LayerPart;
  /** Name of a tensor [1] that the layer's result is multiplied by; absent for none. */
  readonly factor?: string;
}

/** Places of a layer's parts in the model. */
export interface LayerPlaces {
  /** Prefix of the layer's weights' names. */
  readonly module: string;
  /** Place of the layer's mixer. */
  readonly mixer: Place;
  /** Place of its MLP. */
  readonly mlp: Place;
  /** Place of its adapter, where it has one. */
  readonly adapter: Place;
}

/** The places of each layer's parts; KV caches and states are numbered through the model. */
export function layerPlaces(layers: readonly LayerConfig[]): readonly LayerPlaces[] {
  let [caches, states] = [0, 0];
  const cacheLayers: number[] = [];
  return layers.map(({ mixer, mlp, adapter, ...own }, i) => {
    const cacheLayer = typeof mixer.cache === "number" ? cacheLayers[mixer.cache]! : caches;
    cacheLayers.push(cacheLayer);
    const place = { cacheLayer, firstState: states };
    if (mixer.cache === "own") caches++;
    states += mixer.states;
    const layer = own.module ?? `model.layers.${i}`;
    const placeOf = (module: string | null = null) => ({
      ...place,
      module: module === null ? layer : `${layer}.${module}`,
    });
    return { module: layer, mixer: placeOf(mixer.module), mlp: placeOf(mlp.module), adapter: placeOf(adapter?.module) };
  });
}

/** Stacked tensors of all experts that a checkpoint may have. */
export function expertStacks(layers: readonly LayerConfig[]): ExpertStack[] {
  const places = layerPlaces(layers);
  return layers.flatMap(({ mlp }, i) => mlp.stacks?.(places[i]!.mlp.module) ?? []);
}
