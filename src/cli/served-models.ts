/** The models of a server or a batch, as they are named on the command line. */
import { existsSync, readdirSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { LowbitError } from "../index.ts";
import type { ModelSource } from "../server/index.ts";
import { contextLengthOf, isHubName } from "../tools/index.ts";
import { type DraftOption, draftOf } from "./draft-option.ts";
import { type ModelOptions, openModel, takesCheckpoint } from "./model-source.ts";
import { openPrefixes, type PrefixOptions } from "./prefix-options.ts";
import type { Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

/** What a model argument says: `name=path`, or a path that has a name in it. */
export function parseModel(argument: string): { name: string; path: string } {
  const [, name, path] = /^([\w.:@+-]+(?:\/[\w.:@+-]+)*)=(.+)$/.exec(argument) ?? [];
  if (name !== undefined && path !== undefined && !existsSync(argument)) return { name, path };
  return { name: nameOf(argument), path: argument };
}

/** `org/name` of the hub, or the last part of a path without its ending. */
function nameOf(path: string): string {
  if (isHubName(path)) return path.replace(/^hf:/, "");
  return basename(path).replace(/\.(pte|gguf)$/i, "");
}

/** Bytes of a file, or of all files of a folder; 0 for what is not here. */
export function bytesAt(path: string): number {
  const found = statSync(path, { throwIfNoEntry: false });
  if (!found?.isDirectory()) return found?.size ?? 0;
  const sizes = readdirSync(path).map((name) => statSync(join(path, name), { throwIfNoEntry: false })?.size ?? 0);
  return sizes.reduce((sum, size) => sum + size, 0);
}

/** How models are loaded, and where computed prompts are kept. */
type ServedOptions = ModelOptions & PrefixOptions & DraftOption;

/** Models to be loaded when they are asked for. UsageError for options that one of them cannot have. */
export function servedModels(given: readonly string[], options: ServedOptions, terminal: Terminal) {
  return sourcesOf(given.map(parseModel), options, terminal);
}

/** Models that requests call by their paths. */
export function calledModels(paths: readonly string[], options: ServedOptions, terminal: Terminal) {
  return sourcesOf(
    paths.map((path) => ({ name: path, path })),
    options,
    terminal,
  );
}

async function sourcesOf(
  models: readonly { readonly name: string; readonly path: string }[],
  options: ServedOptions,
  terminal: Terminal,
): Promise<ModelSource[]> {
  for (const { path } of models) {
    const isHere = isHubName(path) || existsSync(path);
    if (!isHere) throw new UsageError(`${path}: expected a file, a folder or hf:org/name`);
    await takesCheckpoint(path, options);
  }
  const prefixes = await openPrefixes(options, terminal);
  const draft = draftOf(options, options, terminal);
  return Promise.all(
    models.map(async ({ name, path }) => ({
      name,
      bytes: isHubName(path) ? 0 : bytesAt(path),
      contextLength: isHubName(path) ? null : await knownContext(path, options),
      load: () => openModel(path, options, terminal, { isKept: true, prefixes, draft }),
    })),
  );
}

/** Tokens of a model's context; null where its file does not tell, of which loading it will say why. */
async function knownContext(path: string, { context, data }: ModelOptions): Promise<number | null> {
  try {
    return await contextLengthOf(path, { contextLength: context, data });
  } catch (error) {
    if (error instanceof LowbitError) return null;
    throw error;
  }
}
