/** Sets in how many bits the weights of a model run. Nothing is computed yet: weights are quantized one by one on use. */
import { checkList, checkOptions, shown, unexpected } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { moduleOf, type WeightSlot } from "../model/decoder.ts";
import { isEncoderNetwork } from "../model/encoder.ts";
import { atBits } from "../quantize/codebooks.ts";
import { checkConfig, makeConfig, type QuantizationConfig } from "../quantize/config.ts";
import { type Recipe, selectConfig, selectEntry } from "../quantize/recipe.ts";
import { checkModel, type Model } from "./model.ts";

/** Options of `quantize` for the output layer (lm_head): quantized like the others, differently, or not at all. */
export interface QuantizeOptions {
  /** Whether the lm_head is quantized with the other linear layers. Default true. */
  readonly quantizeHead?: boolean;
  /** Configuration of the lm_head that replaces that of the other linear layers. */
  readonly head?: QuantizationConfig | null;
}

/**
 * Sets the configurations of a model. A linear configuration, of which there may be one, is for all linear layers,
 * `embedding` for the embedding, and `sharedEmbedding` for an embedding that is the lm_head, too. Other matrices stay as
 * they are stored.
 *
 * Linear layers of encoders that embeddings depend on most get at least 8 bits, some of them with float activations;
 * `quantizeByRecipe` has no such exceptions. InvalidArgumentError, with nothing set, when two configurations are for the
 * same weights or one is for none, for weights in formats of their own, and after `calibrate`.
 */
export function quantize(model: Model, configs: readonly QuantizationConfig[], options: QuantizeOptions = {}): Model {
  checkModel(model);
  checkOptions(options);
  const { quantizeHead = true, head = null } = options;
  if (!Array.isArray(configs))
    throw new InvalidArgumentError(
      `configs: expected a list of configurations but found ${shown(configs)}; give [configuration]`,
    );
  for (const config of configs) checkConfig("configs", config);
  if (head !== null) checkConfig("head", head);
  const isLinear = ({ kind }: QuantizationConfig) =>
    kind === "int8DynamicActivationIntxWeight" || kind === "intxWeightOnly";
  const linear = only(configs, "linear", isLinear);
  const rows = only(configs, "embedding", (config) => !isLinear(config));
  if (head && !isLinear(head))
    throw new InvalidArgumentError(`quantize: expected a linear configuration for the head but found ${head.kind}`);
  if (head && rows?.kind === "sharedEmbedding")
    throw new InvalidArgumentError("quantize: sharedEmbedding is the head's configuration too; give one of the two");
  const headSlot = headName(model);
  const configOf = (slot: WeightSlot) => {
    const { name, role } = slot;
    const isHead = name === headSlot;
    if (isHead && head) return head;
    if (role === "embedding" || (isHead && rows?.kind === "sharedEmbedding")) return rows;
    return isHead && !quantizeHead ? null : linear && spared(linear, slot);
  };
  return configure(model, configOf);
}

/** Least bits of delicate weights, which embeddings depend on most. */
const DELICATE_BITS = 8;

/** The configuration of one linear layer, with more bits and float activations where it is delicate. */
function spared(config: QuantizationConfig, { delicate }: WeightSlot): QuantizationConfig {
  if (delicate === undefined) return config;
  const { kind, ...fields } = atBits(config, DELICATE_BITS);
  if (delicate !== "inputs") return makeConfig(kind, fields);
  const { activationGranularity: _, ...ofWeights } = fields;
  return makeConfig("intxWeightOnly", ofWeights);
}

/**
 * Sets configurations by module name: exact names, `re:` patterns, `_default`; null leaves a module float.
 * InvalidArgumentError, with nothing set, for an exact name that the model lacks, for weights in formats of their own, and
 * after `calibrate`.
 */
export function quantizeByRecipe(model: Model, recipe: Recipe): Model {
  checkModel(model);
  checkFor(model, recipe);
  const { slots } = model.network;
  const own = (slot: WeightSlot) => fitRole(slot, selectConfig(recipe, moduleOf(slot.name)));
  const configOf = (slot: WeightSlot) => {
    const source = slots.find(({ name }) => name === slot.tiedTo);
    const shared = source ? own(source) : null;
    return shared?.kind === "sharedEmbedding" ? shared : own(slot);
  };
  return configure(model, configOf);
}

/**
 * Formats the configurations of a model as a recipe in JSON, which `parseRecipe` reads: a line a module, to be edited.
 * Models of other sizes refuse it, unless the line `_model` is removed.
 */
export function formatRecipe(model: Model): string {
  checkModel(model);
  const lines = [...model.configs].map(
    ([name, config]) => `  ${JSON.stringify(moduleOf(name))}: ${JSON.stringify(config)}`,
  );
  return `{\n${[`  "_model": ${JSON.stringify(description(model))}`, ...lines].join(",\n")}\n}\n`;
}

