/** Networks that read whole sequences at once: a hidden state of each token, and what is made of those of a sequence. */
import type { Ops } from "../ops/ops.ts";
import type { Pooling } from "../pooling.ts";
import type { ConfigReader } from "./config-reader.ts";
import type { Network, WeightLookup, WeightSlot } from "./decoder.ts";

/** Tokens of packed sequences. */
export interface TextInputs<T> {
  /** Token ids, int64 [1, T]. */
  readonly tokens: T;
  /** Positions of the tokens in their sequences, int64 [1, T], the first `firstPosition`. */
  readonly positions: T;
  /** Where each sequence begins, and where the last ends, int64 [sequences + 1]. */
  readonly offsets: T;
  /** Kinds of the tokens, int64 [1, T]; null for a network that knows one kind. */
  readonly types: T | null;
}

/** A network that gives a hidden state of each token of packed sequences. */
export interface Encoder extends Network {
  /** Elements of a hidden state. */
  readonly hidden: number;
  /** Position of a text's first token. */
  readonly firstPosition: number;
  /** Kinds of tokens: 2 tells the first text of a pair from the second. */
  readonly tokenTypes: number;
  /** Computes hidden states [1, T, hidden]. */
  hiddenStates<T>(ops: Ops<T>, weights: WeightLookup, inputs: TextInputs<T>): T;
}

/** What a network computes of texts: a vector that says what a text means, or a score of a pair. */
export type TextTask = "embed" | "rank";

/** A network that computes some values of each text: of one task, from hidden states. */
export interface TextNetwork extends Network, Pick<Encoder, "firstPosition" | "tokenTypes"> {
  readonly task: TextTask;
  /** Values of a text. */
  readonly size: number;
  /** Computes [sequences, size]. */
  compute<T>(ops: Ops<T>, weights: WeightLookup, inputs: TextInputs<T>): T;
}

/** Whether a network computes something of whole texts, rather than what comes next. */
export function isTextNetwork(network: Network): network is TextNetwork {
  return "task" in network;
}

/** A function between matrices of a head. */
export type HeadActivation = "tanh" | "gelu" | "relu";

/** A step from the hidden states of a sequence to its values. */
export type HeadStep =
  /** One vector of a sequence, or several side by side. */
  | { readonly kind: "pool"; readonly poolings: readonly Pooling[] }
  /** A linear layer [n, k] of the module of this name, and a function behind it. */
  | {
      readonly kind: "dense";
      readonly module: string;
      readonly size: number;
      readonly hasBias: boolean;
      readonly activation: HeadActivation | null;
    }
  | { readonly kind: "layerNorm"; readonly module: string; readonly eps: number; readonly hasBias: boolean }
  /** A length of 1. */
  | { readonly kind: "normalize" }
  /** The logit of a token less that of another, from the head of a language model. */
  | {
      readonly kind: "tokenScore";
      readonly head: WeightSlot;
      readonly trueToken: number;
      readonly falseToken: number | null;
    };

/** Number of values that a step gives of `size`. */
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

/** A network that goes on from an encoder's hidden states, step by step. */
export function textNetwork(task: TextTask, encoder: Encoder, steps: readonly HeadStep[]): TextNetwork {
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

/** A row of the table of encoders. */
export interface EncoderArchitecture {
  /** Value of `architectures` in config.json of the encoder by itself. */
  readonly name: string;
  /** Value of `model_type` there. */
  readonly modelType: string;
  /** What names of tensors begin with in checkpoints of the encoder with a head. */
  readonly prefix: string;
  build(config: ConfigReader): Encoder;
  /** Steps to the score of a classifier of one label. */
  classifier(config: ConfigReader): readonly HeadStep[];
}
