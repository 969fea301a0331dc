/** GGUF files in pages: a module that the worker loads when it meets one. Programs made of them are kept where there is room. */
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
 * The program of a GGUF, with the weights as the file stores them. It is made once and kept in the file's place where there
 * is room; else it is made as it is loaded, piece by piece. UnsupportedError for a model that cannot run, and before it is
 * made for one too large for the memory of pages; InvalidFileError for a damaged file.
 */
export async function openGguf(file: StoredModel, options: MakingOptions): Promise<OpenedProgram> {
  const { source, forget } = file;
  const kept = await openMade(file, options);
  if (!kept)
    return { program: await makeProgram(source, options), isMadeNow: true, close: () => source.close(), forget };
  await source.close();
  // A file of the user's own is not the page's to forget.
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

/** The program of the GGUF from the private file system, written there first if it is not there; null without room. */
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

/** Bytes of a program's constants, each once, which are nearly all of its file. */
function bytesOf({ constants }: Program): number {
  return [...new Set(constants)].reduce((sum, { data }) => sum + data.byteLength, 0);
}
