/** What an architecture gives: the weights a config asks for, and the forward pass over the operator interface. */
import type { KvCacheType } from "../ops/kv-cache.ts";
import type { Ops } from "../ops/ops.ts";
import type { Weight } from "../ops/weight.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { ScalableActivation } from "./scalable.ts";
import type { TransformerConfig } from "./transformer-config.ts";

/** A tensor that the architecture expects in the checkpoint. */
export interface WeightSlot {
  /** Name as in Hugging Face's checkpoints: "model.layers.0.mlp.up_proj.weight". */
  readonly name: string;
  readonly shape: readonly number[];
  readonly role: "embedding" | "linear" | "vector";
  /** Slot whose tensor this one shares (tied lm_head), null when it has its own. */
  readonly tiedTo: string | null;
}

/** The module that a tensor is of, with which the names of all its tensors begin: "model.layers.0.mlp.up_proj". */
export function moduleOf(tensor: string): string {
  return tensor.replace(/\.\w+$/, "");
}

/** Weights by slot name, in the formats they run in. */
export type WeightLookup = (name: string) => Weight;

export interface ForwardInputs<T> {
  /** Token ids, int64 [1, T]. */
  readonly tokens: T;
  /** Positions of the tokens, int64 [T]; of the first alone, [1], where keys and values are states of the program. */
  readonly position: T;
  /** Rows of tokens whose logits are wanted, int64 [R]; null: those that the options say. */
  readonly rows: T | null;
}

/** Positions that states for keys and values hold, and in which type. */
export interface CacheStates {
  readonly capacity: number;
  readonly type: KvCacheType;
}

export interface ForwardOptions {
  /** Where keys and values are kept: with the sequences that a step works on, or in states of the program for one of them. */
  readonly cache: "sequences" | CacheStates;
  /** Logits of the last token only, or of all, where the inputs do not say rows. */
  readonly logits: "last" | "all";
  /** Whether the sequence is longer than the decoder's `longContextFrom`. */
  readonly longContext: boolean;
}

/** An architecture applied to one config. */
export interface Decoder {
  readonly architecture: string;
  readonly vocabularySize: number;
  /** Longest sequence that the model was made for. */
  readonly contextLength: number;
  /** Longer sequences are rotated by other frequencies, from their first token on (LongRoPE); null: all are alike. */
  readonly longContextFrom: number | null;
  readonly layers: number;
  readonly slots: readonly WeightSlot[];
  readonly scalable: readonly ScalableActivation[];
  /** What the decoder was configured with; null for one of another kind. */
  readonly transformer: TransformerConfig | null;
  /** Logits [1, V] of the last token, [1, T, V] of all, or [1, R, V] of the rows of the inputs. */
  forward<T>(ops: Ops<T>, weights: WeightLookup, inputs: ForwardInputs<T>, options: ForwardOptions): T;
}

/** The decoder with weights of its own in every slot: no slot is tied to another. */
export function untied(decoder: Decoder): Decoder {
  const { slots, transformer } = decoder;
  return {
    ...decoder,
    slots: slots.map((slot) => ({ ...slot, tiedTo: null })),
    transformer: transformer && { ...transformer, tied: false },
  };
}

/** A row of the architecture table. */
export interface Architecture {
  /** Value of `architectures` in config.json. */
  readonly name: string;
  /** Value of `model_type` there, where it is said. */
  readonly modelType: string;
  build(config: ConfigReader): Decoder;
}
