/** Model → program: the `forward` method, ExecuTorch's metadata methods, and the texts that generation needs. */
import { checkOptions } from "../arguments.ts";
import { type AbortOptions, checkModel, type Model } from "../checkpoint/model.ts";
import { textsOf } from "../checkpoint/texts.ts";
import { holdsFor } from "../checkpoint/weight-origins.ts";
import { capture, type MethodSource } from "../compile/capture.ts";
import { compile, type Target, targets } from "../compile/compile.ts";
import { EXECUTORCH_LAYOUT } from "../compile/executorch.ts";
import { argumentValues, type Graph } from "../compile/graph.ts";
import { byteSize } from "../dtype.ts";
import { ContextLengthError, InvalidArgumentError } from "../errors.ts";
import type { Cpu } from "../kernels/contract.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { LONG_METHOD } from "../language/session-decoder.ts";
import { encodeTexts } from "../language/texts.ts";
import type { ForwardOptions, WeightLookup } from "../model/decoder.ts";
import { checkOutput } from "../node-file.ts";
import { EagerBuilder } from "../ops/eager.ts";
import { type KvCacheType, kvCacheTypes } from "../ops/kv-cache.ts";
import { Ops } from "../ops/ops.ts";
import { operators } from "../ops/registry.ts";
import type { Weight } from "../ops/weight.ts";
import type { DataSource, Program } from "../program/program.ts";
import { saveProgram } from "../program/save.ts";
import { elementCount, type Tensor } from "../tensor.ts";
import { generationFacts } from "./generation-facts.ts";
import { resumeKey } from "./resume-key.ts";

/**
 * How a checkpoint becomes a program: context length, type of the KV cache, target and CPU. Every field has a default.
 */
export interface CompileModelOptions extends AbortOptions {
  /** The CPU that weights are packed for. Default: this one. */
  readonly cpu?: Cpu;
  /** Most tokens of one call; longer prompts are run in chunks. Default: 512, or the context if that is shorter. */
  readonly maxSeqLen?: number | undefined;
  /** Positions that the KV cache holds. Default: the model's, at most 2048. */
  readonly maxContextLen?: number | undefined;
  /** Logits [1, V] of the last token (default), or [1, T, V] of all. */
  readonly logits?: "last" | "all";
  /** Who runs the program. For ExecuTorch, fused operators become those that it has, and weights its layout. */
  readonly target?: Target | undefined;
  /**
   * What keys and values are kept in: each token reads all of them, and f16 halves, int8 quarters what f32 takes.
   * Default: f32 while the whole cache is at most 32 MiB in f32, which stays in processor caches; else f16. ExecuTorch's is f32.
   */
  readonly kvCache?: KvCacheType | undefined;
}

const F32_CACHE_BYTES_MAX = 32 * 2 ** 20;

const CONTEXT_DEFAULT_MAX = 2048;
const CHUNK_DEFAULT_MAX = 512;

/** Values of options that name one of a few. */
const choices = { kvCache: kvCacheTypes, logits: ["last", "all"], target: targets } as const;

function checkChoices(options: CompileModelOptions): void {
  for (const [name, known] of Object.entries(choices)) {
    const value = options[name as keyof typeof choices];
    if (value != null && !known.some((choice) => choice === value))
      throw new InvalidArgumentError(`${name}: expected ${known.join(" or ")} but found ${value}`);
  }
}

interface Lengths {
  /** Most tokens of one call. */
  readonly maxSeqLen: number;
  /** Positions of the KV cache. */
  readonly maxContextLen: number;
}

function lengths(model: Model, options: CompileModelOptions): Lengths {
  checkModel(model);
  checkOptions(options);
  checkChoices(options);
  const { contextLength } = model.decoder;
  const maxContextLen = options.maxContextLen ?? Math.min(contextLength, CONTEXT_DEFAULT_MAX);
  const maxSeqLen = options.maxSeqLen ?? Math.min(maxContextLen, CHUNK_DEFAULT_MAX);
  check("maxContextLen", maxContextLen, contextLength);
  check("maxSeqLen", maxSeqLen, maxContextLen);
  return { maxSeqLen, maxContextLen };
}

function check(name: string, value: number, max: number): void {
  if (!Number.isInteger(value) || value < 1 || value > max)
    throw new InvalidArgumentError(`${name}: expected a whole number from 1 to ${max} but found ${value}`);
}

/** The options with the type of the KV cache filled in. */
function withCacheType(model: Model, options: CompileModelOptions, sizes: Lengths): CompileModelOptions {
  if (options.kvCache) return options;
  if (options.target === "executorch") return { ...options, kvCache: "f32" };
  const weights = weightsFor(model, options, true);
  const graph = capture(forwardSource(model, weights, options, sizes), operators, options.cpu ?? hostCpu());
  return { ...options, kvCache: stateBytes(graph) <= F32_CACHE_BYTES_MAX ? "f32" : "f16" };
}

