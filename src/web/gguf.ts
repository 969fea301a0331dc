/** Converts GGUF files in pages: a module that the worker loads when needed. The programs are cached if there is room. */
import { compileModel } from "../api/compile-model.ts";
import type { ByteSource } from "../byte-source.ts";
import { modelOf } from "../checkpoint/model.ts";
import { UnsupportedError } from "../errors.ts";
import { ggufCheckpoint } from "../formats/gguf/checkpoint.ts";
import { partNames } from "../formats/gguf/split.ts";
import { checkProgramMemory } from "../language/language-model.ts";
import type { Program } from "../program/program.ts";
import { readProgram } from "../program/read.ts";
import { writeProgram } from "../program/write.ts";
import { blobSource } from "./blob-source.ts";
import { isSame } from "./download.ts";
import { findWhole, nameOf, openFolder, openKept, writeWhole } from "./kept-file.ts";
import type { MakingOptions, OpenedProgram, StoredModel } from "./model-cache.ts";

/**
 * Opens the program of a GGUF file, with the weights as stored. It is made once and replaces the file in the cache if there is
 * room; otherwise it is made piece by piece while it is loaded. UnsupportedError for an unsupported model and, before it is
 * made, for one too large for a page's memory; InvalidFileError for a damaged file.
 */
export async function openGguf(file: StoredModel, options: MakingOptions): Promise<OpenedProgram> {
  const { source, forget } = file;
  const kept = await openMade(file, options);
  if (!kept)
    return { program: await makeProgram(source, options), isMadeNow: true, close: () => source.close(), forget };
  await source.close();
  // The user's own files are not deleted.
  if (file.isCached) await forget();
  return kept;
}

async function makeProgram(source: ByteSource, { signal }: MakingOptions): Promise<Program> {
  const { name } = source;
  const parts = partNames(name.split("/").at(-1)!) ?? [];
  if (parts.length > 1)
    throw new UnsupportedError(
      `${name}: is one of ${parts.length} files of a model, and a page takes models in one file; \`lowbit quantize\` makes one of them`,
    );
  const model = await modelOf(await ggufCheckpoint(name, [source]));
  const program = compileModel(model, { signal });
  checkProgramMemory(program);
  return program;
}

/** Opens the program in the private file system, where it is written first if necessary; null if there is no room. */
async function openMade({ source, origin }: StoredModel, options: MakingOptions): Promise<OpenedProgram | null> {
  const folder = origin && (await openFolder());
  if (!folder) return null;
  const { signal, onProgress } = options;
  const { key, version } = origin;
  const name = await nameOf(key);
  const find = async () => {
    const known = await findWhole(folder, name, async (target) => isSame(version, target.version));
    if (known) return known;
    const program = await makeProgram(source, options);
    return writeWhole(folder, { name, version, byteLength: bytesOf(program) }, signal, (sink) =>
      writeProgram(program, sink, { signal, onProgress }),
    );
  };
  const opened = await openKept(folder, name, signal, find);
  if (!opened) return null;
  const { blob, release, forget } = opened;
  const program = await readProgram(blobSource(source.name, blob));
  return { program, isMadeNow: false, close: async () => release(), forget };
}

/** Total bytes of a program's constants, each counted once; they are nearly all of its file. */
function bytesOf({ constants }: Program): number {
  return [...new Set(constants)].reduce((sum, { data }) => sum + data.byteLength, 0);
}
