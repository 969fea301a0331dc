/** Decoders: the weights that an architecture expects for a config, and its forward pass over the operator interface. */
import type { Ops } from "../ops/ops.ts";
import type { ConfigReader, JsonObject } from "./config-reader.ts";
import type { CacheStates } from "./layer.ts";
import type { ScalableActivation } from "./scalable.ts";
import type { TransformerConfig } from "./transformer-config.ts";
import type { WeightLookup, WeightSlot } from "./weight-slot.ts";

export { moduleOf, type WeightLookup, type WeightSlot } from "./weight-slot.ts";

export interface ForwardInputs<T> {
  /** Token ids, int64 [1, T]. */
  readonly tokens: T;
  /** Positions of the tokens, int64 [T]; of the first token alone, [1], with a contiguous KV cache. */
  readonly position: T;
  /** Indices of tokens whose logits are wanted, int64 [R]; null for those of the options. */
  readonly rows: T | null;
}

export interface ForwardOptions {
  /** The KV cache: the paged one of a step's sequences, or a contiguous one in states of the program. */
  readonly cache: "sequences" | CacheStates;
  /** Logits of the last token or of all, where the inputs have no `rows`. */
  readonly logits: "last" | "all";
  /** Whether the sequence is longer than the decoder's `longContextFrom`. */
  readonly longContext: boolean;
}

/** An architecture applied to one config: sizes, weights and what it computes. */
export interface Network {
  /** Name of the architecture, such as `LlamaForCausalLM`. */
  readonly architecture: string;
  /** Size of the vocabulary: the number of logits of a token. */
  readonly vocabularySize: number;
  /** Longest sequence that the model was trained for, in tokens. */
  readonly contextLength: number;
  /** Number of layers. */
  readonly layers: number;
  /** Every weight that the model takes, with its shape and role. */
  readonly slots: readonly WeightSlot[];
  /** Modules in checkpoints of the architecture that nothing reads. Default: none. */
  readonly unused?: readonly string[];
  /** Activations whose channels can be scaled against the weights that read them, as AWQ and SmoothQuant do. */
  readonly scalable: readonly ScalableActivation[];
  /** Config of the decoder; null for a network of another kind. */
  readonly transformer: TransformerConfig | null;
}

/** Draft head: a part of a decoder that predicts the tokens after the next one from the decoder's hidden states. */
export interface DraftHead {
  /** Elements of a hidden state. */
  readonly hidden: number;
  /** Number of token ids, the lowest ones, whose logits `draft` gives. */
  readonly vocabularySize: number;
  /**
   * Whether all tokens of a draft are predicted at the position of the first, attending to the keys and values of the
   * tokens before it, which the decoder stored; otherwise each has its own position and stores its own keys and values.
   */
  readonly isFixed: boolean;
  /**
   * Gives logits [1, R, V] and hidden states [1, R, hidden] of the tokens in `rows`; stores what `draft` reads of all
   * tokens.
   */
  forward<T>(ops: Ops<T>, weights: WeightLookup, inputs: ForwardInputs<T>): readonly [logits: T, hidden: T];
  /**
   * Gives logits [1, T, V] of all tokens, computed last, and the draft layers' results for the hidden states before them:
   * for calibration.
   */
  forwardAll<T>(ops: Ops<T>, weights: WeightLookup, inputs: ForwardInputs<T>): readonly [logits: T, ...drafted: T[]];
  /**
   * Gives logits [1, T, vocabularySize] of the tokens after the input's, and the head's own hidden states [1, T, hidden].
   * `before` [1, T, hidden]: the hidden state of the token before each, the decoder's or, after a draft, the head's own.
   */
  draft<T>(
    ops: Ops<T>,
    weights: WeightLookup,
    inputs: ForwardInputs<T> & { readonly before: T },
  ): readonly [logits: T, hidden: T];
}

/** A network that generates text: it gives the logits of the next token. */
export interface Decoder extends Network {
  /** Length from which a whole sequence uses other RoPE frequencies (LongRoPE); null for none. */
  readonly longContextFrom: number | null;
  /** Draft head of the decoder; null or absent for none. */
  readonly draftHead?: DraftHead | null;
  /** Computes logits [1, V] of the last token, [1, T, V] of all, or [1, R, V] of the tokens in `rows`. */
  forward<T>(ops: Ops<T>, weights: WeightLookup, inputs: ForwardInputs<T>, options: ForwardOptions): T;
}

/** The decoder with every slot untied. */
export function untied(decoder: Decoder): Decoder {
  const { slots, transformer } = decoder;
  return {
    ...decoder,
    slots: slots.map((slot) => ({ ...slot, tiedTo: null })),
    transformer: transformer && { ...transformer, tied: false },
  };
}

/** An entry of the table of architectures. */
export interface Architecture {
  /** Value of `architectures` in config.json. */
  readonly name: string;
  /** Value of `model_type` in config.json, where it has one. */
  readonly modelType: string;
  /**
   * Other values of `model_type`, in a `text_config` of multimodal models, with the defaults that transformers has for
   * fields that published configs leave out; also for the own type, where its configs say little.
   */
  readonly textTypes?: Readonly<Record<string, JsonObject>>;
  /** Fields of a multimodal config that its decoder needs, with transformers' defaults. */
  readonly wholeFields?: JsonObject;
  /** Reads the config of its decoder. Throws for what the architecture cannot have. */
  read(config: ConfigReader): TransformerConfig;
}
