/** Writes a model's tensors to a GGUF file: in its types, under its names, in its row order. */

import type { AbortOptions, Model } from "../../../checkpoint/model.ts";
import { holdsFor } from "../../../checkpoint/weight-origins.ts";
import { UnsupportedError } from "../../../errors.ts";
import type { WeightSlot } from "../../../model/decoder.ts";
import { GatedDelta } from "../../../model/gated-delta.ts";
import { expertStacks } from "../../../model/layer.ts";
import { Mamba2 } from "../../../model/mamba2.ts";
import { allLayers, type TransformerConfig } from "../../../model/transformer-config.ts";
import type { AffineFormat } from "../../../ops/lowering.ts";
import { type FloatWeight, floatWeight, type Weight } from "../../../ops/weight.ts";
import type { QuantizedWeights } from "../../../quantized.ts";
import { bytesOf, elementCount, toFloat32 } from "../../../tensor.ts";
import { pairMoves } from "../../head-rows.ts";
import { type Moves, movedValues, movedWeights } from "../../moved-weights.ts";
import type { GgufArchitecture } from "../architectures.ts";
import { draftTensorName } from "../draft-layer.ts";
import { type BlockType, blockBytes, blockTypeFor, encodeBlocks } from "../encode-blocks.ts";
import type { SuperBlockType } from "../encode-super-blocks.ts";
import { ggufName, isOffsetNorm } from "../model-tensors.ts";
import { deltaMoves } from "../recurrent.ts";
import type { GgufTensorEntry } from "../writer.ts";
import { encodedBytes, encodeFloats, matrixType } from "./floats.ts";
import { attentionOf } from "./metadata.ts";

export const F32 = 0;
const floatTypes = { f32: F32, f16: 1, bf16: 30 } as const;
/** Values of general.file_type, by the type of most weights. */
export const fileTypes = {
  ...{ F32: 0, F16: 1, Q4_0: 2, Q5_0: 8, Q8_0: 7, Q4_K: 14, Q5_K: 16, Q6_K: 18, IQ4_NL: 25, BF16: 32 },
} as const;

export interface WrittenTensor extends GgufTensorEntry {
  readonly typeName: keyof typeof fileTypes;
}

export interface TensorOptions extends AbortOptions {
  /** Type that all float matrices are quantized to, if any. */
  readonly blockType?: SuperBlockType["name"] | undefined;
}

/** How a file's tensor differs from the model's weight slot. */
interface TensorForm {
  readonly moves: Moves | null;
  /** Conversion of a vector's values. */
  readonly change: ((value: number) => number) | null;
  /** Shape of a vector that files store as a matrix; null to keep its own. */
  readonly shape: readonly number[] | null;
}

/**
 * The tensors of all weight slots; those of experts are stacks of matrices. UnsupportedError for weights that files cannot
 * hold.
 */
export function tensorsOf(
  model: Model,
  files: GgufArchitecture,
  config: TransformerConfig,
  options: TensorOptions,
): WrittenTensor[] {
  const formOf = formsOf(model, files, config);
  const stacks = new Map<string, string>();
  for (const { tensor, slots, experts } of expertStacks(allLayers(config)))
    if (/\.(gate|up|down)_exps\.(weight|bias)$/.test(tensor))
      for (let e = 0; e < experts; e++) for (const slot of slots) stacks.set(slot.replace("*", `${e}`), tensor);
  const tensors = new Map<string, { readonly parts: WrittenTensor[]; readonly isStack: boolean }>();
  for (const slot of model.decoder.slots) {
    if (!isWritten(model, slot)) continue;
    const stack = stacks.get(slot.name);
    const halves = files.halves?.[/\.layers\.\d+\.(.+)\.weight$/.exec(slot.name)?.[1] ?? ""];
    if (halves) {
      const layer = slot.name.split(".")[2]!;
      const whole = tensorOf(model, slot.name, slot, formOf(slot), options);
      for (const [half, part] of halves.entries()) {
        const name = `blk.${layer}.${part}.weight`;
        tensors.set(name, { parts: [halfOf(whole, name, half)], isStack: false });
      }
      continue;
    }
    const name = nameOf(stack ?? slot.name, files, config);
    if (name === null) throw new UnsupportedError(`${slot.name}: files of GGUF have no such tensor`);
    const tensor = tensors.get(name) ?? { parts: [], isStack: stack !== undefined };
    tensors.set(name, tensor);
    const part = tensorOf(model, name, slot, formOf(slot), options);
    if (tensor.isStack && tensor.parts.length > 0 && tensor.parts[0]!.type !== part.type)
      throw new UnsupportedError(`${slot.name}: files of GGUF have all experts of a layer in one type`);
    tensor.parts.push(part);
  }
  return [...tensors].map(([name, { parts, isStack }]) => (isStack ? stackOf(name, parts) : parts[0]!));
}