/** Bytes of all states that a graph uses. */
function stateBytes(graph: Graph): number {
  const states = new Set(graph.nodes.flatMap(argumentValues).filter(({ kind }) => kind === "state"));
  return [...states].reduce((sum, { spec }) => sum + elementCount(spec.shape) * byteSize(spec.dtype), 0);
}

function forwardOptions(options: CompileModelOptions, capacity: number, longContext: boolean): ForwardOptions {
  return { capacity, logits: options.logits ?? "last", kvCache: options.kvCache ?? "f32", longContext };
}

/** Weights in the formats in which programs of these options have them; `unread`: for graphs alone. */
function weightsFor(model: Model, options: CompileModelOptions, unread: boolean): WeightLookup {
  const holds = holdsFor(options.target ?? "lowbit");
  const use = { signal: options.signal, layout: layoutFor(model, options.target), holds, unread };
  return (name) => model.weight(name, use);
}

/** forward(tokens int64 [1, T], input_pos int64 [1]) → float logits; T up to maxSeqLen. */
function forwardSource(
  { decoder }: Model,
  weights: WeightLookup,
  options: CompileModelOptions,
  { maxSeqLen, maxContextLen }: Lengths,
  longContext = false,
): MethodSource {
  return {
    name: longContext ? LONG_METHOD : "forward",
    inputs: [
      { name: "tokens", spec: { dtype: "i64", shape: [1, maxSeqLen] }, smallest: [1, 1] },
      { name: "input_pos", spec: { dtype: "i64", shape: [1] }, smallest: [1] },
    ],
    build: (builder, [tokens, position]) => [
      decoder.forward(
        new Ops(builder),
        weights,
        { tokens: tokens!, position: position! },
        forwardOptions(options, maxContextLen, longContext),
      ),
    ],
  };
}

/** The packed layout that a target asks for, if it does. */
function layoutFor({ layout }: Model, target: Target | undefined): string | undefined {
  if (target !== "executorch") return undefined;
  if (layout !== null && layout !== EXECUTORCH_LAYOUT)
    throw new InvalidArgumentError(`target executorch: expected layout ${EXECUTORCH_LAYOUT} but found ${layout}`);
  return EXECUTORCH_LAYOUT;
}

/** Length up to which `forward` serves a sequence, when the program holds longer ones that it does not serve. */
function longContextFrom({ decoder }: Model, { maxContextLen }: Lengths): number | null {
  const from = decoder.longContextFrom;
  return from !== null && from < maxContextLen ? from : null;
}

/**
 * The methods of a model's program, and the options with what was left open filled in. `unread`: for graphs whose weights are
 * not read, so that weights may still wait for calibration.
 */
export function methodSources(model: Model, given: CompileModelOptions, unread = false) {
  const sizes = lengths(model, given);
  const options = withCacheType(model, given, sizes);
  const weights = weightsFor(model, options, unread);
  const longFrom = longContextFrom(model, sizes);
  const long = longFrom === null ? [] : [forwardSource(model, weights, options, sizes, true)];
  return { sources: [forwardSource(model, weights, options, sizes), ...long], options, sizes, longFrom };
}

/**
 * Compiles a model to a program whose weights are packed when they are read. InvalidArgumentError for lengths that the
 * model does not have, options of unknown values and weights that wait for calibration, UnsupportedError for what the target
 * has no form for.
 */
export function compileModel(model: Model, given: CompileModelOptions = {}): Program {
  return compiled(model, given, false);
}

/**
 * Throws what `compileModel` would throw for these options once the model is calibrated or encoded: for before that work,
 * which takes long.
 */
export function checkCompiles(model: Model, given: CompileModelOptions = {}): void {
  compiled(model, given, true);
}

function compiled(model: Model, given: CompileModelOptions, unread: boolean): Program {
  const { sources, options, sizes, longFrom } = methodSources(model, given, unread);
  const facts = generationFacts(model.checkpoint);
  const metadata = new Map<string, number | boolean | readonly number[]>([
    ["get_max_seq_len", sizes.maxSeqLen],
    ["get_max_context_len", sizes.maxContextLen],
    ["get_vocab_size", model.decoder.vocabularySize],
    ["get_n_layers", model.decoder.layers],
    ["use_kv_cache", true],
    ...(options.target === "executorch" ? ([["use_sdpa_with_kv_cache", true]] as const) : []),
    ["enable_dynamic_shape", true],
    ...(longFrom === null ? [] : ([["get_long_context_from", longFrom]] as const)),
    ...(facts.bosId === null ? [] : ([["get_bos_id", facts.bosId]] as const)),
    ...(facts.eosIds.length === 0 ? [] : ([["get_eos_ids", facts.eosIds]] as const)),
  ]);
  return compile(sources, {
    registry: operators,
    cpu: options.cpu ?? hostCpu(),
    target: options.target ?? "lowbit",
    metadata,
    namedData: namedData(model),
  });
}

