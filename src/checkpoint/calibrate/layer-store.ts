/** Where calibrated layers are until they are packed: in memory, or in a folder when that is to stay small. */
import { join } from "node:path";
import { writeSafetensors } from "../../formats/safetensors-writer.ts";
import { openTensorFile } from "../../formats/shards.ts";
import { makeFolder } from "../../node-file.ts";
import { groupCount, type QuantizedWeights } from "../../quantized.ts";

/** Gives the weights again, as often as they are asked for. */
export type LoadLayer = () => Promise<QuantizedWeights>;

export class LayerStore {
  readonly #folder: string | undefined;

  constructor(folder?: string) {
    this.#folder = folder;
  }

  /** Keeps a layer, in place of an earlier one of its name. */
  async keep(name: string, weights: QuantizedWeights): Promise<LoadLayer> {
    if (this.#folder === undefined) return async () => weights;
    await makeFolder(this.#folder);
    const path = join(this.#folder, `${name}.safetensors`);
    const { qvals, scales, zeros, n, k } = weights;
    const shape = [n, groupCount(weights)];
    await writeSafetensors(path, [
      { name: "qvals", dtype: "i8", shape: [n, k], data: async () => qvals },
      { name: "scales", dtype: "f32", shape, data: async () => scales },
      ...(zeros ? [{ name: "zeros", dtype: "i8" as const, shape, data: async () => zeros }] : []),
    ]);
    const { qvals: _q, scales: _s, zeros: _z, ...rest } = weights;
    return () => load(path, rest);
  }
}

async function load(
  path: string,
  rest: Omit<QuantizedWeights, "qvals" | "scales" | "zeros">,
): Promise<QuantizedWeights> {
  const file = await openTensorFile(path);
  try {
    const qvals = (await file.read("qvals")).data as Int8Array;
    const scales = (await file.read("scales")).data as Float32Array;
    const zeros = rest.hasZeros ? ((await file.read("zeros")).data as Int8Array) : null;
    return { ...rest, qvals, scales, zeros };
  } finally {
    await file.close();
  }
}
