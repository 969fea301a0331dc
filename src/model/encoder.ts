/**
 * Encoders: networks that read whole sequences, giving a hidden state of each token, and what is computed from those of a
 * sequence.
 */
import type { Ops } from "../ops/ops.ts";
import type { Pooling } from "../pooling.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { Network, WeightLookup, WeightSlot } from "./decoder.ts";

/** Tokens of packed sequences. */
export interface TextInputs<T> {
  /** Token ids, int64 [1, T]. */
  readonly tokens: T;
  /** Positions of the tokens in their sequences, int64 [1, T], from `firstPosition` on. */
  readonly positions: T;
  /** Index of each sequence's first token, and the number of tokens, int64 [sequences + 1]. */
  readonly offsets: T;
  /** Token types, int64 [1, T]; null for a network without. */
  readonly types: T | null;
}

/** A network that gives a hidden state of each token of packed sequences. */
export interface Encoder extends Network {
  /** Elements of a hidden state. */
  readonly hidden: number;
  /** Position of a sequence's first token. */
  readonly firstPosition: number;
  /** Number of token types: with 2, types tell the first text of a pair from the second. */
  readonly tokenTypes: number;
  /** Computes hidden states [1, T, hidden]. */
  hiddenStates<T>(ops: Ops<T>, weights: WeightLookup, inputs: TextInputs<T>): T;
}

/** Task of an encoder: an embedding of a text, or a score of a pair. */
export type EncoderTask = "embed" | "rank";

/** An encoder with a head, which computes some values of each text. */
export interface EncoderNetwork extends Network, Pick<Encoder, "firstPosition" | "tokenTypes"> {
  readonly task: EncoderTask;
  /** Number of values of a text. */
  readonly size: number;
  /** Computes the values [sequences, size]. */
  compute<T>(ops: Ops<T>, weights: WeightLookup, inputs: TextInputs<T>): T;
}

/** Whether a network computes values of whole texts, rather than logits of the next token. */
export function isEncoderNetwork(network: Network): network is EncoderNetwork {
  return "task" in network;
}

/** An activation between matrices of a head. */
export type HeadActivation = "tanh" | "gelu" | "relu";

/** A step of a head, from the hidden states of a sequence to its values. */
export type HeadStep =
  /** Pools the tokens to one vector, or to several that are concatenated. */
  | { readonly kind: "pool"; readonly poolings: readonly Pooling[] }
  /** A linear layer [n, k] of the module of this name, and an activation after it. */
  | {
      readonly kind: "dense";
      readonly module: string;
      readonly size: number;
      readonly hasBias: boolean;
      readonly activation: HeadActivation | null;
    }
  | { readonly kind: "layerNorm"; readonly module: string; readonly eps: number; readonly hasBias: boolean }
  /** Divides the vector by its length. */
  | { readonly kind: "normalize" }
  /** The logit of one token minus that of another, from the head of a language model. */
  | {
      readonly kind: "tokenScore";
      readonly head: WeightSlot;
      readonly trueToken: number;
      readonly falseToken: number | null;
    };

/** Number of values after a step on `size` values. */
function sizeBehind(step: HeadStep, size: number): number {
  if (step.kind === "pool") return step.poolings.length * size;
  if (step.kind === "tokenScore") return 1;
  return step.kind === "dense" ? step.size : size;
}

function slotsOf(step: HeadStep, size: number): WeightSlot[] {
  if (step.kind === "pool" || step.kind === "normalize") return [];
  if (step.kind === "tokenScore") return [step.head];
  const { module, hasBias } = step;
  const weight: WeightSlot =
    step.kind === "dense"
      ? { name: `${module}.weight`, shape: [step.size, size], role: "linear", tiedTo: null }
      : { name: `${module}.weight`, shape: [size], role: "vector", tiedTo: null };
  const bias: WeightSlot = {
    name: `${module}.bias`,
    shape: [sizeBehind(step, size)],
    role: "vector",
    tiedTo: null,
  };
  return hasBias ? [weight, bias] : [weight];
}

function take<T>(ops: Ops<T>, weights: WeightLookup, step: HeadStep, x: T, offsets: T): T {
  if (step.kind === "pool") {
    const [first, ...rest] = step.poolings.map((pooling) => ops.poolPacked(x, offsets, pooling));
    return rest.length === 0 ? first! : ops.call("aten::cat.out", [first!, ...rest], -1);
  }
  if (step.kind === "normalize") return ops.normalize(x);
  if (step.kind === "tokenScore") {
    const logits = ops.linear(x, weights(step.head.name));
    const logit = (token: number) => ops.columns(logits, token, token + 1);
    return step.falseToken === null
      ? logit(step.trueToken)
      : ops.add(logit(step.trueToken), logit(step.falseToken), -1);
  }
  const weight = weights(`${step.module}.weight`);
  const bias = step.hasBias ? weights(`${step.module}.bias`) : null;
  if (step.kind === "layerNorm") return ops.layerNorm(x, weight, bias, step.eps);
  const y = ops.linear(x, weight, bias);
  if (step.activation === null) return y;
  return step.activation === "gelu" ? ops.gelu(y) : ops.call(`aten::${step.activation}.out`, y);
}

/** An encoder with a head of these steps. */
export function textNetwork(task: EncoderTask, encoder: Encoder, steps: readonly HeadStep[]): EncoderNetwork {
  const { hiddenStates, hidden, slots, ...network } = encoder;
  const added: WeightSlot[] = [];
  let size = hidden;
  for (const step of steps) {
    added.push(...slotsOf(step, size));
    size = sizeBehind(step, size);
  }
  return {
    ...network,
    slots: [...slots, ...added],
    task,
    size,
    compute(ops, weights, inputs) {
      const states = hiddenStates(ops, weights, inputs);
      return steps.reduce((x, step) => take(ops, weights, step, x, inputs.offsets), states);
    },
  };
}

/** An entry of the table of encoders. */
export interface EncoderArchitecture {
  /** Value of `architectures` in config.json of the encoder without a head. */
  readonly name: string;
  /** Value of `model_type` in config.json. */
  readonly modelType: string;
  /** Prefix of the encoder's tensors in checkpoints with a head. */
  readonly prefix: string;
  build(config: ConfigReader): Encoder;
  /** Head of a classifier of one label, to its score. */
  classifier(config: ConfigReader): readonly HeadStep[];
}
