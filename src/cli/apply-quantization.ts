/** Applies the options of quantization-options.ts to a checkpoint. */
import {
  calibrate,
  embedding,
  type Model,
  parseQmode,
  parseRecipe,
  type QuantizationConfig,
  quantize,
  quantizeByRecipe,
  type Recipe,
  ShapeError,
  sharedEmbedding,
} from "../index.ts";
import {
  type ChosenEncoding,
  type EncodingOptions,
  encodingModes,
  needsActivations,
  parseEmbedding,
  parseRowBits,
  searched,
  weightsInRecipe,
} from "../tools/index.ts";
import { encodingFor } from "./encoding-options.ts";
import type { QuantizationOptions } from "./quantization-options.ts";
import { calibrationTexts, checkWriting, type WritingHooks } from "./self-calibration.ts";
import { applySize, type SizeHooks } from "./size-option.ts";
import { readTextFile } from "./text-file.ts";
import { UsageError } from "./usage-error.ts";

type Fields = Pick<NonNullable<Parameters<typeof embedding>[0]>, "algorithm" | "mappingType" | "scaleDType" | "ranges">;

/** The options for a model: `--row-bits` as ranges of its rows. */
type OptionsOfModel = QuantizationOptions & Pick<Fields, "ranges">;

/** Mode for `--size` without `--qmode`; its bits are replaced by those that are chosen. */
const SIZED_QMODE = "8da4w";

/** SmoothQuant's default strength alpha, that of its paper (Xiao et al. 2023). */
const STRENGTH_DEFAULT = 0.5;

/** Callbacks of encoding weights, and the folder in which finished layers are kept. */
export interface EncodeHooks extends SizeHooks, WritingHooks, Pick<EncodingOptions, "folder" | "onDamagedPart"> {
  /** Called once configurations are set, before encoding and calibrating, which take long. Throws for what cannot be written. */
  readonly check?: (model: Model) => unknown;
}

/**
 * Sets the configurations of a model, calibrates and encodes it. InvalidArgumentError or UsageError for options that do not
 * fit.
 */
export async function applyQuantization(
  model: Model,
  options: QuantizationOptions,
  hooks: EncodeHooks = {},
): Promise<void> {
  model.layout = options.layout ?? null;
  model.activations = options.activations ?? null;
  if (options.calibrationTokens !== undefined && options.calibrate === undefined)
    throw new UsageError("--calibration-tokens needs the text whose tokens it counts: expected --calibrate text.txt");
  if (options.damping !== undefined && options.calibrate === undefined)
    throw new UsageError("--damping says how much a text counts: expected --calibrate text.txt");
  checkWriting(options);
  const encoding = encodingFor(options);
  const isEncoded = encoding?.isStored(model) ?? false;
  const recipe = await readRecipe(options);
  if (recipe) quantizeByRecipe(model, recipe);
  else {
    const all = optionsFor(model, options);
    quantize(model, configsOf(all), { quantizeHead: options.quantizeHead, head: headOf(all) });
  }
  const wantsCalibration = checkCalibration(model, options, isEncoded);
  const wanted = isEncoded ? null : encoding;
  // Checked before writing a text, encoding and calibrating, which take long.
  if (wanted || wantsCalibration) hooks.check?.(model);
  const { text, otherText } = await calibrationTexts(model, options, hooks);
  const { calibrationTokens: maxTokens, damping } = options;
  if (wanted) {
    const skipped = recipe ? weightsInRecipe(model, recipe) : new Set<string>();
    const tokens = { calibrationText: text, calibrationTokens: maxTokens };
    await encode(wanted, model, options, { ...hooks, ...tokens, skip: (name) => skipped.has(name) });
  }
  await applySize(model, text, options, hooks);
  if (wantsCalibration && asksForText(model, options))
    await calibrate(model, text!, { ...hooks, maxTokens, otherText, smoothQuant: strengthOf(options), damping });
}

async function readRecipe({ recipe: path }: QuantizationOptions): Promise<Recipe | null> {
  return path === undefined ? null : parseRecipe(await readTextFile(path, "the recipe"), path);
}

