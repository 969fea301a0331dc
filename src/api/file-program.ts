/** Model files here as programs: compiled once, and kept by what they hold. */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { checkOptions, checkString } from "../arguments.ts";
import { InvalidFileError } from "../errors.ts";
import { checkWritable, freeDisk, makeFolder } from "../node-file.ts";
import type { WaitOptions } from "../path-claim.ts";
import { cachedOrMade, contentOf, dropCached, keepCached, programCache } from "./program-cache.ts";

/** How `withFileProgram` makes a program of a file; `onWait` tells of another process that makes the same one. */
export interface FileProgramOptions extends WaitOptions {
  /** Folder that programs are kept in. Default: `programCache()`. */
  readonly cache?: string | undefined;
  /** Words for how weights are quantized and compiled, which programs are told apart by. */
  readonly quantization: string;
  /** Writes the program to a path. */
  readonly make: (path: string) => Promise<void>;
}

/** A program takes about what its file does, and never so many times as much. */
const ROOM = 1.5;

/** Why no program of a file can be kept in a folder: it cannot be written to, or has no room. Null where it can. */
export async function keepingRefusal(file: string, cache = programCache()): Promise<string | null> {
  checkString("file", file);
  try {
    await makeFolder(cache);
    await checkWritable(join(cache, "program"));
  } catch (error) {
    if (error instanceof InvalidFileError) return error.message;
    throw error;
  }
  const [{ size }, free] = await Promise.all([stat(file), freeDisk(cache)]);
  if (ROOM * size <= free) return null;
  return `${cache}: expected ${Math.ceil((ROOM * size) / 1e6)} MB of free disk but found ${Math.floor(free / 1e6)} MB`;
}

/**
 * What `load` gives of a program of a file, such as a GGUF. The first time, the program is made; then it is taken from the
 * cache, for any file of the same content. A program that is damaged there is made again. Throws what `make` and `load`
 * do, and InvalidFileError where the file or the cache cannot be read or written.
 */
export async function withFileProgram<R>(
  file: string,
  options: FileProgramOptions,
  load: (path: string) => Promise<R>,
): Promise<R> {
  checkString("file", file);
  checkOptions(options);
  const { cache = programCache(), quantization, signal, onWait } = options;
  const content = await contentOf(file, cache);
  const key = { model: file, content, quantization };
  const found = () =>
    cachedOrMade(key, cache, { signal, onWait }, async (path) => {
      await options.make(path);
      await keepCached(key, content, cache);
    });
  const { path, wasThere } = await found();
  try {
    return await load(path);
  } catch (error) {
    if (!wasThere || !(error instanceof InvalidFileError)) throw error;
  }
  await dropCached(key, cache);
  return load((await found()).path);
}
