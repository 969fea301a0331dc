/**
 * Reads sentence-transformers' files beside a checkpoint: modules.json lists the modules after the transformer, each with a
 * config in its own folder; prompts are in config_sentence_transformers.json. Knows file names and fields, not what modules do.
 */
import { join } from "node:path";
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { parsePythonJson } from "../json-text.ts";
import { openFile } from "../node-file.ts";
import { decodeUtf8, describe, isObject, type JsonObject, quote } from "./json.ts";
import { openTensorFile } from "./shards.ts";
import type { OpenTensors } from "./tensor-source.ts";

/** A module after the transformer. */
export interface SentenceModule {
  /** Name of the class, such as "Pooling". */
  readonly kind: string;
  /** Folder of the module, which prefixes the names of its tensors: "2_Dense" has "2_Dense.linear.weight". */
  readonly path: string;
  /** Contents of its config.json; empty without one. */
  readonly config: JsonObject;
  /** Path of its config.json, for messages. */
  readonly configFile: string;
}

/** Settings from sentence-transformers' files. */
export interface SentenceModules {
  /** Modules after the transformer, in order. */
  readonly modules: readonly SentenceModule[];
  /** Most tokens of a text; null where no file limits it. */
  readonly maxTokens: number | null;
  /** Whether texts are lowercased before tokenization. */
  readonly isLowerCase: boolean;
  /** Variables for the chat template that formats texts. */
  readonly templateVariables: JsonObject;
  /** Prompts to put before texts, by name. */
  readonly prompts: Readonly<Record<string, string>>;
  /** Name of the prompt to use where none is asked for; null for none. */
  readonly defaultPrompt: string | null;
  /** Name of the activation function of a cross-encoder's scores; null where the file has none. */
  readonly activation: string | null;
}

const MODULES = "modules.json";
const TEXT_MAX_BYTES = 1 << 24;

async function readValue(path: string): Promise<unknown> {
  const source = await openFile(path);
  try {
    if (source.size > TEXT_MAX_BYTES)
      throw new InvalidFileError(path, `has ${source.size} bytes, more than the ${TEXT_MAX_BYTES} read as text`);
    return parsePythonJson(decodeUtf8(path, "the file", await source.read(0, source.size)));
  } catch (cause) {
    if (!(cause instanceof SyntaxError)) throw cause;
    throw new InvalidFileError(path, `is not valid JSON: ${cause.message}`, { cause });
  } finally {
    await source.close();
  }
}

async function readObject(path: string): Promise<JsonObject> {
  const value = await readValue(path);
  if (!isObject(value)) throw new InvalidFileError(path, `should be a JSON object but is ${describe(value)}`);
  return value;
}

/** Matches a path component that stays within its folder. */
const FOLDER = /^[\w.-]+$/;

interface Listed {
  readonly kind: string;
  readonly path: string;
}

/** Reads the list of modules in modules.json, in order. */
async function listed(file: string): Promise<readonly Listed[]> {
  const value = await readValue(file);
  if (!Array.isArray(value))
    throw new InvalidFileError(file, `expected a list of modules but found ${describe(value)}`);
  return value.map((item: unknown, i) => {
    const { type, path } = isObject(item) ? item : {};
    if (typeof type !== "string" || typeof path !== "string" || (path !== "" && (!FOLDER.test(path) || path === "..")))
      throw new InvalidFileError(
        file,
        `module ${i}: expected a string type and a folder as path but found ${describe(type)} and ${describe(path)}`,
      );
    return { kind: type.split(".").at(-1)!, path };
  });
}

