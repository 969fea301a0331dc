/**
 * Keeps calibrated layers until they are packed: in memory, or in a folder to save memory. After a run was killed, the same
 * run goes on with its layers in the folder.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { InvalidFileError, LowbitError } from "../../errors.ts";
import { writeSafetensors } from "../../formats/safetensors-writer.ts";
import { openTensorFile } from "../../formats/shards.ts";
import { checksum } from "../../kernels/layout/header.ts";
import { logInfo } from "../../log.ts";
import { makeFolder } from "../../node-file.ts";
import { groupCount, hasFactors, type QuantizedWeights, superGroupCount, type WeightSpec } from "../../quantized.ts";
import { bytesOf, type Tensor } from "../../tensor.ts";

/** Gives the weights of a kept layer, as often as it is called. */
export type LoadLayer = () => Promise<QuantizedWeights>;

export class LayerStore {
  readonly #folder: string | undefined;
  readonly #key: string;

  /** `key`: describes everything that the layers depend on; layers with another key are not found. */
  constructor(folder: string | undefined, key: string) {
    this.#folder = folder;
    this.#key = key;
  }

  /** Keeps a layer, replacing an earlier one of its name. */
  async keep(name: string, weights: QuantizedWeights): Promise<LoadLayer> {
    if (this.#folder === undefined) return async () => weights;
    await makeFolder(this.#folder);
    const path = this.#pathOf(name);
    const { qvals, scales, zeros, levels, superScales, ...spec } = weights;
    const tensors: Record<string, Tensor> = {
      qvals: { dtype: "i8", shape: [spec.n, spec.k], data: qvals },
      scales: { dtype: "f32", shape: [spec.n, groupCount(spec)], data: scales },
      ...(zeros && { zeros: { dtype: "i8", shape: [spec.n, groupCount(spec)], data: zeros } }),
      ...(levels && { levels: { dtype: "i8", shape: [levels.length], data: levels } }),
      ...(superScales && { factors: { dtype: "f32", shape: [spec.n, superGroupCount(spec)], data: superScales } }),
    };
    const entries = Object.entries(tensors).map(([name, { dtype, shape, data }]) => ({
      ...{ name, dtype, shape, data: async () => data },
    }));
    await writeSafetensors(path, entries, { key: this.#key, checksums: sumsOf(tensors) });
    return () => load(path, this.#key, spec);
  }

  /**
   * A layer of this spec that an earlier run has kept; null where there is none, or where it has another key or is damaged.
   */
  async find(name: string, spec: WeightSpec): Promise<LoadLayer | null> {
    if (this.#folder === undefined || !existsSync(this.#pathOf(name))) return null;
    const read = () => load(this.#pathOf(name), this.#key, spec);
    try {
      await read();
      return read;
    } catch (cause) {
      if (!(cause instanceof LowbitError)) throw cause;
      logInfo(() => `${name}: quantized again: ${cause.message}`);
      return null;
    }
  }

  #pathOf(name: string): string {
    return join(this.#folder!, `${name}.safetensors`);
  }
}

function sumsOf(tensors: Readonly<Record<string, Tensor>>): string {
  return ["qvals", "scales", "zeros", "levels", "factors"]
    .map((name) => (tensors[name] ? checksum(bytesOf(tensors[name].data)) : ""))
    .join(" ");
}

/** Reads a layer. InvalidFileError for another key, and for a damaged file. */
async function load(path: string, key: string, spec: WeightSpec): Promise<QuantizedWeights> {
  const file = await openTensorFile(path);
  try {
    if (file.metadata.get("key") !== key)
      throw new InvalidFileError(path, "expected a layer of this run but found one of another text, model or options");
    const names = ["qvals", "scales", ...(spec.hasZeros ? ["zeros"] : []), ...(spec.hasLevels ? ["levels"] : [])];
    const found: Record<string, Tensor> = {};
    for (const name of [...names, ...(hasFactors(spec) ? ["factors"] : [])]) found[name] = await file.read(name);
    if (file.metadata.get("checksums") !== sumsOf(found))
      throw new InvalidFileError(path, "its checksums do not match");
    return {
      ...spec,
      qvals: found.qvals!.data as Int8Array,
      scales: found.scales!.data as Float32Array,
      zeros: (found.zeros?.data as Int8Array | undefined) ?? null,
      levels: (found.levels?.data as Int8Array | undefined) ?? null,
      ...(found.factors && { superScales: found.factors.data as Float32Array }),
    };
  } finally {
    await file.close();
  }
}
