/** Writes a model as a Hugging Face folder with TorchAO's quantized tensors, for transformers with torchao. */
import { join } from "node:path";
import { checkOptions, checkString } from "../arguments.ts";
import { assetsOf } from "../checkpoint/assets.ts";
import { type AbortOptions, checkModel, type Model } from "../checkpoint/model.ts";
import { holdsFor } from "../checkpoint/weight-origins.ts";
import { UnsupportedError } from "../errors.ts";
import { pairMoves } from "../formats/head-rows.ts";
import { movedValues, movedWeights } from "../formats/moved-weights.ts";
import { type TensorEntry, writeSafetensors } from "../formats/safetensors-writer.ts";
import { intxEntries, intxMetadata } from "../formats/torchao.ts";
import { pythonJson } from "../json-text.ts";
import { encodeAssets } from "../language/assets.ts";
import type { WeightSlot } from "../model/decoder.ts";
import { checkOutputFolder, makeFolder, writeFileWhole } from "../node-file.ts";
import type { AffineFormat } from "../ops/lowering.ts";
import { type FloatWeight, floatWeight, type Weight } from "../ops/weight.ts";
import { claimPath, type WaitOptions } from "../path-claim.ts";
import type { QuantizedWeights } from "../quantized.ts";

/** What one slot becomes: one float tensor, or the three of a quantized matrix, and their metadata. */
interface Written {
  readonly slot: WeightSlot;
  readonly entries: readonly TensorEntry[];
  readonly metadata: string;
  /** Quantized format; null for floats. */
  readonly format: AffineFormat | null;
}

/**
 * Writes a Hugging Face folder: model.safetensors with integers of a byte each (IntxUnpackedToInt8Tensor), config.json with
 * the quantization, tokenizer and template. Matrices are quantized and written one by one. UnsupportedError for weights
 * that TorchAO's type cannot hold: codebooks, groups that do not divide a row, and formats of their own. Waits while
 * another process writes the folder, whose files must fit each other.
 */
export async function saveTorchao(
  model: Model,
  folder: string,
  options: AbortOptions & WaitOptions = {},
): Promise<void> {
  checkModel(model);
  checkString("folder", folder);
  checkOptions(options);
  await checkOutputFolder(folder, [model.checkpoint.folder]);
  const written = model.network.slots
    .filter((slot) => isWritten(model, slot))
    .map((slot) => write(model, slot, options));
  const metadata = Object.fromEntries(written.map(({ slot, metadata: text }) => [slot.name, text]));
  const names = JSON.stringify(written.map(({ slot }) => slot.name));
  const config = {
    ...model.checkpoint.config,
    quantization: undefined,
    quantization_config: quantizationConfig(written),
  };
  const configBytes = new TextEncoder().encode(`${pythonJson(config, 2)}\n`);
  await makeFolder(folder);
  const claim = await claimPath(folder, options);
  try {
    await writeSafetensors(
      join(folder, "model.safetensors"),
      written.flatMap(({ entries }) => entries),
      { ...metadata, tensor_names: names, format: "pt" },
    );
    for (const [name, bytes] of [["config.json", configBytes] as const, ...encodeAssets(assetsOf(model.checkpoint))])
      await writeFileWhole(join(folder, name), (sink) => sink.write(bytes));
  } finally {
    await claim.release();
  }
}

/**
 * Whether a slot is a tensor of its own in the folder. UnsupportedError for tied weights that differ: TorchAO has one
 * tensor for both.
 */
function isWritten(model: Model, { name, tiedTo }: WeightSlot): boolean {
  if (tiedTo === null) return true;
  if (model.slotWeight(name).state.kind === "replaced")
    throw new UnsupportedError(
      `${name}: was given weights of its own, but TorchAO's files have one tensor for it and ${tiedTo}`,
    );
  return false;
}

function write(model: Model, slot: WeightSlot, options: AbortOptions): Written {
  const use = { holds: holdsFor("torchao"), activations: "float", sharesTied: true } as const;
  const weight = model.weight(slot.name, { ...options, ...use });
  const { kind } = weight.format;
  if (kind === "float") return { slot, ...floatEntry(floatWeight(weight), slot.pairs), format: null };
  const config = model.configOf(slot.name);
  const spec = "spec" in weight.format ? (weight.format as AffineFormat).spec : null;
  if (!spec || spec.hasLevels || spec.k % spec.groupSize !== 0)
    throw new UnsupportedError(
      `${slot.name}: TorchAO's integers cannot hold ${spec ? "codebooks or groups that do not divide a row" : `format ${kind}`}`,
    );
  const dynamic = config ? config.kind !== "intxWeightOnly" && config.kind !== "embedding" : false;
  const activations =
    kind === "affine" && !config ? (weight.format as AffineFormat).activations : dynamic ? "int8_per_token" : "float";
  return {
    slot,
    entries: intxEntries(slot.name, spec, async () => {
      const weights = await (weight as Weight<AffineFormat, QuantizedWeights>).load();
      return slot.pairs ? movedWeights(weights, pairMoves(slot.pairs))! : weights;
    }),
    metadata: intxMetadata(spec, activations),
    format: { kind: "affine", spec, activations, layout: null },
  };
}

/** A float tensor of the model, with its rows in the checkpoint's order. */
function floatEntry(
  { name, shape, format, load }: FloatWeight,
  pairs: WeightSlot["pairs"],
): Pick<Written, "entries" | "metadata"> {
  const data = async () => {
    const values = (await load()).data as Float32Array;
    return pairs ? movedValues(values, shape[1] ?? 1, pairMoves(pairs)) : values;
  };
  const entry = { name, dtype: format.dtype, shape, data };
  return { entries: [entry], metadata: JSON.stringify({ _type: "Tensor" }) };
}

/** The `quantization_config` of config.json; each tensor's own metadata says the rest. */
function quantizationConfig(written: readonly Written[]): object | undefined {
  const matrices = written.filter(({ format }) => format !== null);
  const [first] = matrices;
  if (!first) return undefined;
  const { spec, activations } = first.format!;
  const named = (type: string, data: unknown) => ({ _type: type, _data: data });
  const granularity =
    spec.groupSize >= spec.k
      ? { _type: "PerAxis", _version: 1, _data: { axis: 0 } }
      : { _type: "PerGroup", _version: 1, _data: { group_size: spec.groupSize } };
  const common = {
    weight_dtype: named("torch.dtype", `int${spec.bits}`),
    intx_packing_format: named("IntxPackingFormat", "UNPACKED_TO_INT8"),
    intx_choose_qparams_algorithm: named("IntxChooseQParamsAlgorithm", "AFFINE"),
  };
  const mapping = named("MappingType", spec.hasZeros ? "ASYMMETRIC" : "SYMMETRIC");
  const config =
    activations !== "float"
      ? {
          _type: "Int8DynamicActivationIntxWeightConfig",
          _data: {
            ...common,
            weight_granularity: granularity,
            weight_mapping_type: mapping,
            weight_scale_dtype: null,
            act_mapping_type: named("MappingType", "ASYMMETRIC"),
          },
        }
      : {
          _type: "IntxWeightOnlyConfig",
          _data: { ...common, granularity, mapping_type: mapping, scale_dtype: null },
        };
  const outer = matrices.some(({ slot }) => slot.role === "embedding" || slot.name === "lm_head.weight");
  return {
    quant_method: "torchao",
    quant_type: { default: { ...config, _version: 2 } },
    modules_to_not_convert: null,
    include_input_output_embeddings: outer,
    untie_embedding_weights: false,
  };
}