/** Reads sentence-transformers' files of a folder; null without modules.json. `names` are the folder's files. */
export async function readSentenceModules(folder: string, names: ReadonlySet<string>): Promise<SentenceModules | null> {
  if (!names.has(MODULES)) return null;
  const file = join(folder, MODULES);
  const [first, ...rest] = await listed(file);
  if (first?.kind !== "Transformer" || first.path !== "")
    throw new UnsupportedError(
      `${file}: expected a Transformer in the folder itself as first module but found ${first ? `${first.kind} in ${quote(first.path)}` : "none"}`,
    );
  const modules = await Promise.all(
    rest.map(async ({ kind, path }): Promise<SentenceModule> => {
      const configFile = join(folder, path, "config.json");
      // A module without settings may have no folder.
      const config = kind === "Normalize" ? {} : await readObject(configFile);
      return { kind, path, config, configFile };
    }),
  );
  const optional = (name: string) => (names.has(name) ? readObject(join(folder, name)) : {});
  const settings: JsonObject = await optional("sentence_bert_config.json");
  const { max_seq_length: most, do_lower_case: isLowerCase } = settings;
  if (most !== undefined && most !== null && !(Number.isInteger(most) && (most as number) > 0))
    throw new InvalidFileError(
      join(folder, "sentence_bert_config.json"),
      `max_seq_length: expected a positive integer but found ${describe(most)}`,
    );
  return {
    modules,
    maxTokens: (most as number | null | undefined) ?? null,
    isLowerCase: isLowerCase === true,
    templateVariables: templateVariables(settings),
    ...readSettings(join(folder, SETTINGS), await optional(SETTINGS)),
  };
}

/**
 * Template variables without `restore_suffix`, which only tells sentence-transformers to keep a template's suffix when it
 * truncates.
 */
function templateVariables({ processing_kwargs: options }: JsonObject): JsonObject {
  const given = isObject(options) ? options.chat_template : undefined;
  if (!isObject(given)) return {};
  const { restore_suffix: _, ...variables } = given;
  return variables;
}

const SETTINGS = "config_sentence_transformers.json";

function readSettings(
  file: string,
  settings: JsonObject,
): Pick<SentenceModules, "prompts" | "defaultPrompt" | "activation"> {
  const { prompts = {}, default_prompt_name: name = null, activation_fn: activation } = settings;
  if (!isObject(prompts ?? {}) || Object.values(prompts ?? {}).some((text) => typeof text !== "string"))
    throw new InvalidFileError(file, `prompts: expected texts by name but found ${describe(prompts)}`);
  const texts = (prompts ?? {}) as Readonly<Record<string, string>>;
  if (name !== null && (typeof name !== "string" || !Object.hasOwn(texts, name)))
    throw new InvalidFileError(file, `default_prompt_name: expected one of prompts but found ${describe(name)}`);
  return { prompts: texts, defaultPrompt: name, activation: typeof activation === "string" ? activation : null };
}

/** Adds the modules' tensors to those of the transformer, with the folder as prefix of their names. */
export async function withModuleTensors(
  folder: string,
  base: OpenTensors,
  { modules }: SentenceModules,
): Promise<OpenTensors> {
  const opened: { readonly path: string; readonly tensors: OpenTensors }[] = [];
  const close = async () => {
    for (const { close } of [base, ...opened.map(({ tensors }) => tensors)]) await close();
  };
  try {
    for (const { kind, path } of modules)
      if (kind === "Dense" || kind === "LayerNorm")
        opened.push({ path, tensors: await openTensorFile(join(folder, path, "model.safetensors")) });
  } catch (error) {
    await close();
    throw error;
  }
  if (opened.length === 0) return base;
  const sourceOf = (name: string) => {
    const own = opened.find(({ path }) => name.startsWith(`${path}.`));
    return own ? { source: own.tensors, stored: name.slice(own.path.length + 1) } : { source: base, stored: name };
  };
  return {
    ...base,
    names: [...base.names, ...opened.flatMap(({ path, tensors }) => tensors.names.map((name) => `${path}.${name}`))],
    has: (name) => sourceOf(name).source.has(sourceOf(name).stored),
    info: (name) => sourceOf(name).source.info(sourceOf(name).stored),
    read: (name) => sourceOf(name).source.read(sourceOf(name).stored),
    readRows: (name, first, count) => sourceOf(name).source.readRows(sourceOf(name).stored, first, count),
    lowBit: (name) => sourceOf(name).source.lowBit?.(sourceOf(name).stored) ?? null,
    storedType: (name) => {
      const { source, stored } = sourceOf(name);
      return source.storedType?.(stored) ?? source.info(stored).dtype;
    },
    close,
  };
}