/** Describes a model in its recipe, so that a model of other sizes refuses it. */
function description({ network: { architecture, slots } }: Model): string {
  const matrices = slots.filter(({ role, tiedTo }) => role !== "vector" && tiedTo === null);
  const weights = matrices.reduce((sum, { shape }) => sum + shape[0]! * shape[1]!, 0);
  return `${architecture}: ${matrices.length} matrices, ${weights} weights`;
}

/** Names of the weights that a recipe mentions, with a fitting configuration or null. */
export function weightsInRecipe(model: Model, recipe: Recipe): ReadonlySet<string> {
  checkModel(model);
  checkList("recipe", recipe, ["name", "config"], "makeRecipe()");
  const { network } = model;
  const isIn = (slot: WeightSlot) => {
    const entry = selectEntry(recipe, moduleOf(slot.name));
    return entry !== undefined && (entry.config === null || fitRole(slot, entry.config) !== null);
  };
  return new Set(
    network.slots
      .filter(({ role }) => role !== "vector")
      .filter(isIn)
      .map(({ name }) => name),
  );
}

/** Names in a recipe that are not modules. */
const NO_MODULES: ReadonlySet<string> = new Set(["_default", "_model"]);

/** InvalidArgumentError for a recipe of another model, or one that names modules that this model lacks. */
function checkFor(model: Model, recipe: Recipe): void {
  const { network, name: modelName } = model;
  const isEntry = (entry: Partial<Recipe[number]> | null) => typeof entry?.name === "string" && "config" in entry;
  if (!Array.isArray(recipe) || !recipe.every(isEntry)) throw unexpected("recipe", "one of makeRecipe()", recipe);
  const other = recipe.find(({ model: wanted }) => wanted !== undefined && wanted !== description(model));
  if (other)
    throw new InvalidArgumentError(
      `recipe: expected one for ${modelName} (${description(model)}) but found one for ${other.model}; without its "_model", all whose modules have its names take it`,
    );
  const names = new Set(network.slots.flatMap((slot) => [slot.name, moduleOf(slot.name)]));
  const unknown = recipe.find(({ name, pattern }) => pattern === null && !NO_MODULES.has(name) && !names.has(name));
  if (unknown)
    throw new InvalidArgumentError(
      `recipe: "${unknown.name}": expected the name of a module of ${modelName}, such as ${moduleOf(network.slots[0]!.name)}, "re:" and a regular expression, or "_default"`,
    );
}

/** The configuration, unless it is a linear one for an embedding or the other way round; then null. */
function fitRole(slot: WeightSlot, config: QuantizationConfig | null): QuantizationConfig | null {
  const forRows = config?.kind === "embedding" || config?.kind === "sharedEmbedding";
  return forRows === (slot.role === "embedding") ? config : null;
}

/** Sets the configurations of all matrices, or none of them when one is refused. */
function configure(model: Model, configOf: (slot: WeightSlot) => QuantizationConfig | null): Model {
  const { slots } = model.network;
  const matrices = slots.filter(({ role }) => role !== "vector");
  const configs = new Map(matrices.map((slot) => [slot.name, configOf(slot)]));
  const head = headName(model);
  for (const { name, role, shape } of matrices) {
    const rows = configs.get(name)?.ranges?.reduce((sum, range) => sum + range.rows, 0);
    if (rows === undefined) continue;
    if (role !== "embedding" && name !== head)
      throw new InvalidArgumentError(`${name}: ranges are of tables and output layers, whose rows are tokens`);
    if (rows >= shape[0]!)
      throw new InvalidArgumentError(`${name}: ranges: expected fewer than its ${shape[0]} rows but found ${rows}`);
  }
  const isShared = [...configs.values()].some((config) => config?.kind === "sharedEmbedding");
  if (isShared && !slots.some(({ tiedTo }) => tiedTo !== null))
    throw new InvalidArgumentError(
      `sharedEmbedding: the lm_head of ${model.name} has weights of its own; use embedding() and a linear configuration`,
    );
  model.configure(configs);
  return model;
}

/** The output layer of a decoder, which is the last linear slot. */
function headName(model: Model): string | undefined {
  if (isEncoderNetwork(model.network)) return undefined;
  return model.network.slots.findLast(({ role }) => role === "linear")?.name;
}

function only(
  configs: readonly QuantizationConfig[],
  what: string,
  fits: (config: QuantizationConfig) => boolean,
): QuantizationConfig | null {
  const fitting = configs.filter(fits);
  if (fitting.length > 1)
    throw new InvalidArgumentError(
      `quantize: expected one ${what} configuration but found ${fitting.map(({ kind }) => kind).join(" and ")}; use a recipe for several`,
    );
  return fitting[0] ?? null;
}
