/** What an architecture gives: the weights a config asks for, and the forward pass over the operator interface. */
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
  /** Positions of the tokens, int64 [T]; of the first alone, [1], where keys and values are states of the program. */
  readonly position: T;
  /** Rows of tokens whose logits are wanted, int64 [R]; null: those that the options say. */
  readonly rows: T | null;
}

export interface ForwardOptions {
  /** Where keys and values are kept: with the sequences that a step works on, or in states of the program for one of them. */
  readonly cache: "sequences" | CacheStates;
  /** Logits of the last token only, or of all, where the inputs do not say rows. */
  readonly logits: "last" | "all";
  /** Whether the sequence is longer than the decoder's `longContextFrom`. */
  readonly longContext: boolean;
}

/** An architecture applied to one config: sizes and weights, whatever it computes. */
export interface Network {
  /** Name of the architecture, such as `LlamaForCausalLM`. */
  readonly architecture: string;
  /** Tokens of the vocabulary: logits of a position. */
  readonly vocabularySize: number;
  /** Longest sequence that the model was made for. */
  readonly contextLength: number;
  /** Number of layers. */
  readonly layers: number;
  /** Every weight that the model takes, with its shape and role. */
  readonly slots: readonly WeightSlot[];
  /** Modules that checkpoints of the architecture hold and nothing reads. Default: none. */
  readonly unused?: readonly string[];
  /** Activations whose channels may be scaled against the weights behind them, as AWQ and SmoothQuant do. */
  readonly scalable: readonly ScalableActivation[];
  /** Config that the decoder was made with; null for a decoder of another kind. */
  readonly transformer: TransformerConfig | null;
}

/** Part of a decoder that guesses tokens behind the next one, from hidden states that the decoder has made. */
export interface DraftHead {
  /** Elements of a hidden state. */
  readonly hidden: number;
  /** Tokens, those of the least ids, that `draft` gives logits of. */
  readonly vocabularySize: number;
  /**
   * Whether all tokens of a draft are guessed at the position of the first, from the keys and values of the tokens before it, which
   * `draft` finds where its rows stand; else each at its own, where it stores its own.
   */
  readonly isFixed: boolean;
  /** Logits [1, R, V] and hidden states [1, R, hidden] of the rows that the inputs say; keeps what `draft` reads of all tokens. */
  forward<T>(ops: Ops<T>, weights: WeightLookup, inputs: ForwardInputs<T>): readonly [logits: T, hidden: T];
  /**
   * Logits [1, T, V] of all rows, which are computed last, and what its layers make of the hidden states before them: for
   * calibration.
   */
  forwardAll<T>(ops: Ops<T>, weights: WeightLookup, inputs: ForwardInputs<T>): readonly [logits: T, ...drafted: T[]];
  /**
   * Logits [1, T, vocabularySize] of the tokens behind those of the inputs, and its own hidden states of these [1, T, hidden]. `before`
   * [1, T, hidden]: the hidden state of the token before each, the decoder's or, behind a draft, its own.
   */
  draft<T>(
    ops: Ops<T>,
    weights: WeightLookup,
    inputs: ForwardInputs<T> & { readonly before: T },
  ): readonly [logits: T, hidden: T];
}

/** A network that continues texts: it gives the logits of the next token. */
export interface Decoder extends Network {
  /**
   * Tokens beyond which a sequence is rotated by other frequencies, from its first token on (LongRoPE); null when all
   * are alike.
   */
  readonly longContextFrom: number | null;
  /** What can draft for it; null or absent where nothing can. */
  readonly draftHead?: DraftHead | null;
  /** Computes logits [1, V] of the last token, [1, T, V] of all, or [1, R, V] of the rows of the inputs. */
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
  /**
   * Values of `model_type` in a `text_config` that it is the text half of beside its own, and of its own where that says little:
   * each with what transformers assumes where such a config, as published, leaves it out.
   */
  readonly textTypes?: Readonly<Record<string, JsonObject>>;
  /** Fields of a model that sees or hears which its text half needs, with what transformers assumes of those left out. */
  readonly wholeFields?: JsonObject;
  build(config: ConfigReader): Decoder;
}