/** Encodes the layers that the recipe does not name. UsageError when there are none. */
async function encode(
  encoding: ChosenEncoding,
  model: Model,
  { qmode, recipe }: QuantizationOptions,
  options: EncodingOptions,
): Promise<void> {
  const layers = model.network.slots.filter(({ role }) => role === "linear").slice(0, -1);
  if (layers.every(({ name }) => options.skip?.(name)))
    throw new UsageError(`--recipe ${recipe} says what every linear layer is: nothing is left to --qmode ${qmode}`);
  await encoding.encode(model, options).catch((cause: unknown) => {
    if (!(cause instanceof ShapeError)) throw cause;
    throw new ShapeError(`${cause.message}; --recipe beside --qmode ${qmode} gives such layers another configuration`, {
      cause,
    });
  });
}

const strengthOf = ({ smoothquant }: QuantizationOptions) => (smoothquant === true ? STRENGTH_DEFAULT : smoothquant);

/**
 * Whether options or configurations need a calibration text. UsageError for a text that is missing, or given without use.
 */
function checkCalibration(model: Model, options: QuantizationOptions, isEncoded: boolean): boolean {
  const { calibrate: path, size } = options;
  const asking = asksForText(model, options) ?? (size === undefined ? null : "--size");
  const wanted = asking !== null;
  if (wanted && path === undefined)
    throw new UsageError(
      `${asking} looks at the activations of a text; give one by --calibrate text.txt, or --calibrate self`,
    );
  if (!wanted && path !== undefined && isEncoded)
    throw new UsageError(
      `--calibrate: ${model.name} has ${options.qmode} weights already, which no text changes; leave it out`,
    );
  if (!wanted && path !== undefined && !encodingFor(options))
    throw new UsageError(
      "--calibrate needs something that looks at activations: --algorithm imatrix, gptq, awq or awq+gptq, --smoothquant, --size or --qmode aqlm-2x8",
    );
  return wanted;
}

/** The option or algorithm that needs a calibration text; null for none. */
function asksForText(model: Model, { smoothquant }: QuantizationOptions): string | null {
  const algorithm = [...model.configs.values()].map((config) => config.algorithm).find(needsActivations);
  return algorithm ? `algorithm ${algorithm}` : smoothquant !== undefined ? "--smoothquant" : null;
}

function headOf(options: OptionsOfModel): QuantizationConfig | null {
  const { qmode, quantizeHead, sharedEmbedding: shared, ranges, groupSize } = options;
  // With ranges of its own rows, the head is configured apart from the other linear layers.
  const ofRows = ranges && shared === undefined && quantizeHead && !encodingFor(options) ? qmode : undefined;
  const { head = ofRows } = options;
  return head === undefined ? null : parseQmode(head, { groupSize, ...headFields(options) });
}

/** Configuration of linear layers except for bits and groups. Defaults are what the reader of the file (`--reader`) can load. */
function fieldsFor(options: QuantizationOptions, algorithm: Fields["algorithm"]): Fields {
  const { layout, reader, mappingType, scaleDtype: scaleDType } = options;
  if (reader === "gguf") return { algorithm, mappingType: mappingType ?? "symmetric", scaleDType: scaleDType ?? "f16" };
  const isTorchao = reader === "torchao" || layout?.startsWith("torchao");
  if (!isTorchao) return { algorithm, mappingType, scaleDType };
  if (algorithm === undefined) return { algorithm: "affine", mappingType, scaleDType };
  return { algorithm, mappingType: mappingType ?? "symmetric", scaleDType: scaleDType ?? "f32" };
}

/** Configuration of head and embedding: that of linear layers, but without calibration and with a mapping of their own. */
function rowFields(options: OptionsOfModel): Fields {
  const { algorithm, scaleDType } = fieldsFor(options, options.algorithm);
  const { ranges } = options;
  const isTorchao = algorithm === "affine" || algorithm === "hqq_scale_only";
  return {
    algorithm: isTorchao ? "affine" : undefined,
    mappingType: options.reader === "gguf" && !isTorchao ? "symmetric" : undefined,
    scaleDType,
    ranges,
  };
}

/** Configuration of the head, which can be calibrated: GPTQ, or an importance matrix where there is a text. */
function headFields(options: OptionsOfModel): Fields {
  const fields = rowFields(options);
  if (fields.algorithm !== undefined) return fields;
  return { ...fields, algorithm: options.algorithm === "gptq" ? "gptq" : byText(options) };
}

/** The algorithm that uses a calibration text where no other is given. */
function byText({ calibrate: path, smoothquant }: QuantizationOptions): "imatrix" | undefined {
  return path !== undefined && smoothquant === undefined ? "imatrix" : undefined;
}

/**
 * Defaults of `--qmode` for an encoder, which keep its embeddings most: zero points (except with symmetric algorithms), and
 * 8 bits for the embedding rows.
 */
