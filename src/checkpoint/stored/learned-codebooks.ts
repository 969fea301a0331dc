/** Which matrices share a codebook, and from which of their rows its levels are learned. */
import type { TensorSource } from "../../formats/tensor-source.ts";
import type { Network } from "../../model/decoder.ts";
import { codebooks } from "../../quantize/codebooks.ts";
import type { QuantizationConfig } from "../../quantize/config.ts";
import { type LevelSample, learnLevels } from "../../quantize/learned-levels.ts";
import { toFloat32 } from "../../tensor.ts";
import { quantizeTensor } from "./quantize-rows.ts";

/** Weights from which levels are learned, over all matrices together; more were measured to change nothing. */
const SAMPLE_WEIGHTS = 2 ** 15;
/** Experts are packed as one stack of many matrices, so they use the fixed codebooks. */
const EXPERT = /\.experts\./;

type Tensors = Pick<TensorSource, "info" | "readRows">;

/** What learning codebooks needs of a model. */
export interface LearningModel {
  readonly network: Network;
  configOf(name: string): QuantizationConfig | undefined;
}

/** Matrices that share a codebook, and how much errors of their columns count. */
export interface SharedCodebook {
  /** Slot names of the matrices that share the codebook. */
  readonly names: readonly string[];
  /** The tensor that a slot's weights are read from. */
  readonly stored: (name: string) => string;
  /** How much errors of each column of a matrix count; null where all count alike. */
  readonly importance: (name: string) => Promise<Float32Array | null>;
}

/**
 * Slots that share a codebook with `name`, itself included: those with the same inputs and configuration, which are packed
 * as one.
 */
export function namesOfCodebook(model: LearningModel, name: string, config: QuantizationConfig): readonly string[] {
  const readers = model.network.scalable.find((activation) => activation.readers.includes(name))?.readers ?? [name];
  const key = JSON.stringify(config);
  return readers.filter((reader) => reader === name || JSON.stringify(model.configOf(reader)) === key);
}

/** Whether the levels of a slot's codebook are learned. */
export function isLearned(name: string, { mappingType }: QuantizationConfig): boolean {
  return mappingType === "kmeans" && !EXPERT.test(name);
}

/** Learns the levels of matrices from evenly spaced rows. InvalidArgumentError for weights that are not finite. */
export async function learnCodebook(
  tensors: Tensors,
  { names, stored, importance }: SharedCodebook,
  config: QuantizationConfig,
): Promise<Int8Array> {
  if (config.bits === 1) return codebooks[1]!;
  const samples: LevelSample[] = [];
  for (const name of names)
    samples.push({
      ...(await sampleRows(tensors, stored(name), SAMPLE_WEIGHTS / names.length)),
      importance: await importance(name),
    });
  return learnLevels(samples, config.bits, ({ n, k, values, importance }, levels) =>
    quantizeTensor({ dtype: "f32", shape: [n, k], data: values }, config, importance, levels),
  );
}

/** Rows of a matrix with about `weights` weights, at least one row. */
async function sampleRows(tensors: Tensors, name: string, weights: number) {
  const [rows, k] = tensors.info(name).shape as [number, number];
  const n = Math.max(1, Math.min(rows, Math.round(weights / k)));
  const values = new Float32Array(n * k);
  for (let i = 0; i < n; i++) values.set(toFloat32(await tensors.readRows(name, Math.floor((i * rows) / n), 1)), i * k);
  return { n, k, values };
}
