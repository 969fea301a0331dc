/**
 * BitNet's "online" checkpoints, as transformers runs them (AutoBitLinear): float weights are rounded to -1, 0 or 1 times
 * one scale a tensor; activations are rounded to 8-bit integers with one scale a token.
 */
import { InvalidFileError, UnsupportedError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/contract.ts";
import { describe, isObject, type JsonObject } from "../../formats/json.ts";
import type { WeightSlot } from "../../model/decoder.ts";
import type { Builder } from "../../ops/builder.ts";
import type { AffineFormat } from "../../ops/lowering.ts";
import { loweringOf, registerWeightFormat, type Weight, type WeightFormat } from "../../ops/weight.ts";
import type { QuantizedWeights } from "../../quantized.ts";
import { toFloat32 } from "../../tensor.ts";
import { checkSlot } from "./check-slot.ts";
import { inParts } from "./quantize-rows.ts";
import { isSameMethod, quantMethod, type StoredWeight } from "./weight-storage.ts";

const BITNET = "BitNet";
/** Least divisor, which transformers takes in place of a smaller mean or largest magnitude. */
const LEAST = 1e-5;

/** Weights whose activations are first rounded to 8-bit integers, token by token. */
interface RoundedRowsFormat extends WeightFormat {
  readonly kind: "roundedRows";
  readonly weights: Weight<AffineFormat, QuantizedWeights>;
}

/** x [..., k] with each row rounded to multiples of its largest magnitude / 127, ties to even. */
function roundedRows<T>(builder: Builder<T>, x: T): T {
  const largest = builder.call("aten::amax.out", builder.call("aten::abs.out", x), [-1], true);
  const reciprocal = builder.call("aten::reciprocal.out", builder.call("aten::clamp.out", largest, LEAST, null));
  const scale = builder.call("aten::mul.Scalar_out", reciprocal, 127);
  const integers = builder.call("aten::round.out", builder.call("aten::mul.out", x, scale));
  return builder.call("aten::div.out", builder.call("aten::clamp.out", integers, -128, 127), scale);
}

registerWeightFormat({
  kind: "roundedRows",
  linear(builder, x, weight, bias) {
    const { weights } = (weight as Weight<RoundedRowsFormat>).format;
    return loweringOf(weights).linear(builder, roundedRows(builder, x), weights, bias);
  },
});

/** Names, or beginnings or ends of names, of modules whose weights stay floats. */
function keptFloat(file: string, config: JsonObject): readonly string[] {
  const names = config.modules_to_not_convert ?? ["lm_head"];
  if (Array.isArray(names) && names.every((name) => typeof name === "string")) return names;
  throw new InvalidFileError(
    file,
    `quantization_config.modules_to_not_convert: expected a list of names but found ${describe(names)}`,
  );
}

/**
 * The weight of a slot in an online BitNet checkpoint; null for other checkpoints. UnsupportedError for other modes of
 * BitNet.
 */
export function bitnetWeight(checkpoint: Checkpoint, slot: WeightSlot): StoredWeight | null {
  const method = quantMethod(checkpoint);
  const { configFile, config } = checkpoint;
  const settings = config.quantization_config;
  if (method === null || !isSameMethod(method, BITNET) || !isObject(settings)) return null;
  const { linear_class: layer = "bitlinear", quantization_mode: mode = "offline", use_rms_norm: norm } = settings;
  if (mode === "offline" && norm !== true) return null;
  if (layer !== "autobitlinear" || mode !== "online" || norm === true)
    throw new UnsupportedError(
      `${configFile}: quantization_config of BitNet with linear_class ${describe(layer)}, quantization_mode ${describe(mode)}` +
        `${norm === true ? ", use_rms_norm" : ""} is not supported, only autobitlinear, online, without use_rms_norm`,
    );
  const module = slot.name.replace(/\.weight$/, "");
  const isKept = keptFloat(configFile, settings).some((name) => module.startsWith(name) || module.endsWith(name));
  if (slot.role !== "linear" || isKept) return null;
  checkSlot(checkpoint, slot);
  return ternary(checkpoint, slot);
}

function ternary({ tensors }: Checkpoint, { name, shape }: WeightSlot): StoredWeight {
  const [n, k] = shape as [number, number];
  const spec = { bits: 2, n, k, groupSize: k, hasZeros: false, hasLevels: false, scaleDType: "f32" } as const;
  const load = async (): Promise<QuantizedWeights> => {
    const parts = () => inParts([n, k], (first, count) => tensors.readRows(name, first, count));
    let sum = 0;
    for await (const part of parts()) for (const value of toFloat32(part)) sum += Math.abs(value);
    const scale = Math.fround(1 / Math.max(Math.fround(sum / (n * k)), LEAST));
    const qvals = new Int8Array(n * k);
    let at = 0;
    for await (const part of parts())
      for (const value of toFloat32(part)) {
        // Rounds to nearest, ties to even, so that 0.5 becomes 0.
        const scaled = Math.fround(value * scale);
        qvals[at++] = Math.abs(scaled) <= 0.5 ? 0 : Math.sign(scaled);
      }
    return { ...spec, qvals, scales: new Float32Array(n).fill(1 / scale), zeros: null, levels: null };
  };
  const format: AffineFormat = { kind: "affine", spec, activations: "float", layout: null };
  const rounded: RoundedRowsFormat = { kind: "roundedRows", weights: { name, shape, format, load } };
  return { name, shape, format: rounded, load };
}
