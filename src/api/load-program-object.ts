/** Loads programs in memory as language models. */

import { type LanguageModel, type LanguageModelOptions, loadLanguageModel } from "../language/language-model.ts";
import type { LateModules } from "../language/late-modules.ts";
import type { Program } from "../program/program.ts";

const modules: LateModules = {
  answers: () => import("../text/answer/index.ts"),
  constraints: () => import("../text/constraints/index.ts"),
};

/**
 * Loads a program in memory, such as one of `compileModel`. InvalidFileError or UnsupportedError when it cannot run here.
 */
export async function loadProgramObject(
  program: Program,
  name: string,
  options: LanguageModelOptions = {},
): Promise<LanguageModel> {
  return loadLanguageModel(program, name, modules, options);
}
