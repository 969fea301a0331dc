/** Opens GGUF files by path: one, or all of a split model. */
import { readdir } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { ByteSource } from "../../byte-source.ts";
import { InvalidFileError } from "../../errors.ts";
import { openFile } from "../../node-file.ts";
import type { Checkpoint } from "../contract.ts";
import { ggufCheckpoint } from "./checkpoint.ts";
import { partNames } from "./split.ts";

/** Opens the file at `path`. InvalidFileError when it is malformed, UnsupportedError for an unsupported model. */
export async function openGguf(path: string): Promise<Checkpoint> {
  const sources: ByteSource[] = [];
  try {
    for (const part of await partsOf(path)) sources.push(await openFile(part));
    return await ggufCheckpoint(path, sources);
  } catch (error) {
    for (const source of sources) await source.close();
    throw error;
  }
}

/** Paths of all files of the split model that `path` belongs to, in order. InvalidFileError when some are missing. */
async function partsOf(path: string): Promise<readonly string[]> {
  const names = partNames(basename(path));
  if (names === null) return [path];
  const folder = dirname(path);
  const present = new Set(await readdir(folder).catch(() => []));
  const absent = names.filter((part) => !present.has(part));
  if (names.length === 0 || absent.length > 0)
    throw new InvalidFileError(
      path,
      names.length === 0
        ? "its name gives a part of a split model that the model does not have"
        : `is one of ${names.length} files, of which ${absent.join(", ")} is absent`,
    );
  return names.map((part) => join(folder, part));
}