/** GGUF's name of a tensor; null for one that files do not have. A draft layer comes after the others. */
function nameOf(tensor: string, { names }: GgufArchitecture, { layers }: TransformerConfig): string | null {
  const name = draftTensorName(tensor, layers.length);
  return "file" in name ? name.file : ggufName(name.model, names);
}

/** Whether a slot gets a tensor of its own: a tied one does only if it was changed separately. */
function isWritten(model: Model, { name, tiedTo }: WeightSlot): boolean {
  if (tiedTo === null || model.slotWeight(name).state.kind === "replaced") return true;
  return model.configOf(name) !== model.configOf(tiedTo);
}

/** Conversions to llama.cpp's form: pairs of rows of heads, order of value heads, norms, and decay rates. */
function formsOf(
  model: Model,
  { interleaved, normOffset }: GgufArchitecture,
  config: TransformerConfig,
): (slot: WeightSlot) => TensorForm {
  const { headDim } = attentionOf(model, config);
  const heads = interleaved ? pairMoves({ headDim, rotated: headDim }) : null;
  const delta = config.layers.map(({ mixer }) => mixer).find((mixer) => mixer instanceof GatedDelta);
  const mamba = config.layers.map(({ mixer }) => mixer).find((mixer) => mixer instanceof Mamba2);
  const moved = delta ? deltaMoves(delta.config, "write") : () => null;
  const changeOf = ({ name }: WeightSlot) => {
    if (/\.(linear_attn|mamba)\.A_log$/.test(name)) return (log: number) => -Math.exp(log);
    return normOffset !== 0 && isOffsetNorm(name) ? (value: number) => value + normOffset : null;
  };
  return (slot) => ({
    moves: /\.[qk]_proj\./.test(slot.name) ? (slot.pairs ? pairMoves(slot.pairs) : heads) : moved(slot.name),
    change: changeOf(slot),
    shape: mamba ? mambaShape(mamba, slot) : null,
  });
}

/** Shape of Mamba 2's vectors in llama.cpp: per-head values as a column, the norm by groups. */
function mambaShape({ config: { heads, headDim, groups } }: Mamba2, { name }: WeightSlot): readonly number[] | null {
  if (/\.mamba\.(A_log|D)$/.test(name)) return [heads, 1];
  return name.endsWith(".mamba.norm.weight") ? [groups, (heads * headDim) / groups] : null;
}

/** The first or second half of a matrix's rows, as a tensor. */
function halfOf(whole: WrittenTensor, name: string, half: number): WrittenTensor {
  const [rows, columns] = whole.shape as [number, number];
  const byteLength = whole.byteLength / 2;
  return {
    ...whole,
    name,
    shape: [rows / 2, columns],
    byteLength,
    async *parts() {
      let at = -half * byteLength;
      for await (const part of whole.parts()) {
        const own = part.subarray(Math.max(0, -at), Math.max(0, Math.min(part.length, byteLength - at)));
        at += part.length;
        if (own.length > 0) yield own;
      }
    },
  };
}

/** Stacks the matrices of all experts. */
function stackOf(name: string, parts: readonly WrittenTensor[]): WrittenTensor {
  const [first] = parts as [WrittenTensor];
  return {
    ...{ ...first, name, shape: [parts.length, ...first.shape] },
    byteLength: parts.reduce((sum, { byteLength }) => sum + byteLength, 0),
    async *parts() {
      for (const part of parts) yield* part.parts();
    },
  };
}

