/** Git LFS pointers, which are in a clone in place of files that were not downloaded. */
import type { ByteSource } from "./byte-source.ts";
import { InvalidFileError } from "./errors.ts";

/** Beginning of each pointer: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md */
const START = "version https://git-lfs.github.com/spec/";
/** Most bytes of a pointer. */
const POINTER_MAX_BYTES = 1024;

/** InvalidFileError for a pointer in place of the file's content. */
export async function checkNoPointer(source: ByteSource): Promise<void> {
  if (source.size < START.length || source.size > POINTER_MAX_BYTES) return;
  const text = new TextDecoder("latin1").decode(await source.read(0, source.size));
  if (!text.startsWith(START)) return;
  const size = /^size (\d+)$/m.exec(text)?.[1];
  const promised = size === undefined ? "" : ` of ${size} bytes`;
  throw new InvalidFileError(
    source.name,
    `is a Git LFS pointer to a file${promised} that was not downloaded; run "git lfs pull" in its folder`,
  );
}
