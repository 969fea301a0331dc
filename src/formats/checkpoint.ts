/**
 * Opens a checkpoint folder: config, weights, and the files of tokenizer, chat template and generation settings. Knows file
 * names, not architectures.
 */
import { readdir, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { InvalidFileError } from "../errors.ts";
import { openFile } from "../node-file.ts";
import type { Checkpoint } from "./contract.ts";
import { openGguf } from "./gguf/open.ts";
import { onlyModel } from "./gguf/split.ts";
import { decodeUtf8, describe, isObject, type JsonFile, jsonFile } from "./json.ts";
import { readSentenceModules, withModuleTensors } from "./sentence-modules.ts";
import { withOlderFiles } from "./token-files.ts";
import { openWeights, weightEndings } from "./weight-files.ts";

/** Largest text file that is read: far above any real tokenizer.json (Gemma's has 33 MB), below V8's longest string. */
const TEXT_MAX_BYTES = 1 << 28;

/** A folder's path, the names of its files, and the requested weight file, if any. */
interface Listing {
  readonly folder: string;
  readonly names: ReadonlySet<string>;
  readonly weights: string | null;
}

/**
 * Opens a checkpoint folder; or a weight file, with the other files of its folder and no other weights; or a .gguf file, which
 * may also be the only one of a folder without config.json. InvalidFileError when a required file is missing or malformed.
 */
export async function openCheckpoint(path: string): Promise<Checkpoint> {
  if (path.endsWith(".gguf")) return openGguf(path);
  const listing = await list(path);
  const gguf = listing.weights === null ? onlyModel(listing.names) : null;
  if (!listing.names.has("config.json") && gguf !== null) return openGguf(join(listing.folder, gguf));
  const tokenizerJson = await readJson(listing, "tokenizer.json");
  const tokenizerConfig = withOlderFiles(listing.folder, {
    tokenizerJson,
    tokenizerConfig: await readJson(listing, "tokenizer_config.json"),
    addedTokens: await readJson(listing, "added_tokens.json"),
    specialTokensMap: await readJson(listing, "special_tokens_map.json"),
  });
  const generationConfig = await readJson(listing, "generation_config.json");
  const jinja = await readText(listing, "chat_template.jinja");
  const texts = {
    tokenizerJson,
    tokenizerConfig,
    generationConfig,
    chatTemplate: jinja ?? templateOf(join(listing.folder, "tokenizer_config.json"), tokenizerConfig),
  };
  const { folder, names } = listing;
  const modules = await readSentenceModules(folder, names);
  const { config, configFile, ...weights } = await openWeights({
    ...listing,
    readJson: (name) => readJson(listing, name),
  });
  const tensors = modules ? await withModuleTensors(folder, weights.tensors, modules) : weights.tensors;
  return { ...texts, modules, notes: [], folder, configFile, config, tensors, close: () => tensors.close() };
}

/**
 * Whether a path is a folder, a weight file (by its ending), or another file. InvalidFileError, with `hint`, if it does not
 * exist.
 */
async function kindOf(path: string, hint = ""): Promise<"folder" | "weights" | "other"> {
  const status = await stat(path).catch((cause: NodeJS.ErrnoException) => {
    const problem = cause.code === "ENOENT" ? "no such file or folder" : cause.message;
    throw new InvalidFileError(path, `${problem}${hint}`, { cause });
  });
  if (status.isDirectory()) return "folder";
  return weightEndings.some((ending) => path.endsWith(ending)) ? "weights" : "other";
}

/** Whether a path is a folder or, by its ending, a weight file. InvalidFileError if it does not exist. */
export async function isCheckpointPath(path: string): Promise<boolean> {
  return (await kindOf(path)) !== "other";
}

async function list(path: string): Promise<Listing> {
  const kind = await kindOf(path, "; expected a checkpoint folder, a .safetensors file or a .gguf file");
  if (kind === "other")
    throw new InvalidFileError(
      path,
      `expected a checkpoint folder, or a file that ends in ${weightEndings.join(", ")}, but found another file`,
    );
  const isFile = kind === "weights";
  const folder = isFile ? dirname(path) : path;
  const names = await readdir(folder).catch((cause: Error) => {
    throw new InvalidFileError(folder, `cannot be listed: ${cause.message}`, { cause });
  });
  return { folder, names: new Set(names), weights: isFile ? basename(path) : null };
}

async function readJson(listing: Listing, name: string): Promise<JsonFile | null> {
  const text = await readText(listing, name);
  return text === null ? null : jsonFile(join(listing.folder, name), text);
}

/** Reads a text file of the folder; null when there is none of that name. */
async function readText({ folder, names }: Listing, name: string): Promise<string | null> {
  if (!names.has(name)) return null;
  const path = join(folder, name);
  const source = await openFile(path);
  try {
    if (source.size > TEXT_MAX_BYTES)
      throw new InvalidFileError(path, `has ${source.size} bytes, more than the ${TEXT_MAX_BYTES} read as text`);
    return decodeUtf8(path, "the file", await source.read(0, source.size));
  } finally {
    await source.close();
  }
}

/** `chat_template` of tokenizer_config.json: a string, or the one named "default" in a list. */
function templateOf(path: string, tokenizerConfig: JsonFile | null): string | null {
  const template = tokenizerConfig?.value.chat_template ?? null;
  if (template === null || typeof template === "string") return template;
  if (!Array.isArray(template))
    throw new InvalidFileError(path, `chat_template should be a string or a list but is ${describe(template)}`);
  const named = new Map<string, string>();
  for (const item of template) {
    const { name, template: text } = isObject(item) ? item : {};
    if (typeof name !== "string" || typeof text !== "string")
      throw new InvalidFileError(
        path,
        `chat_template: each in the list should have a string name and template, found ${describe(name)} and ${describe(text)}`,
      );
    named.set(name, text);
  }
  return named.get("default") ?? null;
}
