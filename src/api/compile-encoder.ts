/**
 * Compiles encoders (embedding models and rerankers): one method, which takes the tokens of several packed texts in a step.
 */
import { checkWhole } from "../arguments.ts";
import { longestSequence } from "../checkpoint/assets.ts";
import type { Model } from "../checkpoint/model.ts";
import type { MethodSource } from "../compile/capture.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { EncoderNetwork } from "../model/encoder.ts";
import { Ops } from "../ops/ops.ts";
import type { CompileModelOptions } from "./compile-options.ts";
import { weightsFor } from "./weights-for.ts";

/** A step must hold a whole text, which is seldom longer than this; memory for it is taken when a text needs it. */
const STEP_TOKENS_DEFAULT_MAX = 8192;

interface StepLengths {
  /** Most tokens of a text. */
  readonly longest: number;
  /** Most tokens of a step, of one text or several. */
  readonly rows: number;
}

/**
 * InvalidArgumentError for options that programs of encoders do not have, UnsupportedError for targets that cannot run
 * them.
 */
function lengths({ checkpoint, name }: Model, network: EncoderNetwork, options: CompileModelOptions): StepLengths {
  if (options.target === "executorch")
    throw new UnsupportedError(
      `${name}: target executorch is for models that generate text, not for ${network.architecture}`,
    );
  for (const option of ["maxContextLen", "logits"] as const)
    if (options[option] !== undefined)
      throw new InvalidArgumentError(
        `${option}: expected it for a model that generates text, not for ${network.architecture}`,
      );
  const longest = longestSequence(checkpoint, network);
  const rows = options.maxSeqLen ?? Math.min(Math.max(longest, STEP_TOKENS_ENOUGH), STEP_TOKENS_DEFAULT_MAX);
  checkWhole("maxSeqLen", rows, 1, STEP_TOKENS_MAX);
  return { longest: Math.min(longest, rows), rows };
}

/** Tokens of a step of several short texts from which more tokens bring no more speed. */
const STEP_TOKENS_ENOUGH = 512;
const STEP_TOKENS_MAX = 1 << 20;

/**
 * embed or rank: (tokens int64 [1, T], positions int64 [1, T], offsets int64 [texts + 1], types int64 [1, T] where the
 * network has token types) → values [texts, size] of each text.
 */
export function encoderSource(
  model: Model,
  network: EncoderNetwork,
  options: CompileModelOptions,
  unread: boolean,
): MethodSource {
  const { rows } = lengths(model, network, options);
  const weights = weightsFor(model, options, unread);
  const row = (name: string) => ({ name, spec: { dtype: "i64", shape: [1, rows] }, smallest: [1, 1] }) as const;
  const offsets = { name: "offsets", spec: { dtype: "i64", shape: [rows + 1] }, smallest: [2] } as const;
  return {
    name: network.task,
    inputs: [row("tokens"), row("positions"), offsets, ...(network.tokenTypes > 1 ? [row("types")] : [])],
    build: (builder, [tokens, positions, offsets, types]) => [
      network.compute(new Ops(builder), weights, {
        tokens: tokens!,
        positions: positions!,
        offsets: offsets!,
        types: types ?? null,
      }),
    ],
  };
}

/** Metadata that running the method needs. */
export function encoderMetadata(
  model: Model,
  network: EncoderNetwork,
  options: CompileModelOptions,
): Map<string, number | boolean | readonly number[]> {
  const { longest, rows } = lengths(model, network, options);
  return new Map<string, number | boolean | readonly number[]>([
    ["get_max_seq_len", rows],
    ["get_max_context_len", longest],
    ["get_vocab_size", network.vocabularySize],
    ["get_n_layers", network.layers],
    ["get_first_position", network.firstPosition],
    ["get_token_types", network.tokenTypes],
    ["enable_dynamic_shape", true],
  ]);
}
