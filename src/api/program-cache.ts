/** Programs that were made of models of the hub, kept in a folder for the next time. */

import { createHash } from "node:crypto";
import { readdir, rm, stat, utimes } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, join } from "node:path";
import { checkFields, checkString } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { parseRepository } from "../hub/settings.ts";
import { makeFolder, readTextIfAny, writeFileWhole } from "../node-file.ts";

/** A program in the cache. */
export interface CachedProgram {
  /** Name of the model, "hf:org/name", with "@revision" where one was asked for. */
  readonly model: string;
  /** Commit of the repository that it was made of. */
  readonly commit: string;
  /** How its weights were quantized, in words. */
  readonly quantization: string;
  /** Path of the `.pte` file. */
  readonly path: string;
  /** Size of the file. */
  readonly bytes: number;
  /** Time at which it was last loaded by name. */
  readonly usedAt: Date;
}

/** What a cached program is found by: the model's name, and how it was quantized. */
export interface CacheKey {
  /** Name of the model, "hf:org/name[@revision]" or without "hf:". */
  readonly model: string;
  /** How its weights are quantized, in words. */
  readonly quantization: string;
}

/** Programs of other versions of this are made again: kernels of a machine want the layouts of their own. */
const VERSION = 1;
const HASH_LENGTH = 10;

/** The folder of cached programs: `LOWBIT_CACHE`, or `lowbit` within `XDG_CACHE_HOME` or `~/.cache`. */
export function programCache(environment: Readonly<Record<string, string | undefined>> = process.env): string {
  checkFields("environment", environment, [], "variables by name");
  const { LOWBIT_CACHE, XDG_CACHE_HOME } = environment;
  return LOWBIT_CACHE || join(XDG_CACHE_HOME || join(homedir(), ".cache"), "lowbit");
}

/** "hf:org/name" or "hf:org/name@revision". InvalidArgumentError for what is no name of a repository. */
export function hubName(model: string): string {
  const { repository, revision } = parseRepository(model);
  return `hf:${repository}${revision === "main" ? "" : `@${revision}`}`;
}

/** Path of the program of a key, whether it is there or not. */
export function cachedPath({ model, quantization }: CacheKey, cache = programCache()): string {
  const name = hubName(model);
  const key = JSON.stringify([VERSION, process.arch, name, quantization]);
  const hash = createHash("sha256").update(key).digest("hex").slice(0, HASH_LENGTH);
  return join(cache, name.slice("hf:".length).replaceAll("/", "--"), `${hash}.pte`);
}

const notesOf = (path: string) => `${path}.json`;

/** The program of a key, which counts as used now; null when it is not in the cache. */
export async function findCached(key: CacheKey, cache = programCache()): Promise<CachedProgram | null> {
  const found = await readCached(cachedPath(key, cache));
  const now = new Date();
  if (found) await utimes(notesOf(found.path), now, now).catch(() => {});
  return found;
}

/** Makes the program at the path of a key known, which was written meanwhile. */
export async function keepCached(key: CacheKey, commit: string, cache = programCache()): Promise<void> {
  const notes = { version: VERSION, model: hubName(key.model), commit, quantization: key.quantization };
  const bytes = new TextEncoder().encode(`${JSON.stringify(notes, null, 2)}\n`);
  await writeFileWhole(notesOf(cachedPath(key, cache)), (sink) => sink.write(bytes));
}

/** Makes the folder that the program of a key goes to, and gives the path of the program. */
export async function makeCachedFolder(key: CacheKey, cache = programCache()): Promise<string> {
  const path = cachedPath(key, cache);
  await makeFolder(join(path, ".."));
  return path;
}

async function readCached(path: string): Promise<CachedProgram | null> {
  const [file, notes, text] = await Promise.all([
    stat(path).catch(() => null),
    stat(notesOf(path)).catch(() => null),
    readTextIfAny(notesOf(path)).catch(() => null),
  ]);
  if (!file?.isFile() || !notes || text === null) return null;
  try {
    const { version, model, commit, quantization } = JSON.parse(text) as Record<string, unknown>;
    if (version !== VERSION || ![model, commit, quantization].every((value) => typeof value === "string")) return null;
    const facts = { model, commit, quantization } as Pick<CachedProgram, "model" | "commit" | "quantization">;
    return { ...facts, path, bytes: file.size, usedAt: notes.mtime };
  } catch {
    return null;
  }
}

/** All programs of the cache, the last used first. */
export async function listCachedPrograms(cache = programCache()): Promise<CachedProgram[]> {
  checkString("cache", cache);
  const names = await readdir(cache, { recursive: true }).catch(() => []);
  const found = await Promise.all(
    names.filter((name) => name.endsWith(".pte")).map((name) => readCached(join(cache, name))),
  );
  return found.filter((program) => program !== null).sort((a, b) => b.usedAt.getTime() - a.usedAt.getTime());
}

/**
 * Removes the programs of a model, or one by the name of its file, and gives what was removed. What was downloaded of the
 * model stays in the hub's cache. InvalidArgumentError when the cache has none of that name.
 */
export async function removeCachedPrograms(name: string, cache = programCache()): Promise<CachedProgram[]> {
  checkString("name", name);
  checkString("cache", cache);
  const programs = await listCachedPrograms(cache);
  const matches = programs.filter(
    ({ model, path }) => model === name || model === `hf:${name}` || basename(path, ".pte") === basename(name, ".pte"),
  );
  if (matches.length === 0) {
    const known = [...new Set(programs.map(({ model }) => model))].join(", ") || "none at all";
    throw new InvalidArgumentError(`${name}: expected a model of the cache ${cache} (${known})`);
  }
  for (const { path } of matches) {
    await rm(notesOf(path), { force: true });
    await rm(path, { force: true });
  }
  return matches;
}
