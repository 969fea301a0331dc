/** From a model to running it without a file between. */

import { checkOptions } from "../arguments.ts";
import { checkModel, type Model } from "../checkpoint/model.ts";
import { textsOf } from "../checkpoint/texts.ts";
import { type LanguageModel, loadProgramObject } from "../language/language-model.ts";
import type { LoadOptions } from "../runtime/program.ts";
import { compileModel } from "./compile-model.ts";
import type { CompileModelOptions } from "./compile-options.ts";
import { engineOptions } from "./program-file.ts";

/** Compiles a model and loads the program: weights are read (quantized, packed) now, so the model may be closed after. Throws as `compileModel` does. */
export async function loadCompiled(
  model: Model,
  options: CompileModelOptions & LoadOptions = {},
): Promise<LanguageModel> {
  checkModel(model);
  checkOptions(options);
  const texts = textsOf(model.checkpoint);
  // Of a program for ExecuTorch, the type is compiled in; of others, it is chosen here.
  const { kvCache, ...compiling } = options;
  const program = compileModel(model, options.target === "executorch" ? options : compiling);
  return loadProgramObject(program, model.checkpoint.folder, {
    ...options,
    ...engineOptions(options),
    texts,
  });
}
