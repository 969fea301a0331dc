/** From a `.pte` file of Node to a language model. */
import { dirname, join } from "node:path";
import { programAssets } from "../language/assets.ts";
import type { LanguageModel } from "../language/language-model.ts";
import { readTextIfAny } from "../node-file.ts";
import { loadProgramObject } from "./load-program-object.ts";
import { engineOptions, type ProgramFileOptions, withProgramFile } from "./program-file.ts";

/**
 * Loads a `.pte` file: weights (mapped where the addon can, read otherwise), tokenizer, chat template; those from files
 * beside it, as ExecuTorch keeps them, when it has none. InvalidFileError or UnsupportedError when it cannot run here.
 * While a mapped file is loaded it may be deleted, or replaced by renaming; cutting or writing into it ends the process.
 */
export function loadProgram(path: string, options: ProgramFileOptions = {}): Promise<LanguageModel> {
  return withProgramFile(path, options, async (program) => {
    const texts = await programAssets(program, (name) => readTextIfAny(join(dirname(path), name)));
    return loadProgramObject(program, path, { ...options, ...engineOptions(options), texts });
  });
}
