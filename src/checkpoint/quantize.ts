/** Says which weights of a model run in how many bits. Nothing is computed yet: weights are quantized one by one on use. */
import { checkOptions, unexpected } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import type { WeightSlot } from "../model/decoder.ts";
import { checkConfig, type QuantizationConfig } from "../quantize/config.ts";
import { type Recipe, selectConfig, selectEntry } from "../quantize/recipe.ts";
import { checkModel, type Model } from "./model.ts";

export interface QuantizeOptions {
  /** Whether the lm_head is quantized with the other linear layers. Default true. */
  readonly quantizeHead?: boolean;
  /** Configuration of the lm_head, instead of that of the other linear layers. */
  readonly head?: QuantizationConfig | null;
}

/**
 * Sets the configurations of a model: linear layers take the (one) linear configuration, the embedding takes
 * `embedding`, a tied embedding and lm_head take `sharedEmbedding` together.
 * InvalidArgumentError when two configurations claim the same weights or one fits none.
 */
export function quantize(model: Model, configs: readonly QuantizationConfig[], options: QuantizeOptions = {}): Model {
  checkModel(model);
  checkOptions(options);
  const { quantizeHead = true, head = null } = options;
  if (!Array.isArray(configs))
    throw new InvalidArgumentError(
      `quantize: expected a list of configurations but found ${JSON.stringify(configs)}; give [configuration]`,
    );
  for (const config of [...configs, ...(head ? [head] : [])]) checkConfig(config);
  const isLinear = ({ kind }: QuantizationConfig) =>
    kind === "int8DynamicActivationIntxWeight" || kind === "intxWeightOnly";
  const linear = only(configs, "linear", isLinear);
  const rows = only(configs, "embedding", (config) => !isLinear(config));
  if (head && !isLinear(head))
    throw new InvalidArgumentError(`quantize: expected a linear configuration for the head but found ${head.kind}`);
  if (head && rows?.kind === "sharedEmbedding")
    throw new InvalidArgumentError("quantize: sharedEmbedding is the head's configuration too; give one of the two");
  for (const slot of model.decoder.slots) {
    if (slot.role === "vector") continue;
    const isHead = slot.name === headName(model);
    if (isHead && head) setConfig(model, slot, head);
    else if (rows?.kind === "sharedEmbedding" && (isHead || slot.role === "embedding")) setConfig(model, slot, rows);
    else if (slot.role === "embedding") setConfig(model, slot, rows);
    else if (!isHead || quantizeHead) setConfig(model, slot, linear);
  }
  return model;
}

/**
 * Sets configurations by module name: exact names, `re:` patterns, `_default`; null leaves a module float.
 * InvalidArgumentError for an exact name that the model lacks.
 */
export function quantizeByRecipe(model: Model, recipe: Recipe): Model {
  checkModel(model);
  checkNames(model, recipe);
  for (const slot of model.decoder.slots) {
    if (slot.role === "vector") continue;
    setConfig(model, slot, fitRole(slot, selectConfig(recipe, moduleOf(slot))));
  }
  const { configs, decoder } = model;
  for (const { name, tiedTo } of decoder.slots) {
    const source = tiedTo ? configs.get(tiedTo) : undefined;
    if (source?.kind === "sharedEmbedding") configs.set(name, source);
  }
  return model;
}

/** Names of the weights of which a recipe says something: a configuration that fits them, or null. */
export function weightsInRecipe({ decoder }: Model, recipe: Recipe): ReadonlySet<string> {
  const isIn = (slot: WeightSlot) => {
    const entry = selectEntry(recipe, moduleOf(slot));
    return entry !== undefined && (entry.config === null || fitRole(slot, entry.config) !== null);
  };
  return new Set(
    decoder.slots
      .filter(({ role }) => role !== "vector")
      .filter(isIn)
      .map(({ name }) => name),
  );
}

const moduleOf = ({ name }: WeightSlot) => name.replace(/\.\w+$/, "");

function checkNames({ decoder, name: modelName }: Model, recipe: Recipe): void {
  if (!Array.isArray(recipe)) throw unexpected("recipe", "one of makeRecipe()", recipe);
  const names = new Set(decoder.slots.flatMap((slot) => [slot.name, moduleOf(slot)]));
  const unknown = recipe.find(({ name, pattern }) => pattern === null && name !== "_default" && !names.has(name));
  if (unknown)
    throw new InvalidArgumentError(
      `recipe: "${unknown.name}": expected the name of a module of ${modelName}, such as ${moduleOf(decoder.slots[0]!)}, "re:" and a regular expression, or "_default"`,
    );
}

/** A configuration for linear layers says nothing of an embedding, and the other way round. */
function fitRole(slot: WeightSlot, config: QuantizationConfig | null): QuantizationConfig | null {
  const forRows = config?.kind === "embedding" || config?.kind === "sharedEmbedding";
  return forRows === (slot.role === "embedding") ? config : null;
}

function setConfig(model: Model, slot: WeightSlot, config: QuantizationConfig | null): void {
  const format = model.storedFormat(slot.name);
  if (!config) model.configs.delete(slot.name);
  else if (format !== null)
    throw new InvalidArgumentError(
      `${slot.name}: is stored as ${format} and is not quantized again; give configurations for other layers only (embedding, head)`,
    );
  else if (config.kind === "sharedEmbedding" && !model.decoder.slots.some(({ tiedTo }) => tiedTo !== null))
    throw new InvalidArgumentError(
      `sharedEmbedding: the lm_head of ${model.name} has weights of its own; use embedding() and a linear configuration`,
    );
  else model.configs.set(slot.name, config);
}

/** The output layer: the last linear slot. */
function headName(model: Model): string | undefined {
  return model.decoder.slots.findLast(({ role }) => role === "linear")?.name;
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
