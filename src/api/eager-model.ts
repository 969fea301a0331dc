/** A model executed operator by operator, without compiling. */
import { checkIds, checkOptions, checkWhole } from "../arguments.ts";
import { type AbortOptions, checkModel, type Model } from "../checkpoint/model.ts";
import { capture, type MethodSource } from "../compile/capture.ts";
import { argumentValues, type Graph, graphSequenceUses } from "../compile/graph.ts";
import { ContextLengthError } from "../errors.ts";
import type { Cpu } from "../kernels/contract.ts";
import { hostCpu } from "../kernels/cpu.ts";
import type { KvCacheType } from "../kernels/sequence-table.ts";
import type { WeightLookup } from "../model/decoder.ts";
import type { Builder } from "../ops/builder.ts";
import { EagerBuilder } from "../ops/eager.ts";
import { Ops } from "../ops/ops.ts";
import type { Weight } from "../ops/weight.ts";
import { operators } from "../registry/operators.ts";
import { checkKvCache } from "../runtime/sequence-options.ts";
import { SingleSequence } from "../sequences/single-sequence.ts";
import type { Tensor } from "../tensor.ts";
import { longContextFrom } from "./compile-model.ts";
import { checkChoices } from "./compile-options.ts";
import { weightsFor } from "./weights-for.ts";

/** How a model is executed operator by operator: CPU, context length, type of the KV cache, and which logits it gives. */
export interface EagerOptions extends AbortOptions {
  /** The CPU that weights are packed for. Default: this machine's. */
  readonly cpu?: Cpu;
  /** Positions of the KV cache. Default: the model's context length, at most 2048. */
  readonly contextLength?: number | undefined;
  /** Which logits `forward` gives: [1, V] of the last token (default), or [1, T, V] of all. */
  readonly logits?: "last" | "all";
  /** Type of the KV cache. Default: f32. */
  readonly kvCache?: KvCacheType | undefined;
}

const CONTEXT_DEFAULT_MAX = 2048;

/** A model executed operator by operator, without compiling: the same model code and kernels, for experiments. */
export class EagerModel {
  /** Positions of the KV cache. */
  readonly contextLength: number;
  readonly #forward: Forward;
  readonly #builder: EagerBuilder;
  readonly #sequence: SingleSequence;
  readonly #longFrom: number;
  /** Ids computed so far, and whether with the RoPE frequencies of sequences longer than `#longFrom`. */
  readonly #ids: number[] = [];
  #long = false;

  private constructor(
    forward: Forward,
    { builder, sequence }: { readonly builder: EagerBuilder; readonly sequence: SingleSequence },
    lengths: { readonly contextLength: number; readonly longFrom: number },
  ) {
    this.#forward = forward;
    this.#builder = builder;
    this.#sequence = sequence;
    this.#longFrom = lengths.longFrom;
    this.contextLength = lengths.contextLength;
  }

  /** Reads, quantizes and packs all weights. InvalidArgumentError for a context longer than the model's. */
  static async load(model: Model, options: EagerOptions = {}): Promise<EagerModel> {
    checkModel(model);
    checkOptions(options);
    checkChoices(options);
    const { signal, kvCache = "f32", cpu = hostCpu() } = options;
    const most = model.decoder.contextLength;
    const wanted = options.contextLength ?? Math.min(most, CONTEXT_DEFAULT_MAX);
    const contextLength = checkWhole("contextLength", wanted, 1, most);
    const forward = forwardOf(model, remembered(weightsFor(model, { signal }, false)), options);
    const graphs = [false, true].map((long) => graphOf(forward, cpu, long));
    const type = checkKvCache(kvCache);
    const sequence = new SingleSequence(graphSequenceUses(graphs[0]!, operators), { type, contextLength });
    const builder = new EagerBuilder(operators, cpu, { sequences: sequence.table });
    for (const { constant } of graphs.flatMap(({ nodes }) => nodes.flatMap(argumentValues))) {
      signal?.throwIfAborted();
      if (constant) await builder.load(constant);
    }
    const longFrom = longContextFrom(model, contextLength) ?? contextLength;
    return new EagerModel(forward, { builder, sequence }, { contextLength, longFrom });
  }

  /** Computes logits of token ids from a position on; keys and values of earlier positions are those of earlier calls. */
  forward(ids: readonly number[], position: number): Tensor {
    checkIds("ids", ids);
    for (const id of ids) checkWhole("ids", id, 0);
    checkWhole("position", position, 0, this.#ids.length);
    if (ids.length === 0 || position + ids.length > this.contextLength)
      throw new ContextLengthError(
        `expected 1 to ${this.contextLength - position} tokens at position ${position} but found ${ids.length}`,
      );
    this.#ids.length = position;
    const long = position + ids.length > this.#longFrom;
    // Keys and values so far were computed with the other RoPE frequencies.
    if (long !== this.#long) this.#sequence.restart(long ? "long" : "short");
    this.#long = long;
    // Sliding windows may have dropped positions that are needed to go on from here: those are computed again.
    const held = this.#sequence.truncate(Math.min(position, this.#sequence.position));
    if (held < position) this.#run(this.#ids.slice(held));
    const logits = this.#run(ids);
    for (const id of ids) this.#ids.push(id);
    return logits;
  }

  #run(ids: readonly number[]): Tensor {
    const { position } = this.#sequence;
    const tokens: Tensor = { dtype: "i64", shape: [1, ids.length], data: BigInt64Array.from(ids, BigInt) };
    const each = BigInt64Array.from(ids, (_, i) => BigInt(position + i));
    const positions: Tensor = { dtype: "i64", shape: [ids.length], data: each };
    const logits = this.#sequence.step(ids.length, () => this.#forward(this.#builder, tokens, positions, this.#long));
    this.#sequence.commit(ids);
    return logits;
  }
}

/** The model's forward pass on any builder. */
type Forward = <T>(builder: Builder<T>, tokens: T, position: T, longContext: boolean) => T;

function forwardOf(model: Model, weights: WeightLookup, { logits = "last" }: EagerOptions): Forward {
  return (builder, tokens, position, longContext) =>
    model.decoder.forward(
      new Ops(builder),
      weights,
      { tokens, position, rows: null },
      { cache: "sequences", logits, longContext },
    );
}

/** The graph of a forward pass of one token. */
function graphOf(forward: Forward, cpu: Cpu, long: boolean): Graph {
  const vector = (name: string, shape: readonly number[]) =>
    ({ name, spec: { dtype: "i64", shape }, smallest: shape }) as const;
  const source: MethodSource = {
    name: "forward",
    inputs: [vector("tokens", [1, 1]), vector("positions", [1])],
    build: (builder, [tokens, position]) => [forward(builder, tokens!, position!, long)],
  };
  return capture(source, operators, cpu);
}

/** A lookup that gives the same weight each time a name is asked for. */
function remembered(weights: WeightLookup): WeightLookup {
  const known = new Map<string, Weight>();
  return (name) => {
    const weight = known.get(name) ?? weights(name);
    known.set(name, weight);
    return weight;
  };
}
