/** A model executed operator by operator, without compiling. */
import { checkOptions, checkWhole } from "../arguments.ts";
import { type AbortOptions, checkModel, type Model } from "../checkpoint/model.ts";
import { capture, type MethodSource } from "../compile/capture.ts";
import { argumentValues } from "../compile/graph.ts";
import { ContextLengthError } from "../errors.ts";
import type { Cpu } from "../kernels/contract.ts";
import { hostCpu } from "../kernels/cpu.ts";
import type { WeightLookup } from "../model/decoder.ts";
import type { Builder, LazyConstant } from "../ops/builder.ts";
import { EagerBuilder } from "../ops/eager.ts";
import type { KvCacheType } from "../ops/kv-cache.ts";
import { Ops } from "../ops/ops.ts";
import { operators } from "../ops/registry.ts";
import type { Weight } from "../ops/weight.ts";
import type { Tensor } from "../tensor.ts";
import { checkChoices, longContextFrom, weightsFor } from "./compile-model.ts";

/** How a model is executed operator by operator: the CPU, positions that keys and values are kept for and their type, logits. */
export interface EagerOptions extends AbortOptions {
  /** The CPU that weights are packed for. Default: this one. */
  readonly cpu?: Cpu;
  /** Positions that keys and values are kept for. Default: the model's, at most 2048. */
  readonly contextLength?: number | undefined;
  /** Logits [1, V] of the last token (default), or [1, T, V] of all. */
  readonly logits?: "last" | "all";
  /** What keys and values are kept in. Default: f32. */
  readonly kvCache?: KvCacheType | undefined;
}

const CONTEXT_DEFAULT_MAX = 2048;

/** A model executed operator by operator, without compiling: the same model code and kernels, for experiments. */
export class EagerModel {
  /** Positions that keys and values are kept for. */
  readonly contextLength: number;
  readonly #model: Model;
  /** The weights that were read, whatever becomes of the model. */
  readonly #weights: WeightLookup;
  readonly #options: EagerOptions;
  readonly #builder: EagerBuilder;
  readonly #longFrom: number;
  /** Ids whose keys and values the builder's state holds, and whether those are of a sequence beyond `#longFrom`. */
  readonly #ids: number[] = [];
  #long = false;

  private constructor(
    model: Model,
    weights: WeightLookup,
    { options, builder, contextLength }: { options: EagerOptions; builder: EagerBuilder; contextLength: number },
  ) {
    this.#model = model;
    this.#weights = weights;
    this.#options = options;
    this.#builder = builder;
    this.#longFrom = longContextFrom(model, contextLength) ?? contextLength;
    this.contextLength = contextLength;
  }

  /** Reads (and quantizes and packs) all weights. InvalidArgumentError for a context that the model does not have. */
  static async load(model: Model, options: EagerOptions = {}): Promise<EagerModel> {
    checkModel(model);
    checkOptions(options);
    checkChoices(options);
    const most = model.decoder.contextLength;
    const contextLength = checkWhole(
      "contextLength",
      options.contextLength ?? Math.min(most, CONTEXT_DEFAULT_MAX),
      1,
      most,
    );
    const cpu = options.cpu ?? hostCpu();
    const builder = new EagerBuilder(operators, cpu);
    const weights = remembered(weightsFor(model, { signal: options.signal }, false));
    const eager = new EagerModel(model, weights, { options, builder, contextLength });
    for (const long of [false, true])
      for (const constant of eager.#constants(cpu, long)) {
        options.signal?.throwIfAborted();
        await builder.load(constant);
      }
    return eager;
  }

  /** Logits of token ids at a position; keys and values of earlier positions are kept from earlier calls. */
  forward(ids: readonly number[], position: number): Tensor {
    const kept = this.#ids.length;
    checkWhole("position", position, 0, kept);
    if (ids.length === 0 || position + ids.length > this.contextLength)
      throw new ContextLengthError(
        `expected 1 to ${this.contextLength - position} tokens at position ${position} but found ${ids.length}`,
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
    return this.#forward(this.#builder, tokens, start, long);
  }

  #forward<T>(builder: Builder<T>, tokens: T, position: T, longContext: boolean): T {
    const { logits = "last", kvCache = "f32" } = this.#options;
    return this.#model.decoder.forward(
      new Ops(builder),
      this.#weights,
      { tokens, position, rows: null },
      { cache: { capacity: this.contextLength, type: kvCache }, logits, longContext },
    );
  }

  /** What the calls of a pass read. */
  #constants(cpu: Cpu, long: boolean): LazyConstant[] {
    const vector = (name: string, shape: readonly number[]) =>
      ({ name, spec: { dtype: "i64", shape }, smallest: shape }) as const;
    const source: MethodSource = {
      name: "forward",
      inputs: [vector("tokens", [1, 1]), vector("input_pos", [1])],
      build: (builder, [tokens, position]) => [this.#forward(builder, tokens!, position!, long)],
    };
    const { nodes } = capture(source, operators, cpu);
    return nodes.flatMap(argumentValues).flatMap(({ constant }) => constant ?? []);
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
