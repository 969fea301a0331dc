/**
 * Runs a float model over a text layer by layer: each operator call runs for all windows before the next call, so that only
 * the weights of one call and the activations between two calls are in memory.
 */
import { checkString, checkWhole } from "../../arguments.ts";
import { capture, type MethodSource } from "../../compile/capture.ts";
import {
  argumentValues,
  type Graph,
  type GraphNode,
  type GraphValue,
  graphSequenceUses,
  isGraphValue,
  renewArguments,
} from "../../compile/graph.ts";
import { viewOf, zeros } from "../../dtype.ts";
import { InvalidArgumentError, InvalidFileError } from "../../errors.ts";
import { nextMacrotask } from "../../event-loop.ts";
import type { Checkpoint } from "../../formats/contract.ts";
import { hostCpu } from "../../kernels/cpu.ts";
import type { Matrix } from "../../matrix.ts";
import type { Decoder, Network } from "../../model/decoder.ts";
import { isEncoderNetwork } from "../../model/encoder.ts";
import { EagerBuilder } from "../../ops/eager.ts";
import { Ops } from "../../ops/ops.ts";
import { weightName } from "../../ops/packed-constant.ts";
import type { Weight } from "../../ops/weight.ts";
import { operators } from "../../registry/operators.ts";
import { SingleSequence } from "../../sequences/single-sequence.ts";
import { elementCount, type Tensor, toFloat32 } from "../../tensor.ts";
import { readAssets } from "../../text/model-assets.ts";
import { WHOLE_TEXT } from "../../text/tokenizer.ts";
import { assetsOf } from "../assets.ts";
import { inChunks, joinRows, type LayerInputs, layerInputs, SumRoom, splitRows } from "./layer-inputs.ts";