function namedData(model: Model): Map<string, DataSource> {
  const sources = [...encodeTexts(textsOf(model.checkpoint))].map(([key, bytes]): [string, DataSource] => [
    key,
    { byteLength: bytes.length, read: async () => bytes },
  ]);
  return new Map(sources);
}

/**
 * Options of `exportProgram`: those of compiling, and how the export tells its progress and goes on after an
 * interruption.
 */
export interface ExportOptions extends CompileModelOptions {
  /**
   * Aborted or killed, keep what was written (`<path>.partial`), and go on from there when the same is exported again.
   * Default: false, begin anew.
   */
  readonly resume?: boolean;
  /** Called as the file is written, with bytes done and bytes in all. What it throws ends the export. */
  onProgress?(doneBytes: number, totalBytes: number): void;
}

/**
 * Compiles a model and writes it as a `.pte` file, which appears complete or not at all, tensor by tensor. Throws as
 * `compileModel` does, and InvalidFileError for a path that cannot be written.
 */
export async function exportProgram(model: Model, path: string, options: ExportOptions = {}): Promise<void> {
  checkModel(model);
  await checkOutput(path, [model.checkpoint.folder]);
  const program = compileModel(model, options);
  const { onProgress, signal, resume = false } = options;
  await saveProgram(program, path, {
    resumeKey: resume ? await resumeKey(model) : null,
    ...(onProgress ? { onProgress } : {}),
    ...(signal ? { signal } : {}),
  });
}

/** A model executed operator by operator, without compiling: the same model code and kernels, for experiments. */
export class EagerModel {
  /** Positions of the KV cache. */
  readonly maxContextLen: number;
  readonly #model: Model;
  /** The weights that were read, whatever becomes of the model. */
  readonly #weights: WeightLookup;
  readonly #options: CompileModelOptions;
  readonly #builder: EagerBuilder;
  readonly #longFrom: number;
  /** Ids whose keys and values the builder's state holds, and whether those are of a sequence beyond `#longFrom`. */
  readonly #ids: number[] = [];
  #long = false;

  private constructor(
    model: Model,
    weights: WeightLookup,
    options: CompileModelOptions,
    builder: EagerBuilder,
    sizes: Lengths,
  ) {
    this.#model = model;
    this.#weights = weights;
    this.#options = options;
    this.#builder = builder;
    this.#longFrom = longContextFrom(model, sizes) ?? sizes.maxContextLen;
    this.maxContextLen = sizes.maxContextLen;
  }

  /** Reads all weights, and quantizes and packs them. */
  static async load(model: Model, given: CompileModelOptions = {}): Promise<EagerModel> {
    const sizes = lengths(model, given);
    const options = withCacheType(model, given, sizes);
    const cpu = options.cpu ?? hostCpu();
    const builder = new EagerBuilder(operators, cpu);
    const weights = remembered(weightsFor(model, options, false));
    const graphs = [false, true].map((long) =>
      capture(forwardSource(model, weights, options, sizes, long), operators, cpu),
    );
    const values = graphs.flatMap(({ nodes }) => nodes.flatMap(({ args }) => args));
    for (const value of values) {
      options.signal?.throwIfAborted();
      if (typeof value === "object" && value && "constant" in value && value.constant)
        await builder.load(value.constant);
    }
    return new EagerModel(model, weights, options, builder, sizes);
  }

  /** Computes logits of token ids at a position; keys and values of earlier positions are kept from earlier calls. */
  forward(ids: readonly number[], position: number): Tensor {
    const kept = this.#ids.length;
    if (!Number.isInteger(position) || position < 0 || position > kept)
      throw new InvalidArgumentError(`position: expected a whole number from 0 to ${kept} but found ${position}`);
    if (ids.length === 0 || position + ids.length > this.maxContextLen)
      throw new ContextLengthError(
        `expected 1 to ${this.maxContextLen - position} tokens at position ${position} but found ${ids.length}`,
      );
    this.#ids.length = position;
    const long = position + ids.length > this.#longFrom;
    // What was kept so far is of the other frequencies.
    if (long !== this.#long && position > 0) this.#run(this.#ids, 0, long);
    this.#long = long;
    const logits = this.#run(ids, position, long);
    for (const id of ids) this.#ids.push(id);
    return logits;
  }

  #run(ids: readonly number[], position: number, long: boolean): Tensor {
    const tokens: Tensor = { dtype: "i64", shape: [1, ids.length], data: BigInt64Array.from(ids, BigInt) };
    const start: Tensor = { dtype: "i64", shape: [1], data: BigInt64Array.of(BigInt(position)) };
    return this.#model.decoder.forward(
      new Ops(this.#builder),
      this.#weights,
      { tokens, position: start },
      forwardOptions(this.#options, this.maxContextLen, long),
    );
  }
}

/** The same weight whenever a name is asked for. */
function remembered(weights: WeightLookup): WeightLookup {
  const known = new Map<string, Weight>();
  return (name) => {
    const weight = known.get(name) ?? weights(name);
    known.set(name, weight);
    return weight;
  };
}
