/**
 * Matrices with a factor in a tensor of its own, "blk.0.attn_q.scale" for "blk.0.attn_q.weight": llama.cpp multiplies the product by it
 * (NVFP4's scale of all scales).
 */
import { UnsupportedError } from "../../errors.ts";
import { elementCount, type Tensor, toFloat32 } from "../../tensor.ts";
import { quote } from "../json.ts";
import type { LowBitTensor } from "../tensor-source.ts";
import type { GgufTensors } from "./tensors.ts";

/**
 * `tensors` with the factors in the matrices, and without the tensors of factors. `names`: tensors of layers that an
 * architecture has of its own, "ffn_gate_inp.scale", which are no such factors.
 */
export function withFactors(
  file: string,
  tensors: GgufTensors,
  names: Readonly<Record<string, string>> = {},
): GgufTensors {
  const factorOf = new Map<string, string>();
  for (const factor of tensors.names) {
    const name = factor.replace(/\.scale$/, ".weight");
    if (name === factor || !tensors.has(name) || Object.hasOwn(names, factor.replace(/^blk\.\d+\./, ""))) continue;
    const { dtype, shape } = tensors.info(factor);
    if (dtype !== "f32" || elementCount(shape) !== 1)
      throw new UnsupportedError(
        `${file}: tensor ${quote(factor)}: expected one F32 but found ${dtype} [${shape}], which is not supported`,
      );
    factorOf.set(name, factor);
  }
  if (factorOf.size === 0) return tensors;
  const hidden = new Set(factorOf.values());
  const read = async (name: string) => (await tensors.read(factorOf.get(name)!)).data[0] as number;
  const multiplied = async (name: string, tensor: Tensor): Promise<Tensor> => {
    if (!factorOf.has(name)) return tensor;
    const factor = await read(name);
    return { dtype: "f32", shape: tensor.shape, data: toFloat32(tensor).map((value) => value * factor) };
  };
  return {
    ...tensors,
    names: tensors.names.filter((name) => !hidden.has(name)),
    has: (name) => tensors.has(name) && !hidden.has(name),
    info: (name) => (factorOf.has(name) ? { ...tensors.info(name), dtype: "f32" } : tensors.info(name)),
    read: async (name) => multiplied(name, await tensors.read(name)),
    readRows: async (name, first, count) => multiplied(name, await tensors.readRows(name, first, count)),
    lowBit(name) {
      const found = tensors.lowBit(name);
      return found && factorOf.has(name) ? withFactor(found, () => read(name)) : found;
    },
  };
}

/** A tensor with its integers and other scales; null where minima would have to be multiplied, too. */
function withFactor(found: LowBitTensor, factor: () => Promise<number>): LowBitTensor | null {
  if (found.minima) return null;
  const { factored, ...rest } = found;
  // Factors of integer scales are float16 numbers.
  const keeps = factored === "e4m3";
  return {
    ...rest,
    ...(keeps && { factored }),
    spec: { ...found.spec, scaleDType: "f32" },
    async rows(first, count) {
      const { superScales, ...weights } = await found.rows(first, count);
      const by = await factor();
      const times = (values: Float32Array) => values.map((value) => value * by);
      const factors = keeps && superScales && { superScales: times(superScales) };
      return { ...weights, scaleDType: "f32", scales: times(weights.scales), ...factors };
    },
  };
}
