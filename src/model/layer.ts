/**
 * What a layer of a decoder is: a mixer, which lets a token see those before it, an MLP, which sees one token alone, and
 * norms around them. Mixers and MLPs are objects of one form, so that a new sort is a file of its own.
 */
import type { Ops } from "../ops/ops.ts";
import type { Weight } from "../ops/weight.ts";
import type { ScalableActivation } from "./scalable.ts";
import type { WeightSlot } from "./weight-slot.ts";

/** Which tokens each token sees in packed sequences, of which no keys and values are kept. */
export interface PackedSequences<T> {
  /** Where each sequence begins, and where the last ends, int64 [sequences + 1]. */
  readonly offsets: T;
  /** Whether tokens see those after them. */
  readonly isBidirectional: boolean;
}

/** States for the keys and values of one sequence. */
export interface CacheStates {
  /** Positions that the states have room for. */
  readonly capacity: number;
}

/** What the parts of a layer are given of the forward pass that they are in. */
export interface LayerPass<T> {
  /** Token ids, int64 [1, T]. */
  readonly tokens: T;
  /** Embeddings of the tokens as they enter the first layer [1, T, hidden]. */
  readonly embedded: T;
  /** The operators that the pass is written with. */
  readonly ops: Ops<T>;
  /** Number that the model's norms add under the square root. */
  readonly eps: number;
  /** Positions of the tokens, int64 [T]; of the first alone, [1], where keys and values are states of the program. */
  readonly position: T;
  /** Where keys and values are kept; of packed sequences, nowhere. */
  readonly cache: "sequences" | CacheStates | { readonly packed: PackedSequences<T> };
  /** The weight of a slot. */
  weight(name: string): Weight;
  /** The linear layer `module`, with its bias where it has one. */
  linear(x: T, module: string, hasBias?: boolean): T;
  /** The model's RMS norm with the weights of `module`, of each run of as many values as it has weights. */
  norm(x: T, module: string): T;
  /** Cosines and sines of one of the config's ropes, computed once a pass. */
  angles(rope: string): T;
  /** The result of `make`, which is called once a pass for each `key`. */
  once(key: string, make: () => T): T;
}

/** Where a part of a layer stands in the model. */
export interface Place {
  /** Full name of the part, with which the names of its weights begin: "model.layers.3.self_attn". */
  readonly module: string;
  /** Number of the cache that the part reads, among the caches of the model: its own, or that of the layer it shares with. */
  readonly cacheLayer: number;
  /** Number of the part's first recurrent state among those of the model; its other states follow. */
  readonly firstState: number;
}

/** Activations of a part whose channels may be scaled against weights. */
export interface PartActivations {
  /** Names of the linear weights that read the part's input. Empty where something else reads it, too, so that it cannot be scaled. */
  readonly readers: readonly string[];
  /** Activations within the part, in the order in which they are computed. */
  readonly inner: readonly ScalableActivation[];
}

/** A tensor in which checkpoints may have one weight of all experts, [experts, n, k], or [experts, n] of biases. */
export interface ExpertStack {
  /** Full name of the tensor; with "*" for the number of an expert where each has a matrix [n, k] of its own. */
  readonly tensor: string;
  /** Number of experts. */
  readonly experts: number;
  /** Slots whose rows an expert's matrix holds, equally many of each; "*" stands for the number of the expert. */
  readonly slots: readonly string[];
  /** Whether rows of the slots alternate: one of each slot in turn. Else all rows of a slot stand together. */
  readonly isInterleaved: boolean;
  /** Whether matrices are [k, n]. */
  readonly isTransposed: boolean;
}

/** A mixer or an MLP. */
export interface LayerPart {
  /** Name of the part within its layer, such as "self_attn"; null where its weights stand beside those of other parts. */
  readonly module: string | null;
  /** Lists the part's weights; `module` is its full name. */
  slots(module: string): WeightSlot[];
  /** Tensors that checkpoints may have in place of those of the slots; absent where there are none. */
  stacks?(module: string): ExpertStack[];
  /** Lists the activations whose channels may be scaled; `module` is the part's full name, `normOffset` what norms add to weights. */
  scalable(module: string, normOffset: number): PartActivations;
  /** Computes the part of x [1, T, hidden], to the same shape. */
  forward<T>(pass: LayerPass<T>, x: T, place: Place): T;
  /** Modules that checkpoints have of the part and that nothing reads. Default: none. */
  unused?(module: string): readonly string[];
}

/** Weights beside the embedding that layers share. */
export interface SharedTable {
  /** Lists the weights that the table has. */
  slots(): WeightSlot[];
}

/** What lets a token see those before it. */
export interface Mixer extends LayerPart {
  /**
   * Whether the mixer keeps keys and values of its own, or reads those of another layer, by its index; null for a mixer
   * without keys and values.
   */
  readonly cache: "own" | number | null;
  /** How many recurrent states it keeps of a sequence. */
  readonly states: number;
  /** Whether it can work on packed sequences, without anything that is kept. */
  readonly readsTexts: boolean;
}

/** A mixer whose keys and values can be stored by themselves. */
export interface StoringMixer extends Mixer {
  /** Stores keys and values of x [1, T, hidden], which later calls of the layer read; nothing is read for these rows. */
  store<T>(pass: LayerPass<T>, x: T, place: Place): void;
}

/** Names of a layer's norms; null for one that it does not have. */
export interface LayerNorms {
  /** Name of the norm in front of the mixer. */
  readonly beforeMixer: string | null;
  /** Name of the norm behind the mixer. */
  readonly afterMixer: string | null;
  /** Name of the norm in front of the MLP. */
  readonly beforeMlp: string | null;
  /** Name of the norm behind the MLP. */
  readonly afterMlp: string | null;
}

/** x += afterMixer(mixer(beforeMixer(x))); x += afterMlp(mlp(beforeMlp(x))); x += adapter(x); x *= factor. */
export interface LayerConfig {
  /** What names of its weights begin with, where that is not "model.layers." and its number. */
  readonly module?: string;
  /** Part that lets a token see those before it. */
  readonly mixer: Mixer;
  /** Part that sees one token alone. */
  readonly mlp: LayerPart;
  /** Norms around both. */
  readonly norms: LayerNorms;
  /** A part behind the MLP, where there is one. */
  readonly adapter?: LayerPart;
  /** Name of a number, a tensor [1], that the layer's result is multiplied by. */
  readonly factor?: string;
}

/** Where the parts of a layer stand. */
export interface LayerPlaces {
  /** What names of the layer's weights begin with. */
  readonly module: string;
  /** Place of the layer's mixer. */
  readonly mixer: Place;
  /** Place of its MLP. */
  readonly mlp: Place;
  /** Place of its adapter, where it has one. */
  readonly adapter: Place;
}

/** The places of each layer's parts; caches and states are numbered through the model. */
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

/** Tensors of all experts that a checkpoint may have in place of those of each. */
export function expertStacks(layers: readonly LayerConfig[]): ExpertStack[] {
  const places = layerPlaces(layers);
  return layers.flatMap(({ mlp }, i) => mlp.stacks?.(places[i]!.mlp.module) ?? []);
}
