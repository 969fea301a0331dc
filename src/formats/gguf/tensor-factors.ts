/**
 * Matrices with a scale factor in a separate tensor, "blk.0.attn_q.scale" for "blk.0.attn_q.weight": llama.cpp multiplies the
 * product by it (NVFP4's per-tensor scale).
 */
import { UnsupportedError } from "../../errors.ts";
import { elementCount, type Tensor, toFloat32 } from "../../tensor.ts";
import { quote } from "../json.ts";
import type { LowBitTensor } from "../tensor-source.ts";
import type { GgufTensors } from "./tensors.ts";

/**
 * Multiplies the factors into the matrices and hides the factor tensors. `names`: an architecture's own layer tensors, such as
 * "ffn_gate_inp.scale", which are no such factors.
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

/** A low-bit tensor with its scales multiplied by the factor; null where it has minima, which would need it, too. */
function withFactor(found: LowBitTensor, factor: () => Promise<number>): LowBitTensor | null {
  if (found.minima) return null;
  const { factored, ...rest } = found;
  // Factored integer scales need a float16 factor, which the product may not be.
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
