/** Loads `.pte` files as language models, in Node. */
import { dirname, join } from "node:path";
import { programAssets } from "../language/assets.ts";
import type { LanguageModel } from "../language/language-model.ts";
import { readTextIfAny } from "../node-file.ts";
import { loadProgramObject } from "./load-program-object.ts";
import { engineOptions, type ProgramFileOptions, withProgramFile } from "./program-file.ts";
import { storedTokenizer } from "./tokenizer-tables.ts";

/**
 * Loads a `.pte` file with its weights, tokenizer and chat template. A file without tokenizer and template, such as
 * ExecuTorch's, takes them from files beside it. InvalidFileError or UnsupportedError when it cannot run here.
 *
 * The native addon maps weights instead of reading them. A mapped file may be deleted or replaced by renaming; truncating
 * it or writing into it ends the process.
 */
export function loadProgram(path: string, options: ProgramFileOptions = {}): Promise<LanguageModel> {
  return withProgramFile(path, options, async (program) => {
    const readBeside = (name: string) => readTextIfAny(join(dirname(path), name));
    const texts = await programAssets(program, readBeside, await storedTokenizer(program, path));
    return loadProgramObject(program, path, { ...options, ...engineOptions(options), texts });
  });
}