/** How much of a text is read, in tokens, and an abort signal. */
export interface WalkOptions {
  /** Tokens of the text that are read, from its start. Default 4096; 16384 for GPTQ. */
  readonly maxTokens?: number | undefined;
  /** Tokens of a window, which attend to each other only. Default 512, or the context length if that is shorter. */
  readonly window?: number | undefined;
  /** Ends the walk; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** What reading a text needs of a model. */
export interface WalkedModel {
  /** Architecture of the model, with the slots of its weights. */
  readonly network: Network;
  /** Files that the weights are read from. */
  readonly checkpoint: Checkpoint;
  /** The weight of a slot, as floats. */
  weight(name: string, use: { readonly float: true }): Weight;
}

/** A linear layer that is about to run. */
export interface LinearLayer extends LayerInputs {
  /** Slot name of its weight. */
  readonly name: string;
}

/** Called with each linear layer; may give float32 weights [n, k] that the walk uses in place of the layer's. */
export type LinearVisitor = (layer: LinearLayer) => Promise<Float32Array | null>;

/** As `LinearVisitor`, by the slot name of the weight; also called with embeddings, for which `layer` is null. */
export type WeightVisitor = (name: string, layer: LinearLayer | null) => Promise<Float32Array | null>;

const LINEAR = "aten::linear.out";
const EXPERT_LINEAR = "lowbit::expert_linear.out";
const EMBEDDING = "aten::embedding.out";
const TOKENS_DEFAULT = 4096;
const WINDOW_DEFAULT = 512;
/** Most bytes of weights that are kept between the runs of `runForked`. */
const KEPT_BYTES_MAX = 2 ** 30;
/** Most characters that a token has on average: the rest of a text is not encoded. */
const CHARACTERS_MAX = 64;

/** Values that later calls need, a tensor for each window. */
type Values = Map<GraphValue, readonly Tensor[]>;

/** Token ids of the start of a text. InvalidFileError without a tokenizer, InvalidArgumentError without tokens. */
export function calibrationIds(model: WalkedModel, text: string, maxTokens = TOKENS_DEFAULT): readonly number[] {
  checkString("text", text);
  const { tokenizer } = readAssets(assetsOf(model.checkpoint), model.checkpoint.folder);
  if (!tokenizer)
    throw new InvalidFileError(model.checkpoint.folder, "expected a tokenizer.json to read the text with");
  checkWhole("tokens of the text", maxTokens, 1);
  const start = text.slice(0, maxTokens * CHARACTERS_MAX);
  const ids = tokenizer.encode(start, WHOLE_TEXT).slice(0, maxTokens);
  if (text.trim() === "" || ids.length === 0)
    throw new InvalidArgumentError("the text to calibrate with has no tokens");
  return ids;
}

/**
 * Windows of the start of a text: for a decoder, parts of `window` tokens (shorter for a short text, so that there are at
 * least `least`); for an encoder, lines with the special tokens of each. Throws as `calibrationIds`.
 */
export function calibrationWindows(
  model: WalkedModel,
  text: string,
  options: WalkOptions = {},
  least = 1,
): readonly number[][] {
  const { maxTokens = TOKENS_DEFAULT, window = WINDOW_DEFAULT } = options;
  const ids = calibrationIds(model, text, maxTokens);
  checkWhole("window", window, 1);
  const size = Math.min(window, model.network.contextLength, Math.max(1, Math.floor(ids.length / least)));
  if (isEncoderNetwork(model.network)) return linesOf(model, text, size, maxTokens);
  const parts = Array.from({ length: Math.ceil(ids.length / size) }, (_, i) => i * size);
  return parts.map((start) => ids.slice(start, start + size));
}

/** Ids of the first lines of a text, each cut to `size` tokens, up to `maxTokens` in all. */
function linesOf(model: WalkedModel, text: string, size: number, maxTokens: number): number[][] {
  const { tokenizer } = readAssets(assetsOf(model.checkpoint), model.checkpoint.folder);
  const lines: number[][] = [];
  let tokens = 0;
  for (const line of text.split("\n")) {
    if (tokens >= maxTokens) break;
    if (line.trim() === "") continue;
    const ids = tokenizer!.encode(line.slice(0, size * CHARACTERS_MAX), WHOLE_TEXT).slice(0, size);
    lines.push(ids);
    tokens += ids.length;
  }
  return lines;
}

/** Inputs of the forward pass for a window, by name. */
function windowInputs({ network }: WalkedModel, ids: readonly number[]) {
  const rows = ids.length;
  const ints = (shape: readonly number[], values: Iterable<number>): Tensor => ({
    ...{ dtype: "i64", shape },
    data: BigInt64Array.from(Array.from(values), BigInt),
  });
  const isEncoder = isEncoderNetwork(network);
  const first = isEncoder ? network.firstPosition : 0;
  return {
    tokens: ints([1, rows], ids),
    positions: ints(
      isEncoder ? [1, rows] : [rows],
      ids.map((_, i) => first + i),
    ),
    offsets: ints([2], [0, rows]),
    types: ints(
      [1, rows],
      ids.map(() => 0),
    ),
  };
}

export class FloatWalk {
  readonly #graph: Graph;
  /** KV cache, which is emptied for each window and call, since no call reads what another keeps. */
  readonly #sequence: SingleSequence | null;
  readonly #builder: EagerBuilder;
  readonly #inputs: Values;
  /** Index of the last node that reads each value. */
  readonly #lastUse = new Map<GraphValue, number>();
  readonly #signal: AbortSignal | undefined;
  /** Sums of products of the last layer's inputs, for layers with the same inputs. */
  #sums: { inputs: readonly Tensor[]; known: Map<string, Matrix> } | null = null;
  readonly #sumRoom = new SumRoom();
  /** Constants that are kept for several runs. */
  readonly #kept = new Map<GraphValue, Tensor>();
  #keptRoom = 0;
  #room = new Float32Array(0);

