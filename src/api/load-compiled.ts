/** Compiles models and runs them at once, without a program file. */

import { checkOptions } from "../arguments.ts";
import { assetsOf } from "../checkpoint/assets.ts";
import { checkModel, type Model } from "../checkpoint/model.ts";
import type { LanguageModel } from "../language/language-model.ts";
import type { LoadOptions } from "../runtime/program.ts";
import { compileModel } from "./compile-model.ts";
import type { CompileModelOptions } from "./compile-options.ts";
import { loadProgramObject } from "./load-program-object.ts";
import { engineOptions } from "./program-file.ts";

/**
 * Compiles a model and loads the program. Weights are read, quantized and packed now, so the model may be closed
 * afterwards. Throws as `compileModel` does.
 */
export async function loadCompiled(
  model: Model,
  options: CompileModelOptions & LoadOptions = {},
): Promise<LanguageModel> {
  checkModel(model);
  checkOptions(options);
  const texts = assetsOf(model.checkpoint);
  return loadProgramObject(compileModel(model, options), model.checkpoint.folder, {
    ...options,
    ...engineOptions(options),
    texts,
  });
}
