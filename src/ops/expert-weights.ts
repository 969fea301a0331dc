/**
 * Weights of experts' linear layers: one constant (a stack) of equal parts, one for each expert, of which a mapped program
 * only reads the experts that are used.
 */
import type { TypedArray } from "../dtype.ts";
import { UnsupportedError } from "../errors.ts";
import { toFloat32 } from "../tensor.ts";
import type { Builder, LazyConstant } from "./builder.ts";
import { type AffineWeight, packedConstant, withColumns } from "./lowering.ts";
import type { MinimaFormat } from "./minima.ts";
import { joinRows } from "./packed-constant.ts";
import { floatWeight, type Weight } from "./weight.ts";

/** One expert's weights of a linear layer: matrices whose rows are concatenated, and their biases. */
interface ExpertPart {
  /** Matrices whose rows are concatenated. */
  readonly weights: readonly Weight[];
  /** Biases, one for each matrix; null without. */
  readonly biases: readonly Weight[] | null;
}

/** A linear layer over tokens that are sorted by expert. */
export interface ExpertLinear<T> {
  /** Name of the stack of all experts' weights, for listings. */
  readonly name: string;
  /** Weights of each expert. */
  readonly parts: readonly ExpertPart[];
  /** Result of the router (`Ops.route`). */
  readonly routing: T;
  /** Number of experts of each token. */
  readonly topK: number;
}

/**
 * Adds the calls that multiply x [1, T * topK, k] with the matrix of each row's expert. UnsupportedError where the experts'
 * weights differ in format.
 */
export function expertLinear<T>(builder: Builder<T>, x: T, layer: ExpertLinear<T>): T {
  const { kind } = checkAlike(layer);
  if (kind === "float") return floatLinear(builder, x, layer);
  if (kind === "affine") return packedLinear(builder, x, layer);
  if (kind === "minima") return minimaLinear(builder, x, layer);
  throw new UnsupportedError(`${layer.name}: experts with weights in format ${kind} are not supported`);
}

/** The format of a weight as text, without names and rows, for comparison. */
function formOf({ format }: Weight): string {
  const form = (key: string, value: unknown) => (key === "n" || key === "name" || key === "shape" ? undefined : value);
  return JSON.stringify(format, form);
}

function checkAlike<T>({ name, parts }: ExpertLinear<T>): Weight["format"] {
  const weights = parts.flatMap((part) => part.weights);
  const [first] = weights as [Weight];
  const other = weights.find((weight) => formOf(weight) !== formOf(first));
  if (other)
    throw new UnsupportedError(
      `${name}: expected weights of all experts in one form but found ${formOf(first)} of ${first.name} and ${formOf(other)} of ${other.name}; give them one configuration`,
    );
  return first.format;
}

/** A constant whose parts are read one by one. `byteLength` and `shape` are those of the whole. */
function stackConstant(
  constant: Omit<LazyConstant, "read" | "parts">,
  parts: () => AsyncIterable<TypedArray>,
): LazyConstant {
  return {
    ...constant,
    parts,
    async read() {
      const read: TypedArray[] = [];
      for await (const part of parts()) read.push(part);
      const [first] = read as [TypedArray];
      const length = read.reduce((sum, part) => sum + part.length, 0);
      const whole = new (first.constructor as new (length: number) => Uint8Array)(length);
      let at = 0;
      for (const part of read) {
        whole.set(part as Uint8Array, at);
        at += part.length;
      }
      return whole;
    },
  };
}

function floatLinear<T>(builder: Builder<T>, x: T, { name, parts, routing, topK }: ExpertLinear<T>): T {
  const [{ weights, biases }] = parts as [ExpertPart];
  const { dtype } = floatWeight(weights[0]!).format;
  const n = weights.reduce((sum, { shape }) => sum + shape[0]!, 0);
  const k = weights[0]!.shape[1]!;
  const experts = parts.map((part) => part.weights.map((weight) => ({ name: weight.name, rows: weight.shape[0]! })));
  const stacked = builder.constant(
    stackConstant({ key: `${name}:${dtype}`, dtype, shape: [parts.length, n, k], experts }, async function* () {
      for (const part of parts) for (const weight of part.weights) yield (await floatWeight(weight).load()).data;
    }),
  );
  const bias = biases && builder.constant(biasConstant(name, parts, n));
  return builder.call("lowbit::expert_linear.out", x, stacked, bias, routing, parts.length, topK);
}

function biasConstant(name: string, parts: readonly ExpertPart[], n: number): LazyConstant {
  const key = `${name.replace(/weight$/, "bias")}:f32`;
  return stackConstant({ key, dtype: "f32", shape: [parts.length, n] }, async function* () {
    for (const part of parts) for (const bias of part.biases ?? []) yield toFloat32(await floatWeight(bias).load());
  });
}

/** The packed weights of one expert, its matrices concatenated. */
function packedPart<T>(builder: Builder<T>, { weights, biases }: ExpertPart) {
  const packed = weights.map((weight, i) => packedConstant(builder, weight as AffineWeight, biases?.[i] ?? null));
  const [{ spec }] = packed as [(typeof packed)[number]];
  const n = weights.reduce((sum, { shape }) => sum + shape[0]!, 0);
  const joined =
    packed.length === 1
      ? packed[0]!.constant
      : joinRows(
          packed.map(({ constant }) => constant),
          true,
        );
  if (!joined) throw new UnsupportedError(`${weights[0]!.name}: cannot be packed together with ${weights[1]!.name}`);
  return { constant: joined, spec: { ...spec, n } };
}

function packedLinear<T>(builder: Builder<T>, x: T, { name, parts, routing, topK }: ExpertLinear<T>): T {
  const { format } = parts[0]!.weights[0] as AffineWeight;
  const packed = parts.map((part) => packedPart(builder, part));
  const [{ spec, constant }] = packed as [(typeof packed)[number]];
  const stacked = builder.constant(
    stackConstant(
      { key: `${name}:${constant.packed!.layout.name}`, dtype: "u8", shape: [parts.length * constant.shape[0]!] },
      async function* () {
        for (const part of packed) yield await part.constant.read();
      },
    ),
  );
  const operator = {
    int8: "expert_linear_8bit_block_act",
    int8_per_token: "expert_linear_8bit_act",
    float: "expert_linear_weight_only",
  }[format.activations];
  const input = withColumns(builder, x, spec.k - format.spec.k);
  const sizes = [parts.length, topK, spec.groupSize, spec.n, spec.k];
  return builder.call(`lowbit::${operator}.out`, input, stacked, routing, ...sizes);
}

/**
 * As for one matrix (ops/minima.ts): the product with integers and scales, plus that of the minima with sums of groups of
 * x.
 */
function minimaLinear<T>(builder: Builder<T>, x: T, layer: ExpertLinear<T>): T {
  const formats = (part: ExpertPart) => part.weights.map((weight) => (weight as Weight<MinimaFormat>).format);
  const { spec } = formats(layer.parts[0]!)[0]!.weights.format;
  const product = expertLinear(builder, x, {
    ...layer,
    parts: layer.parts.map((part) => ({ ...part, weights: formats(part).map(({ weights }) => weights) })),
  });
  const sums = builder.call("lowbit::group_sums.out", x, spec.groupSize);
  const minima = expertLinear(builder, sums, {
    ...layer,
    name: `${layer.name}.minima`,
    parts: layer.parts.map((part) => ({ biases: null, weights: formats(part).map(({ minima }) => minima) })),
  });
  return builder.call("aten::add.out", product, minima, 1);
}
