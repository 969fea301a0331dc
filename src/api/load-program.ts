/** From a `.pte` file of Node to a language model. */
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { mapFile } from "../kernels/native/mapped-file.ts";
import { openFile } from "../node-file.ts";
import { readProgram } from "../program/read.ts";
import type { LoadOptions } from "../runtime/program.ts";
import { type LanguageModel, loadProgramObject } from "./language-model.ts";
import { programTexts } from "./texts.ts";

/**
 * Loads a `.pte` file: weights (mapped where the addon can, read otherwise), tokenizer, chat template; those from files
 * beside it, as ExecuTorch keeps them, when it has none. InvalidFileError or UnsupportedError when it cannot run here.
 */
export async function loadProgram(path: string, options: LoadOptions = {}): Promise<LanguageModel> {
  const file = await openFile(path);
  try {
    const program = await readProgram(mapFile(path) ?? file);
    const texts = await programTexts(program, (name) => readFile(join(dirname(path), name), "utf8").catch(() => null));
    return await loadProgramObject(program, path, { ...options, texts });
  } finally {
    await file.close();
  }
}
