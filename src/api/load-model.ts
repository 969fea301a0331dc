/** Loads a model by its path: a program, a checkpoint or a model of the hub. */
import { isCheckpoint, isHubName, loadCheckpoint } from "../checkpoint/load.ts";
import type { LanguageModel } from "../language/language-model.ts";
import { hubProgram } from "./hub-program.ts";
import { loadCompiled } from "./load-compiled.ts";
import { loadProgram } from "./load-program.ts";
import type { ProgramFileOptions } from "./program-file.ts";

/**
 * Loads a `.pte` program, a checkpoint folder or GGUF file (whose weights are kept as stored), or a model of the hub
 * ("hf:org/name"), which becomes a 4-bit program once. Throws as `loadProgram`, `loadCheckpoint` and `hubProgram` do.
 */
export async function loadModel(path: string, options: ProgramFileOptions = {}): Promise<LanguageModel> {
  const { signal } = options;
  if (isHubName(path)) return loadProgram(await hubProgram(path, { signal }), options);
  if (!(await isCheckpoint(path))) return loadProgram(path, options);
  const { data: _, ...load } = options;
  const model = await loadCheckpoint(path, { signal });
  try {
    return await loadCompiled(model, load);
  } finally {
    await model.close();
  }
}
