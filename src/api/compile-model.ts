/** Compiles a model to a program: the method `forward`, ExecuTorch's metadata methods, tokenizer and template. */
import { checkOptions, checkWhole } from "../arguments.ts";
import { assetsOf } from "../checkpoint/assets.ts";
import { checkModel, type Model } from "../checkpoint/model.ts";
import type { MethodSource } from "../compile/capture.ts";
import { compile } from "../compile/compile.ts";
import { InvalidArgumentError } from "../errors.ts";
import { executorchTarget } from "../executorch/compile/lowering.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { encodeAssets } from "../language/assets.ts";
import { DRAFT_METHOD, LONG_METHOD } from "../language/program-decoder.ts";
import type { DraftHead, ForwardOptions, WeightLookup } from "../model/decoder.ts";
import { isEncoderNetwork } from "../model/encoder.ts";
import { Ops } from "../ops/ops.ts";
import type { DataSource, Program } from "../program/program.ts";
import { operators } from "../registry/operators.ts";
import type { SequenceLoadOptions } from "../runtime/sequence-options.ts";
import { encoderMetadata, encoderSource } from "./compile-encoder.ts";
import { type CompileModelOptions, checkChoices } from "./compile-options.ts";
import { generationFacts } from "./generation-facts.ts";
import { weightsFor } from "./weights-for.ts";

const CONTEXT_DEFAULT_MAX = 2048;
const CHUNK_DEFAULT_MAX = 512;
/** Most tokens of a step whose logits can be asked for: each takes V floats. */
const LOGIT_ROWS_MAX = 64;

interface Lengths {
  /** Most tokens of one call of `forward`. */
  readonly maxSeqLen: number;
  /** Positions of the KV cache. */
  readonly maxContextLen: number;
}

/** Options of programs with a contiguous KV cache of one sequence, as those for ExecuTorch have. */
const stateOptions = ["maxContextLen", "logits"] as const;

function lengths(model: Model, options: CompileModelOptions): Lengths {
  checkModel(model);
  checkOptions(options);
  checkChoices(options);
  const isExecutorch = options.target === "executorch";
  const given = stateOptions.find((name) => options[name] !== undefined);
  if (!isExecutorch && given)
    throw new InvalidArgumentError(
      `${given}: expected it with target executorch alone; other programs take contextLength when they are loaded, and give the logits that are asked for`,
    );
  const { contextLength } = model.decoder;
  const maxContextLen =
    options.maxContextLen ?? (isExecutorch ? Math.min(contextLength, CONTEXT_DEFAULT_MAX) : contextLength);
  const maxSeqLen = options.maxSeqLen ?? Math.min(maxContextLen, CHUNK_DEFAULT_MAX);
  checkWhole("maxContextLen", maxContextLen, 1, contextLength);
  checkWhole("maxSeqLen", maxSeqLen, 1, maxContextLen);
  return { maxSeqLen, maxContextLen };
}

function forwardOptions(options: CompileModelOptions, capacity: number, longContext: boolean): ForwardOptions {
  const { target, logits = "last" } = options;
  return { cache: target === "executorch" ? { capacity } : "sequences", logits, longContext };
}

/**
 * forward(tokens int64 [1, T], positions int64 [T], rows int64 [R]) → logits [1, R, V] of the tokens at `rows`, T up to
 * maxSeqLen, and their hidden states [1, R, H] where the model has a draft head. For ExecuTorch: forward(tokens, input_pos
 * int64 [1]) → logits of the last token, or of all.
 */
function forwardSource(
  { decoder }: Model,
  weights: WeightLookup,
  options: CompileModelOptions,
  { maxSeqLen, maxContextLen }: Lengths,
  { head = null, longContext = false }: { readonly head?: DraftHead | null; readonly longContext?: boolean },
): MethodSource {
  const tokens = { name: "tokens", spec: { dtype: "i64", shape: [1, maxSeqLen] }, smallest: [1, 1] } as const;
  const vector = (name: string, size: number) =>
    ({ name, spec: { dtype: "i64", shape: [size] }, smallest: [1] }) as const;
  const hasStates = options.target === "executorch";
  return {
    name: longContext ? LONG_METHOD : "forward",
    inputs: hasStates
      ? [tokens, vector("input_pos", 1)]
      : [tokens, vector("positions", maxSeqLen), vector("rows", logitRows(maxSeqLen))],
    build(builder, [tokens, position, rows]) {
      const ops = new Ops(builder);
      const inputs = { tokens: tokens!, position: position!, rows: rows ?? null };
      if (head) return head.forward(ops, weights, inputs);
      return [decoder.forward(ops, weights, inputs, forwardOptions(options, maxContextLen, longContext))];
    },
  };
}

/**
 * draft(tokens int64 [1, T], positions int64 [T], before f32 [1, T, H]) → logits [1, T, D] of the token after each, over
 * the D lowest ids, and hidden states [1, T, H]. `before`: the hidden states of the tokens before `tokens`, which `forward`
 * gives beside its logits.
 */