function tensorOf(
  model: Model,
  name: string,
  slot: WeightSlot,
  form: TensorForm,
  options: TensorOptions,
): WrittenTensor {
  if (slot.role === "vector") return vectorTensor(name, floatWeight(model.weight(slot.name, options)), form);
  if (options.blockType !== undefined) {
    const type = matrixType(model, slot, options.blockType);
    const source = floatWeight(model.weight(slot.name, { ...options, float: true }));
    return type === null ? floatTensor(name, source, form) : encodedTensor(name, slot, source, type, form);
  }
  const weight = model.weight(slot.name, { ...options, holds: holdsFor("gguf") });
  if (weight.format.kind === "float") return floatTensor(name, floatWeight(weight), form);
  const { spec, levels } = "spec" in weight.format ? (weight.format as AffineFormat) : {};
  const type = spec ? blockTypeFor(spec, levels) : `format ${weight.format.kind} is not`;
  if (typeof type === "string")
    throw new UnsupportedError(`${slot.name}: cannot be written as blocks of GGUF: ${type}`);
  return blockTensor(name, weight as Weight<AffineFormat, QuantizedWeights>, type, form);
}

/** Tensor of a vector, or of a matrix that always stays float; a convolution of one input channel is [channels, taps]. */
function vectorTensor(name: string, weight: FloatWeight, { moves, change, shape: given }: TensorForm): WrittenTensor {
  const [size = 1, ...rest] = weight.shape;
  const shape = given ?? [size, ...rest.filter((other, i) => other !== 1 || i === rest.length - 1)];
  return {
    ...{ name, shape, type: F32, typeName: "F32", byteLength: 4 * elementCount(shape) },
    async *parts() {
      const values = toFloat32(await weight.load());
      const moved = moves === null ? values : movedValues(values, values.length / size, moves);
      yield bytesOf(change === null ? moved : moved.map(change));
    },
  };
}

function floatTensor(name: string, weight: FloatWeight, { moves }: TensorForm): WrittenTensor {
  const { shape, format } = weight;
  const [n, k] = shape as [number, number];
  const typeName = format.dtype.toUpperCase() as "F32" | "F16" | "BF16";
  return {
    ...{ name, shape, type: floatTypes[format.dtype], typeName },
    byteLength: n * k * (format.dtype === "f32" ? 4 : 2),
    async *parts() {
      for await (const { data } of partsOf(weight, moves))
        yield bytesOf(moves === null ? data : movedValues(data as Float32Array, k, moves));
    },
  };
}

function encodedTensor(
  name: string,
  slot: WeightSlot,
  weight: FloatWeight,
  type: NonNullable<ReturnType<typeof matrixType>>,
  { moves }: TensorForm,
): WrittenTensor {
  const [n, k] = slot.shape as [number, number];
  return {
    ...{ name, shape: [n, k], type: type.id, typeName: type.name, byteLength: encodedBytes(type, n, k) },
    async *parts() {
      for await (const part of partsOf(weight, moves)) {
        const values = toFloat32(part);
        yield encodeFloats(slot.name, type, moves === null ? values : movedValues(values, k, moves), k);
      }
    },
  };
}

function blockTensor(
  name: string,
  weight: Weight<AffineFormat, QuantizedWeights>,
  type: BlockType,
  { moves }: TensorForm,
): WrittenTensor {
  const { n, k } = weight.format.spec;
  return {
    ...{ name, shape: [n, k], type: type.id, typeName: type.name, byteLength: blockBytes(type, n, k) },
    async *parts() {
      for await (const part of partsOf(weight, moves)) {
        const moved = moves === null ? part : movedWeights(part, moves);
        if (moved === null)
          throw new UnsupportedError(
            `${weight.name}: groups of ${part.groupSize} are cut by llama.cpp's order of value heads; take smaller ones`,
          );
        yield encodeBlocks(type, moved);
      }
    },
  };
}

/** Loads a weight by rows, or whole where rows or columns are reordered. */
async function* partsOf<D>(weight: Pick<Weight<never, D>, "load" | "loadRows">, moves: Moves | null) {
  if (weight.loadRows && moves === null) yield* weight.loadRows();
  else yield await weight.load();
}

/** The type that takes the most bytes. */
export function commonType(tensors: readonly WrittenTensor[]): keyof typeof fileTypes {
  const bytes = new Map<keyof typeof fileTypes, number>();
  for (const { typeName, byteLength } of tensors) bytes.set(typeName, (bytes.get(typeName) ?? 0) + byteLength);
  return [...bytes].sort(([, a], [, b]) => b - a)[0]![0];
}
