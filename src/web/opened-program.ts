/** Opens model files as programs: .pte files, or programs made from GGUF files. */
import type { ByteSource } from "../byte-source.ts";
import { readProgram } from "../program/read.ts";
import type { WorkerModules } from "./late-modules.ts";
import type { MakingOptions, OpenedProgram, StoredModel } from "./model-cache.ts";

const MAGIC = [..."GGUF"].map((letter) => letter.charCodeAt(0));

/** Whether a file has GGUF's magic number, whatever its name. */
async function isGguf(source: ByteSource): Promise<boolean> {
  if (source.size < MAGIC.length) return false;
  const start = await source.read(0, MAGIC.length);
  return MAGIC.every((byte, i) => start[i] === byte);
}

/** Opens the program of a file. Throws the errors of reading it, or of converting a GGUF file. */
export async function openProgram(
  file: StoredModel,
  modules: Pick<WorkerModules, "gguf">,
  options: MakingOptions,
): Promise<OpenedProgram> {
  const { source, forget } = file;
  if (await isGguf(source)) return (await modules.gguf()).openGguf(file, options);
  return { program: await readProgram(source), isMadeNow: false, close: () => source.close(), forget };
}
