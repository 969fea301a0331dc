/** Chooses the reader of a quantized checkpoint by the method that its config names. */
import { UnsupportedError } from "../../errors.ts";
import { withComputed } from "../computed-tensors.ts";
import { isObject, type JsonObject } from "../json.ts";
import type { OpenTensors } from "../tensor-source.ts";
import { autoRound } from "./autoround.ts";
import { awq } from "./awq.ts";
import { bitNet } from "./bitnet.ts";
import { bitsAndBytes } from "./bitsandbytes.ts";
import { compressedTensors } from "./compressed-tensors.ts";
import { QuantizedFiles, type QuantizedFormat } from "./files.ts";
import { float8 } from "./float8.ts";
import { gptq } from "./gptq.ts";
import { hqq } from "./hqq.ts";
import { modelOpt } from "./modelopt.ts";
import { mxfp4 } from "./mxfp4.ts";

/** All supported methods. */
const formats: readonly QuantizedFormat[] = [
  gptq,
  awq,
  autoRound,
  compressedTensors,
  float8,
  modelOpt,
  mxfp4,
  bitsAndBytes,
  hqq,
  bitNet,
];

/** Names of the methods, for messages. */
export const quantizedNames: readonly string[] = formats.map(({ name }) => name);

/** Whether a `quant_method` is supported. */
export function isQuantizedMethod(method: string): boolean {
  return formatOf(method) !== undefined;
}

function formatOf(method: unknown): QuantizedFormat | undefined {
  if (typeof method !== "string") return undefined;
  return formats.find(({ methods }) => methods.includes(method.toLowerCase()));
}

/** The source `tensors` with the quantized matrices of `quantization_config` dequantized. */
export async function withQuantized(
  { folder, configFile, config }: { folder: string; configFile: string; config: JsonObject },
  tensors: OpenTensors,
): Promise<OpenTensors> {
  const { quantization_config: settings } = config;
  if (!isObject(settings)) return tensors;
  const format = formatOf(settings.quant_method);
  if (!format) return tensors;
  const matrices = await format.read(new QuantizedFiles(folder, configFile, settings, tensors));
  if (matrices.length === 0 && !format.hasFloats?.(settings))
    throw new UnsupportedError(
      `${configFile}: quantization_config.quant_method "${settings.quant_method}": expected weights of ${format.name} but found none; ` +
        "the weights are floats: without quantization_config they run as they are",
    );
  return withComputed(tensors, matrices);
}
