/** Programs of local model files: compiled once, and cached by the SHA-256 of the file. */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { checkOptions, checkString } from "../arguments.ts";
import { InvalidFileError } from "../errors.ts";
import { checkWritable, freeDisk, makeFolder } from "../node-file.ts";
import type { WaitOptions } from "../path-claim.ts";
import { cachedOrMade, contentOf, dropCached, keepCached, programCache } from "./program-cache.ts";

/**
 * Options of `withFileProgram`: how a file becomes a program. `onWait` is called while another process makes the same one.
 */
export interface FileProgramOptions extends WaitOptions {
  /** Folder of cached programs. Default: `programCache()`. */
  readonly cache?: string | undefined;
  /** Describes how weights are quantized and compiled: a part of the cache's key. */
  readonly quantization: string;
  /** Writes the program to a path. */
  readonly make: (path: string) => Promise<void>;
}

/** Upper bound of a program's bytes as a multiple of its source file's; the two are nearly equal. */
const ROOM = 1.5;

/** Why a folder cannot keep the program of a file: it is not writable, or the disk is too full. Null where it can. */
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
 * Compiles a model file, such as a GGUF, to a program and calls `load` on it. Later calls take the program from the cache,
 * for any file of the same content; a damaged program there is made again. Throws as `make` and `load`, and
 * InvalidFileError where the file or the cache cannot be read or written.
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