  /** Reads windows of ids, which do not see each other: parts of a text for a decoder, texts for an encoder. */
  constructor(model: WalkedModel, windows: readonly (readonly number[])[], { signal }: WalkOptions = {}) {
    const size = windows.reduce((most, { length }) => Math.max(most, length), 0);
    this.#graph = captureFloat(model, size);
    const uses = graphSequenceUses(this.#graph, operators);
    this.#sequence = uses.length === 0 ? null : new SingleSequence(uses, { type: "f32", contextLength: size });
    const sequences = this.#sequence ? { sequences: this.#sequence.table } : {};
    this.#builder = new EagerBuilder(operators, hostCpu(), sequences);
    this.#signal = signal;
    const inputs = windows.map((ids) => windowInputs(model, ids));
    this.#inputs = new Map(
      this.#graph.inputs.map((value) => [value, inputs.map((tensors) => tensors[value.name as keyof typeof tensors]!)]),
    );
    for (const [i, node] of this.#graph.nodes.entries())
      for (const value of argumentValues(node)) this.#lastUse.set(value, i);
    for (const output of this.#graph.outputs) this.#lastUse.set(output, Number.POSITIVE_INFINITY);
  }

  /**
   * Calls the visitor with each linear layer. The last of them does not run, since logits of a whole text take much memory.
   * With `float`, values of the unchanged float model are computed as well, once the visitor has changed weights.
   */
  async visit(visit: LinearVisitor, { float = false } = {}): Promise<void> {
    const { nodes } = this.#graph;
    const last = nodes.findLastIndex(({ operator }) => operator === LINEAR);
    const streams: Streams = { values: new Map(this.#inputs), float: float ? new Map(this.#inputs) : null };
    for (let i = 0; i < last; i++)
      await this.#step(i, streams, async (_, layer) => (layer === null ? null : visit(layer)));
    if (last >= 0) await visit(this.#layer(nodes[last]!, streams));
  }

  /** Gives the logits [1, T, V] of each window, with the visitor's weights. */
  async run(visit: WeightVisitor): Promise<readonly Tensor[]> {
    const values: Values = new Map(this.#inputs);
    for (let i = 0; i < this.#graph.nodes.length; i++) await this.#step(i, { values, float: null }, visit);
    return values.get(this.#graph.outputs[0]!)!;
  }

  /**
   * Calls `visit` with each call's weights, by slot names, in order, while the model runs with float weights. `fork` runs
   * the rest of the model with other weights for that call alone, and gives the logits. Of the head, only `headRows`
   * (ascending) are used, here and for the visitor: logits are [1, T, rows].
   */
  async runForked(
    headRows: readonly number[],
    visit: (names: readonly string[], fork: (visit: WeightVisitor) => Promise<readonly Tensor[]>) => Promise<void>,
  ): Promise<void> {
    const values: Values = new Map(this.#inputs);
    this.#keptRoom = KEPT_BYTES_MAX;
    const head = this.#graph.nodes.findLast(({ operator }) => operator === LINEAR);
    for (const value of head?.args.slice(1) ?? [])
      if (isGraphValue(value)) this.#kept.set(value, await rowsOfTable(value, headRows));
    for (const [i, node] of this.#graph.nodes.entries()) {
      const names = weightNames(node);
      if (names.length > 0) await visit(names, (visitor) => this.#fork(i, new Map(values), visitor));
      await this.#step(i, { values, float: null }, unchanged);
    }
    this.#kept.clear();
    this.#keptRoom = 0;
  }

  async #fork(first: number, values: Values, visit: WeightVisitor): Promise<readonly Tensor[]> {
    const own = new Map<GraphValue, readonly Tensor[]>();
    for (let i = first; i < this.#graph.nodes.length; i++) {
      await this.#step(i, { values, float: null }, i === first ? visit : unchanged, true);
      for (const value of argumentValues(this.#graph.nodes[i]!))
        if (!values.has(value)) {
          for (const tensor of own.get(value) ?? []) this.#builder.recycle(tensor);
          own.delete(value);
        }
      const { out } = this.#graph.nodes[i]!;
      const made = values.get(out);
      if (made) own.set(out, made);
    }
    return values.get(this.#graph.outputs[0]!)!;
  }

  /** `keepsMemory`: memory of values is not reused, since other runs still read them. */
  async #step(index: number, streams: Streams, visit: WeightVisitor, keepsMemory = false): Promise<void> {
    this.#signal?.throwIfAborted();
    const node = this.#graph.nodes[index]!;
    const read = argumentValues(node);
    const { values, float } = streams;
    const weights = await this.#visited(node, streams, visit);
    const isFloat = !weights && read.every((value) => !float || float.get(value) === values.get(value));
    const constants = new Map<GraphValue, Tensor>();
    const load = async (value: GraphValue) => constants.set(value, await this.#constant(value));
    if (float && !isFloat) {
      for (const value of read) if (value.constant) await load(value);
      float.set(node.out, this.#call(node, float, constants));
    }
    if (weights) {
      const value = weightValue(node);
      const [, ...columns] = value.spec.shape;
      const rows = weights.length / elementCount(columns);
      constants.set(value, { dtype: "f32", shape: [rows, ...columns], data: weights });
    }
    if (node.operator === EMBEDDING && !weights) values.set(node.out, await this.#lookUp(node, values));
    else {
      for (const value of read) if (value.constant && !constants.has(value)) await load(value);
      values.set(node.out, this.#call(node, values, constants));
    }
    if (isFloat) float?.set(node.out, values.get(node.out)!);
    for (const value of [...read, node.out])
      if ((this.#lastUse.get(value) ?? index) <= index) {
        if (keepsMemory || this.#inputs.has(value)) for (const stream of [values, float]) stream?.delete(value);
        else this.#release(value, streams);
      }
    await nextMacrotask();
  }

  /** Drops a value that no later call reads, and reuses its memory for later results, since allocating costs time. */
  #release(value: GraphValue, { values, float }: Streams): void {
    const lists = new Set([values.get(value), float?.get(value)].filter((list) => list !== undefined));
    for (const stream of [values, float]) stream?.delete(value);
    for (const list of lists) {
      const bytes = new Map<ArrayBufferLike, number>();
      for (const { data } of list) bytes.set(data.buffer, (bytes.get(data.buffer) ?? 0) + data.byteLength);
      for (const [buffer, used] of bytes)
        if (used === buffer.byteLength)
          this.#builder.recycle({ dtype: "u8", shape: [used], data: viewOf("u8", buffer, 0, used) });
    }
  }

  /** A constant as stored, kept for other runs where there is room. */
  async #constant(value: GraphValue): Promise<Tensor> {
    const known = this.#kept.get(value);
    if (known) return known;
    const tensor = { ...value.spec, data: await value.constant!.read() };
    if (tensor.data.byteLength <= this.#keptRoom) {
      this.#keptRoom -= tensor.data.byteLength;
      this.#kept.set(value, tensor);
    }
    return tensor;
  }

  /** The visitor's float32 weights for a node; null for the stored ones. */
  async #visited(node: GraphNode, streams: Streams, visit: WeightVisitor): Promise<Float32Array | null> {
    if (node.operator === EXPERT_LINEAR) return this.#visitedExperts(node, streams.values, visit);
    const [name] = weightNames(node);
    if (name === undefined) return null;
    return visit(name, node.operator === EMBEDDING ? null : this.#layer(node, streams));
  }

  /** Calls the visitor with each weight of each expert, and the tokens that reach the expert, which may be none. */
  async #visitedExperts(node: GraphNode, values: Values, visit: WeightVisitor): Promise<Float32Array | null> {
    const { constant, spec } = weightValue(node);
    const [, n = 0, k = 0] = spec.shape;
    let all: Float32Array | null = null;
    for (const [expert, weights] of constant!.experts!.entries()) {
      const layer = layerInputs(k, rowsOfExpert(node, values, expert));
      let first = expert * n;
      for (const { name, rows } of weights) {
        const found = await visit(name, { name, ...layer });
        if (found) {
          all ??= toFloat32({ ...spec, data: await constant!.read() }).slice();
          all.set(found, first * k);
        }
        first += rows;
      }
    }
    return all;
  }

  /** Runs the call for each window; float linear layers take many windows at once. */
  #call(node: GraphNode, values: Values, constants: ReadonlyMap<GraphValue, Tensor>): Tensor[] {
    const x = node.args[0] as GraphValue;
    if (node.operator === LINEAR)
      return inChunks(values.get(x)!).flatMap((chunk) => {
        const rows = joinRows(chunk, (length) => this.#roomFor(length));
        return splitRows(
          this.#callWith(node, (value) => (value === x ? rows : constants.get(value)!)),
          chunk,
        );
      });
    const windows = this.#inputs.values().next().value!;
    const isOnSequence = argumentValues(node).some(({ kind }) => kind === "sequences");
    return windows.map(({ data }, w) => {
      const tensorOf = (value: GraphValue): Tensor => {
        if (value.kind === "constant") return constants.get(value)!;
        return value.kind === "sequences" ? this.#builder.sequences() : values.get(value)![w]!;
      };
      const call = () => this.#callWith(node, tensorOf);
      return isOnSequence ? this.#sequence!.step(data.length, call) : call();
    });
  }

  /** Memory for the inputs of one call, reused since allocating costs time. */
  #roomFor(length: number): Float32Array {
    if (this.#room.length < length) this.#room = new Float32Array(length);
    return this.#room;
  }

  /** Looks embeddings up for each window, reading only the rows that are used, so that no embedding is whole in memory. */
  async #lookUp(node: GraphNode, values: Values): Promise<Tensor[]> {
    const [table, indices] = node.args as readonly [GraphValue, GraphValue];
    const windows = values.get(indices)!;
    const ids = new Set(windows.flatMap(({ data }) => Array.from(data, Number)));
    const rows = [...ids].sort((a, b) => a - b);
    const places = new Map(rows.map((row, i) => [row, BigInt(i)]));
    const read = await rowsOfTable(table, rows);
    return windows.map((window) => {
      const data = BigInt64Array.from(window.data as BigInt64Array, (id) => places.get(Number(id))!);
      return this.#callWith(node, (value) => (value === table ? read : { ...window, data }));
    });
  }

  #callWith(node: GraphNode, tensorOf: (value: GraphValue) => Tensor): Tensor {
    return this.#builder.call(node.operator, ...renewArguments(node, tensorOf));
  }

  #layer(node: GraphNode, { values, float }: Streams): LinearLayer {
    const value = node.args[0] as GraphValue;
    const [inputs, floats] = [values.get(value)!, float?.get(value)];
    if (this.#sums?.inputs !== inputs) this.#sums = { inputs, known: new Map() };
    const known = floats && floats !== inputs ? floats : null;
    return {
      name: weightNames(node)[0]!,
      ...layerInputs(value.spec.shape.at(-1)!, inputs, known, this.#sums.known, this.#sumRoom),
    };
  }
}

/** Values with the visitor's weights, and optionally those with the float weights. */
interface Streams {
  readonly values: Values;
  readonly float: Values | null;
}

/** Calls a visitor with all float linear layers while the model reads a text. */
export async function visitLinearLayers(
  model: WalkedModel,
  text: string,
  visit: LinearVisitor,
  options: WalkOptions = {},
): Promise<void> {
  await new FloatWalk(model, calibrationWindows(model, text, options), options).visit(visit);
}

/** The graph of the forward pass with stored weights and logits of all positions. Constants are named after slots. */
function captureFloat(model: WalkedModel, window: number): Graph {
  const { network } = model;
  const options = { cache: "sequences", logits: "all", longContext: false } as const;
  const weights = (name: string) => ({ ...model.weight(name, { float: true }), name });
  const row = (name: string) => ({ name, spec: { dtype: "i64", shape: [1, window] }, smallest: [1, 1] }) as const;
  if (isEncoderNetwork(network)) {
    const offsets = { name: "offsets", spec: { dtype: "i64", shape: [2] }, smallest: [2] } as const;
    const inputs = [row("tokens"), row("positions"), offsets, ...(network.tokenTypes > 1 ? [row("types")] : [])];
    const source: MethodSource = {
      name: network.task,
      inputs,
      build: (builder, [tokens, positions, offsets, types]) => [
        network.compute(new Ops(builder), weights, {
          ...{ tokens: tokens!, positions: positions!, offsets: offsets!, types: types ?? null },
        }),
      ],
    };
    return capture(source, operators, hostCpu());
  }
  return capture(
    {
      name: "forward",
      inputs: [row("tokens"), { name: "positions", spec: { dtype: "i64", shape: [window] }, smallest: [1] }],
      build(builder, [tokens, position]) {
        const { draftHead, forward } = network as Decoder;
        const inputs = { tokens: tokens!, position: position!, rows: null };
        if (draftHead) return draftHead.forwardAll(new Ops(builder), weights, inputs);
        return [forward(new Ops(builder), weights, inputs, options)];
      },
    },
    operators,
    hostCpu(),
  );
}

/** A visitor that changes no weight. */
const unchanged: WeightVisitor = async () => null;

/** The weight argument of a linear, expert or embedding call. */
function weightValue({ operator, args }: GraphNode): GraphValue {
  return args[operator === EMBEDDING ? 0 : 1] as GraphValue;
}

/** Some rows of an embedding [n, k], or numbers of a vector [n], given in ascending order. */
async function rowsOfTable({ spec, constant }: GraphValue, rows: readonly number[]): Promise<Tensor> {
  const [, ...inner] = spec.shape;
  const columns = elementCount(inner);
  const data = zeros(spec.dtype, rows.length * columns);
  let [first, found] = [0, 0];
  for await (const part of constant!.parts?.() ?? [await constant!.read()]) {
    const end = first + part.length / columns;
    for (; found < rows.length && rows[found]! < end; found++) {
      const start = (rows[found]! - first) * columns;
      data.set(part.subarray(start, start + columns) as Float32Array & BigInt64Array, found * columns);
    }
    if (found === rows.length) break;
    first = end;
  }
  return { dtype: spec.dtype, shape: [rows.length, ...inner], data };
}

/** Slot names of a call's weights; empty for calls without weights. */
function weightNames(node: GraphNode): readonly string[] {
  const { operator } = node;
  if (operator !== LINEAR && operator !== EMBEDDING && operator !== EXPERT_LINEAR) return [];
  const { name, constant } = weightValue(node);
  if (operator === EXPERT_LINEAR) return constant!.experts!.flatMap((weights) => weights.map(({ name }) => name));
  return [weightName(name!)];
}

/** The tokens of each window that reach an expert, found as in `kernels/routing.ts`. */
function rowsOfExpert({ args }: GraphNode, values: Values, expert: number): Tensor[] {
  const [x, , , routing] = args as readonly GraphValue[];
  const routings = values.get(routing!)!;
  return values.get(x!)!.map(({ shape, data, ...tensor }, w) => {
    const [first, end] = [0, 1].map((i) => routings[w]!.data[expert + i] as number) as [number, number];
    const columns = shape.at(-1)!;
    const rows = (data as Float32Array).subarray(first * columns, end * columns);
    return { ...tensor, shape: [end - first, columns], data: rows };
  });
}