function optionsFor(model: Model, given: QuantizationOptions): OptionsOfModel {
  if (given.size !== undefined) return sizedOptions(model, given);
  const { rowBits } = given;
  const count = model.network.slots.find(({ role }) => role === "embedding")?.shape[0] ?? 0;
  const options = rowBits === undefined ? given : { ...given, ranges: parseRowBits(rowBits, count) };
  if (!model.isEncoder || options.qmode === undefined || encodingFor(options)) return options;
  const { algorithm, mappingType, embedding: rows, sharedEmbedding: shared } = options;
  return {
    ...options,
    ...(mappingType === undefined && algorithm !== "hqq_scale_only" && { mappingType: "asymmetric" }),
    ...(rows === undefined && shared === undefined && { embedding: "8,32" }),
  };
}

/** Options for `--size`, which chooses bits for all matrices: those without options get a configuration, too. */
function sizedOptions({ network }: Model, options: QuantizationOptions): QuantizationOptions {
  const { qmode = SIZED_QMODE, embedding: rows, sharedEmbedding: shared, head } = options;
  const given = { ...(mayHaveIntegerScales(options, qmode) && { scaleDtype: "i8" as const }), ...options, qmode };
  const isTied = network.slots.some(({ tiedTo }) => tiedTo !== null);
  if (rows !== undefined || shared !== undefined) return given;
  return isTied && head === undefined ? { ...given, sharedEmbedding: true } : { ...given, embedding: "4,32" };
}

/** Whether the options allow 8-bit scales, which take fewer bytes. */
function mayHaveIntegerScales(options: QuantizationOptions, qmode: string): boolean {
  const { algorithm, mappingType, groupSize = 32, reader, layout } = options;
  const isTorchao = algorithm === "affine" || algorithm === "hqq_scale_only" || qmode.startsWith("torchao:");
  return !isTorchao && mappingType !== "asymmetric" && groupSize === 32 && reader === undefined && layout === undefined;
}

/** The configurations of the options. */
function configsOf(options: OptionsOfModel): QuantizationConfig[] {
  const { qmode, groupSize, mappingType } = options;
  const isEncoded = encodingFor(options) !== null;
  const linear =
    qmode === undefined || isEncoded
      ? null
      : parseQmode(qmode, { groupSize, ...fieldsFor(options, options.algorithm ?? byText(options)) }, encodingModes());
  if (!linear && !isEncoded)
    for (const [flag, value] of Object.entries({
      "--group-size": options.head === undefined ? groupSize : undefined,
      "--mapping-type": mappingType,
      "--algorithm": options.algorithm,
      "--no-quantize-head": options.quantizeHead ? undefined : false,
      "--smoothquant": options.head === undefined ? options.smoothquant : undefined,
    }))
      if (value !== undefined) throw new UsageError(`${flag} needs --qmode, such as --qmode 8da4w`);
  const configs = linear ? [linear] : [];
  const isTorchao = qmode?.startsWith("torchao:");
  const rows = isTorchao ? ({ ...rowFields(options), algorithm: "affine" } as const) : rowFields(options);
  if (options.embedding !== undefined) configs.push(embedding(parseEmbedding(options.embedding, rows)));
  if (options.sharedEmbedding === true && !linear)
    throw new UsageError(
      "--shared-embedding needs --qmode, or bits and group size of its own: --shared-embedding 4,32",
    );
  const head = {
    ...(isTorchao ? rows : headFields(options)),
    activationGranularity: linear?.activationGranularity,
  };
  if (options.sharedEmbedding === true) {
    const { bits, groupSize, scaleDType } = linear!;
    configs.push(sharedEmbedding(searched({ bits, groupSize, ...head, scaleDType: head.scaleDType ?? scaleDType })));
  } else if (options.sharedEmbedding !== undefined)
    configs.push(sharedEmbedding(parseEmbedding(options.sharedEmbedding, head)));
  if (
    configs.length === 0 &&
    options.head === undefined &&
    (options.layout !== undefined || options.scaleDtype !== undefined)
  )
    throw new UsageError("--layout and --scale-dtype need --qmode, --head, --embedding or --shared-embedding");
  if (options.ranges && options.head === undefined && configs.length === 0)
    throw new UsageError(
      "--row-bits is of quantized tables and heads: expected --qmode, --head, --embedding or --shared-embedding",
    );
  return configs;
}
