/** The models of a server or batch, as named on the command line. */
import { existsSync, readdirSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { InvalidArgumentError, LowbitError } from "../index.ts";
import type { PullModel } from "../server/index.ts";
import { isHubName, listCachedPrograms, modelFactsOf, type PrefixCache, removeCachedPrograms } from "../tools/index.ts";
import { type DraftOption, draftOf } from "./draft-option.ts";
import { keptProgram, type ModelOptions, openModel, takesCheckpoint } from "./model-source.ts";
import { openPrefixes, type PrefixOptions } from "./prefix-options.ts";
import type { Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

/** Name and path of a model argument: `name=path`, or a path that gives the name. */
export function parseModel(argument: string): { name: string; path: string } {
  const [, name, path] = /^([\w.:@+-]+(?:\/[\w.:@+-]+)*)=(.+)$/.exec(argument) ?? [];
  if (name !== undefined && path !== undefined && !existsSync(argument)) return { name, path };
  return { name: nameOf(argument), path: argument };
}

/** `org/name` of a hub model, or the last part of a path without its extension. */
function nameOf(path: string): string {
  if (isHubName(path)) return path.replace(/^hf:/, "");
  return basename(path).replace(/\.(pte|gguf)$/i, "");
}

/** Bytes of a file, or of all files of a folder; 0 where the path does not exist. */
export function bytesAt(path: string): number {
  const found = statSync(path, { throwIfNoEntry: false });
  if (!found?.isDirectory()) return found?.size ?? 0;
  const sizes = readdirSync(path).map((name) => statSync(join(path, name), { throwIfNoEntry: false })?.size ?? 0);
  return sizes.reduce((sum, size) => sum + size, 0);
}

/** How models are loaded, beside their options. */
interface Loading {
  readonly terminal: Terminal;
  /** Opens the prefix cache on disk, once; null for none. */
  readonly prefixes: () => Promise<PrefixCache | null>;
  readonly draft: ReturnType<typeof draftOf>;
}

export function loadingWith(options: ModelOptions & PrefixOptions & DraftOption, terminal: Terminal): Loading {
  let opened: Promise<PrefixCache | null> | null = null;
  const prefixes = () => {
    opened ??= openPrefixes(options, terminal);
    return opened;
  };
  return { terminal, prefixes, draft: draftOf(options, options, terminal) };
}

/** Sources of models, loaded when first asked for. UsageError for options that one of the models cannot have. */
export function servedModels(given: readonly string[], options: ModelOptions, loading: Loading) {
  return sourcesOf(given.map(parseModel), options, loading);
}

/** Sources of models whose names are their paths. */
export function calledModels(paths: readonly string[], options: ModelOptions, loading: Loading) {
  return sourcesOf(
    paths.map((path) => ({ name: path, path })),
    options,
    loading,
  );
}

interface NamedPath {
  readonly name: string;
  readonly path: string;
}

async function sourcesOf(models: readonly NamedPath[], options: ModelOptions, loading: Loading) {
  for (const { path } of models) {
    const isHere = isHubName(path) || existsSync(path);
    if (!isHere) throw new UsageError(`${path}: expected a file, a folder or hf:org/name`);
    await takesCheckpoint(path, options);
  }
  await loading.prefixes();
  return Promise.all(models.map((model) => sourceOf(model, options, loading)));
}

async function sourceOf({ name, path }: NamedPath, options: ModelOptions, { terminal, prefixes, draft }: Loading) {
  const load = async () => openModel(path, options, terminal, { isKept: true, prefixes: await prefixes(), draft });
  if (isHubName(path)) return { name, bytes: 0, load, remove: () => removeKept(path) };
  const facts = await knownFacts(path, options);
  const modifiedAt = statSync(path).mtime;
  return { name, bytes: bytesAt(path), facts, modifiedAt, load };
}

/** Facts from a model's file; null where it cannot be read, so that loading it will say why. */
async function knownFacts(path: string, { context, data }: ModelOptions) {
  try {
    return await modelFactsOf(path, { contextLength: context, data });
  } catch (error) {
    if (error instanceof LowbitError) return null;
    throw error;
  }
}

/** Removes the cached programs of a hub model. */
async function removeKept(name: string): Promise<void> {
  const programs = await listCachedPrograms();
  if (programs.some(({ model }) => model === name)) await removeCachedPrograms(name);
}

/** Names of a hub model, also in the forms of other programs. */
const PULLED = /^(?:hf:|hf\.co\/|huggingface\.co\/)?([\w.-]+\/[\w.-]+)$/;

/** Downloads hub models that requests ask for, and keeps them as programs. */
export function modelPuller(options: ModelOptions, loading: Loading): PullModel {
  return async (name, { signal, onProgress }) => {
    const [, repository] = PULLED.exec(name) ?? [];
    if (repository === undefined)
      throw new InvalidArgumentError(
        "pull model manifest: file does not exist: expected org/name of the Hugging Face hub",
      );
    const path = `hf:${repository}`;
    const program = await keptProgram(path, options, loading.terminal, { signal, onProgress });
    const source = await sourceOf({ name, path: program }, options, loading);
    return { ...source, remove: () => removeKept(path) };
  };
}
