/** Cache folder of programs that were made of hub models and local files. */

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { readdir, rm, stat, utimes } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, join, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { checkFields, checkString } from "../arguments.ts";
import { InvalidArgumentError } from "../errors.ts";
import { parseRepository } from "../hub/settings.ts";
import { makeFolder, readTextIfAny, writeFileWhole } from "../node-file.ts";
import { claimPath, type WaitOptions } from "../path-claim.ts";
import { version } from "../version.ts";

/** A program in the cache, and what it was made of. */
export interface CachedProgram {
  /** Name of the model, "hf:org/name", with "@revision" where one was asked for; of a local file, its path. */
  readonly model: string;
  /** Commit of the repository that the program was made of; for a local file, the SHA-256 of its content. */
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

/** The key of a cached program: the model's name, and how it is quantized. */
export interface CacheKey {
  /** Name of the model, "hf:org/name[@revision]" or without "hf:"; for a local file, its path. */
  readonly model: string;
  /** SHA-256 of a local file's content, which the key has in place of its path. */
  readonly content?: string;
  /** How its weights are quantized, in words. */
  readonly quantization: string;
}

/**
 * Version of the cache's format: programs of another version are made again, since kernels want the layouts of their time.
 */
const VERSION = 1;
const HASH_LENGTH = 10;
const READ_BYTES = 2 ** 22;

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

/** Name of a key's model, as it is listed. */
const nameOf = ({ model, content }: CacheKey) => (content === undefined ? hubName(model) : resolve(model));

/** Folder, within the cache, of programs of local files. */
const FILES = "files";

/**
 * Path of the program of a key, whether it exists or not. Programs of local files are used by the version that made them
 * only.
 */
export function cachedPath(key: CacheKey, cache = programCache()): string {
  const { content, quantization } = key;
  const name = nameOf(key);
  const facts = content === undefined ? [name, quantization] : [content, quantization, version];
  const hash = createHash("sha256")
    .update(JSON.stringify([VERSION, process.arch, ...facts]))
    .digest("hex");
  const folder = content === undefined ? name.slice("hf:".length).replaceAll("/", "--") : FILES;
  return join(cache, folder, `${hash.slice(0, HASH_LENGTH)}.pte`);
}

const notesOf = (path: string) => `${path}.json`;

/** The cached program of a key, marked as used now; null when it is not in the cache. */
async function findCached(key: CacheKey, cache = programCache()): Promise<CachedProgram | null> {
  const found = await readCached(cachedPath(key, cache));
  const now = new Date();
  if (found) await utimes(notesOf(found.path), now, now).catch(() => {});
  return found;
}

/** Adds the program of a key, which was written to its path meanwhile, to the cache. */
export async function keepCached(key: CacheKey, commit: string, cache = programCache()): Promise<void> {
  const path = cachedPath(key, cache);
  const { size } = await stat(path);
  const notes = { version: VERSION, model: nameOf(key), commit, quantization: key.quantization, bytes: size };
  await writeJson(notesOf(path), notes);
}

async function writeJson(path: string, value: unknown): Promise<void> {
  const bytes = new TextEncoder().encode(`${JSON.stringify(value, null, 2)}\n`);
  await writeFileWhole(path, (sink) => sink.write(bytes));
}

/**
 * Path of the program of a key in the cache, and whether it was there; otherwise `make` writes it, in one process at a
 * time.
 */
export async function cachedOrMade(
  key: CacheKey,
  cache: string,
  wait: WaitOptions,
  make: (path: string) => Promise<void>,
): Promise<{ readonly path: string; readonly wasThere: boolean }> {
  const known = await findCached(key, cache);
  if (known) return { path: known.path, wasThere: true };
  const path = await makeCachedFolder(key, cache);
  const claim = await claimPath(path, wait);
  try {
    const wasThere = (await findCached(key, cache)) !== null;
    if (!wasThere) await make(path);
    return { path, wasThere };
  } finally {
    await claim.release();
  }
}

/** Removes the program of a key, so that it is made again the next time. */
export async function dropCached(key: CacheKey, cache = programCache()): Promise<void> {
  await removeProgram(cachedPath(key, cache));
}

async function removeProgram(path: string): Promise<void> {
  await rm(notesOf(path), { force: true });
  await rm(path, { force: true });
}

/**
 * SHA-256 of a file's content, in hexadecimal. It is computed again only where the file's size, times or inode differ from
 * those that the cache has noted.
 */
export async function contentOf(path: string, cache = programCache()): Promise<string> {
  const { size, mtimeMs, ctimeMs, ino, dev } = await stat(path);
  const state = JSON.stringify([VERSION, resolve(path), size, mtimeMs, ctimeMs, ino, dev]);
  const name = createHash("sha256").update(resolve(path)).digest("hex").slice(0, HASH_LENGTH);
  const notes = join(cache, FILES, `${name}.content.json`);
  const known = await readTextIfAny(notes).then(parseContent, () => null);
  if (known?.state === state) return known.content;
  const hash = createHash("sha256");
  await pipeline(createReadStream(path, { highWaterMark: READ_BYTES }), hash);
  const content = hash.digest("hex");
  await makeFolder(join(cache, FILES));
  await writeJson(notes, { state, content });
  return content;
}

function parseContent(text: string | null): { readonly state: string; readonly content: string } | null {
  try {
    const { state, content } = JSON.parse(text ?? "{}") as Record<string, unknown>;
    return typeof state === "string" && typeof content === "string" ? { state, content } : null;
  } catch {
    return null;
  }
}

/** Makes the folder that the program of a key goes to, and gives the path of the program. */
async function makeCachedFolder(key: CacheKey, cache = programCache()): Promise<string> {
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
    const { version, model, commit, quantization, bytes = file.size } = JSON.parse(text) as Record<string, unknown>;
    if (version !== VERSION || bytes !== file.size) return null;
    if (![model, commit, quantization].every((value) => typeof value === "string")) return null;
    const facts = { model, commit, quantization } as Pick<CachedProgram, "model" | "commit" | "quantization">;
    return { ...facts, path, bytes: file.size, usedAt: notes.mtime };
  } catch {
    return null;
  }
}

/** Lists all programs of the cache, the last used first. */
export async function listCachedPrograms(cache = programCache()): Promise<CachedProgram[]> {
  checkString("cache", cache);
  const names = await readdir(cache, { recursive: true }).catch(() => []);
  const found = await Promise.all(
    names.filter((name) => name.endsWith(".pte")).map((name) => readCached(join(cache, name))),
  );
  return found.filter((program) => program !== null).sort((a, b) => b.usedAt.getTime() - a.usedAt.getTime());
}

/**
 * Removes the programs of a model, or one by the name of its file, and gives what was removed. Downloads stay in the hub's
 * cache. InvalidArgumentError when the cache has no program of that name.
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
  for (const { path } of matches) await removeProgram(path);
  return matches;
}
