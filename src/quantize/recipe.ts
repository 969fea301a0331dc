/** Which configuration each module gets, chosen by name: TorchAO's FqnToConfig. */

import { checkString, shown, unexpected } from "../arguments.ts";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import { parseJson } from "../json-text.ts";
import {
  type ConfigKind,
  type ConfigOptions,
  checkConfig,
  configKinds,
  makeConfig,
  type QuantizationConfig,
} from "./config.ts";

/**
 * Maps a name, `re:` with a regular expression, or `_default` to a configuration; null leaves matching weights as they are.
 * `_model` matches nothing: it says which model the other entries are for.
 */
export interface RecipeEntry {
  /** The name of a weight, `re:` with a regular expression, `_default` or `_model`. */
  readonly name: string;
  /** How the weight is quantized; null to leave it as it is. */
  readonly config: QuantizationConfig | null;
  /** Matches whole names; null unless `name` begins with `re:`. */
  readonly pattern: RegExp | null;
  /** The only model that takes the recipe, as `formatRecipe` describes it; of `_model` alone. */
  readonly model?: string;
}

/** Entries in order. */
export type Recipe = readonly RecipeEntry[];

/** A recipe of `[name, config]` pairs; InvalidArgumentError for a bad regular expression or a repeated name. */
export function makeRecipe(entries: Iterable<readonly [string, QuantizationConfig | null]>): Recipe {
  const recipe: RecipeEntry[] = [];
  const isIterable = typeof entries === "object" && entries !== null && Symbol.iterator in entries;
  if (!isIterable) throw unexpected("entries", "pairs of a name and a configuration", entries);
  for (const entry of entries) {
    if (!Array.isArray(entry)) throw unexpected("entries", "pairs of a name and a configuration", entry);
    const [name, config] = entry as typeof entries extends Iterable<infer E> ? E : never;
    checkString("entries, name", name);
    if (config !== null) checkConfig("entries, config", config);
    if (recipe.some((entry) => entry.name === name)) throw new InvalidArgumentError(`recipe: "${name}" appears twice`);
    recipe.push({ name, config, pattern: name.startsWith("re:") ? compile(name) : null });
  }
  return recipe;
}

function compile(name: string): RegExp {
  const source = name.slice("re:".length);
  try {
    new RegExp(source); // alone first: inside the group below, "a)|(b" would pass
    return new RegExp(`^(?:${source})$`);
  } catch (cause) {
    throw new InvalidArgumentError(`recipe: "${name}" is not a regular expression of JavaScript`, { cause });
  }
}

/**
 * The recipe's entry for a parameter of a module: the first that matches of: an entry named `module.parameter`, one named
 * `module`, a `re:` entry for `module.parameter`, one for `module`, `_default`.
 */
export function selectEntry(recipe: Recipe, moduleName: string, parameterName = "weight"): RecipeEntry | undefined {
  const parameter = moduleName === "" ? parameterName : `${moduleName}.${parameterName}`;
  return (
    recipe.find(({ name }) => name === parameter) ??
    recipe.find(({ name }) => name === moduleName) ??
    recipe.find(({ pattern }) => pattern?.test(parameter)) ??
    recipe.find(({ pattern }) => pattern?.test(moduleName)) ??
    recipe.find(({ name }) => name === "_default")
  );
}

/** The configuration of a parameter of a module, null when it is to stay as it is. */
export function selectConfig(recipe: Recipe, moduleName: string, parameterName?: string): QuantizationConfig | null {
  return selectEntry(recipe, moduleName, parameterName)?.config ?? null;
}

/**
 * A recipe from JSON text, an object of names to configurations, such as
 * `{"lm_head": null, "re:.*mlp.*": {"kind": "intxWeightOnly", "bits": 4}}`. Fields left out take the defaults of their kind.
 * `"_model"`, if it is there, describes the only model that takes it, as `formatRecipe` writes it. InvalidFileError, naming
 * `file` and the entry, for anything else.
 */
export function parseRecipe(json: string, file: string): Recipe {
  checkString("json", json);
  checkString("file", file);
  let content: unknown;
  try {
    content = parseJson(json);
  } catch (cause) {
    throw new InvalidFileError(file, `expected JSON: ${(cause as Error).message}`, { cause });
  }
  if (!isObject(content)) throw new InvalidFileError(file, "expected a JSON object of names to configurations");
  const { _model: model, ...configs } = content;
  if (model !== undefined && typeof model !== "string")
    throw new InvalidFileError(file, `"_model": expected the description of a model but found ${shown(model)}`);
  try {
    const recipe = makeRecipe(
      Object.entries(configs).map(([name, value]) => [name, parseConfig(name, value)] as const),
    );
    return model === undefined ? recipe : [{ name: "_model", config: null, pattern: null, model }, ...recipe];
  } catch (cause) {
    if (cause instanceof InvalidArgumentError) throw new InvalidFileError(file, cause.message, { cause });
    throw cause;
  }
}

function parseConfig(name: string, value: unknown): QuantizationConfig | null {
  if (value === null) return null;
  if (!isObject(value)) throw new InvalidArgumentError(`"${name}": expected a configuration object or null`);
  const { kind, ...options } = value;
  if (!(configKinds as readonly unknown[]).includes(kind))
    throw new InvalidArgumentError(
      `"${name}": kind must be one of ${configKinds.join(", ")}, got ${JSON.stringify(kind) ?? "none"}`,
    );
  try {
    return makeConfig(kind as ConfigKind, options as ConfigOptions);
  } catch (cause) {
    if (cause instanceof InvalidArgumentError) throw new InvalidArgumentError(`"${name}": ${cause.message}`, { cause });
    throw cause;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