function draftSource(head: DraftHead, weights: WeightLookup, { maxSeqLen }: Lengths): MethodSource {
  const rows = logitRows(maxSeqLen);
  const input = (name: string, dtype: "i64" | "f32", shape: readonly number[], smallest: readonly number[]) => ({
    ...{ name, spec: { dtype, shape }, smallest },
  });
  return {
    name: DRAFT_METHOD,
    inputs: [
      input("tokens", "i64", [1, rows], [1, 1]),
      input("positions", "i64", [rows], [1]),
      input("before", "f32", [1, rows, head.hidden], [1, 1, head.hidden]),
    ],
    build: (builder, [tokens, position, before]) =>
      head.draft(new Ops(builder), weights, { tokens: tokens!, position: position!, rows: null, before: before! }),
  };
}

function logitRows(maxSeqLen: number): number {
  return Math.min(maxSeqLen, LOGIT_ROWS_MAX);
}

/** Most tokens of a sequence that `forward` computes, where the program has `forward_long` for longer ones; else null. */
export function longContextFrom({ decoder }: Model, maxContextLen: number): number | null {
  const from = decoder.longContextFrom;
  return from !== null && from < maxContextLen ? from : null;
}

/**
 * The methods of a model's program. `unread`: only for graphs or sizes, so that weights are not read and may still wait for
 * calibration.
 */
export function methodSources(model: Model, given: CompileModelOptions, unread = false) {
  checkModel(model);
  if (isEncoderNetwork(model.network)) return { sources: [encoderSource(model, model.network, given, unread)] };
  return decoderSources(model, given, unread);
}

function decoderSources(model: Model, given: CompileModelOptions, unread: boolean) {
  const sizes = lengths(model, given);
  const weights = weightsFor(model, given, unread);
  const longFrom = longContextFrom(model, sizes.maxContextLen);
  const long = longFrom === null ? [] : [forwardSource(model, weights, given, sizes, { longContext: true })];
  const head = given.target === "executorch" || longFrom !== null ? null : (model.decoder.draftHead ?? null);
  const draft = head ? [draftSource(head, weights, sizes)] : [];
  return { sources: [forwardSource(model, weights, given, sizes, { head }), ...long, ...draft], sizes, longFrom, head };
}

/**
 * Compiles a model to a program whose weights are packed when they are read. InvalidArgumentError for lengths that the
 * model does not have, unknown values of options, and weights that wait for calibration; UnsupportedError for what the
 * target cannot express.
 */
export function compileModel(model: Model, given: CompileModelOptions = {}): Program {
  return compiled(model, given, false);
}

/**
 * Checks options before the model is calibrated or encoded, which takes long. Throws what `compileModel` would throw
 * afterwards, and what loading would throw for a `contextLength` longer than the model's.
 */
export function checkCompiles(
  model: Model,
  options: CompileModelOptions & Pick<SequenceLoadOptions, "contextLength"> = {},
): void {
  checkOptions(options);
  const { contextLength, ...given } = options;
  compiled(model, given, true);
  if (contextLength !== undefined) checkWhole("contextLength", contextLength, 1, model.decoder.contextLength);
}

/** A model's program for its sizes: weights are not read, and may still wait for calibration. Throws as `compileModel`. */
export function unreadProgram(model: Model, given: CompileModelOptions = {}): Program {
  return compiled(model, given, true);
}

function compiled(model: Model, options: CompileModelOptions, unread: boolean): Program {
  checkModel(model);
  checkOptions(options);
  const { network } = model;
  const { sources, metadata } = isEncoderNetwork(network)
    ? { sources: [encoderSource(model, network, options, unread)], metadata: encoderMetadata(model, network, options) }
    : decoderProgram(model, options, unread);
  return compile(sources, {
    registry: operators,
    cpu: options.cpu ?? hostCpu(),
    target: options.target === "executorch" ? executorchTarget : undefined,
    metadata,
    namedData: namedData(model),
  });
}

/** Methods and metadata of a decoder's program. */
function decoderProgram(model: Model, options: CompileModelOptions, unread: boolean) {
  const { sources, sizes, longFrom, head } = decoderSources(model, options, unread);
  const facts = generationFacts(model.checkpoint);
  const metadata = new Map<string, number | boolean | readonly number[]>([
    ["get_max_seq_len", sizes.maxSeqLen],
    ["get_max_context_len", sizes.maxContextLen],
    ["get_vocab_size", model.decoder.vocabularySize],
    ["get_n_layers", model.decoder.layers],
    ["use_kv_cache", true],
    options.target === "executorch"
      ? ["use_sdpa_with_kv_cache", true]
      : ["get_max_logit_rows", logitRows(sizes.maxSeqLen)],
    ...(head ? ([["get_hidden_size", head.hidden]] as const) : []),
    ...(head ? ([["get_draft_vocab_size", head.vocabularySize]] as const) : []),
    ...(head?.isFixed ? ([["get_draft_fixed", 1]] as const) : []),
    ["enable_dynamic_shape", true],
    ...(longFrom === null ? [] : ([["get_long_context_from", longFrom]] as const)),
    ...(facts.bosId === null ? [] : ([["get_bos_id", facts.bosId]] as const)),
    ...(facts.eosIds.length === 0 ? [] : ([["get_eos_ids", facts.eosIds]] as const)),
  ]);
  return { sources, metadata };
}

function namedData(model: Model): Map<string, DataSource> {
  const sources = [...encodeAssets(assetsOf(model.checkpoint))].map(([key, bytes]): [string, DataSource] => [
    key,
    { byteLength: bytes.length, read: async () => bytes },
  ]);
  return new Map(sources);
}
