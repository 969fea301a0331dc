/** Model → program file. */
import { checkModel, type Model } from "../checkpoint/model.ts";
import { resumeKey } from "../checkpoint/resume-key.ts";
import { checkOutput } from "../node-file.ts";
import { saveProgram } from "../program/save.ts";
import { compileModel } from "./compile-model.ts";
import type { CompileModelOptions } from "./compile-options.ts";

/**
 * Options of `exportProgram`: those of compiling, and how the export tells its progress and goes on after an
 * interruption.
 */
export interface ExportOptions extends CompileModelOptions {
  /**
   * Aborted or killed, keep what was written (beside `path`, as `.partial`), and go on from there when the same is exported
   * again. Default: false, begin anew.
   */
  readonly resume?: boolean;
  /** Called, with `resume`, where it takes seconds to find out whether another process still writes the same path. */
  readonly onWait?: ((reason: string) => void) | undefined;
  /** Called as the file is written, with bytes done and bytes in all. What it throws ends the export. */
  onProgress?(doneBytes: number, totalBytes: number): void;
}

/**
 * Compiles a model and writes it as a `.pte` file, which appears complete or not at all, tensor by tensor. Throws as
 * `compileModel` does, and InvalidFileError for a path that cannot be written.
 */
export async function exportProgram(model: Model, path: string, options: ExportOptions = {}): Promise<void> {
  checkModel(model);
  await checkOutput(path, [model.checkpoint.folder]);
  const program = compileModel(model, options);
  const { onProgress, onWait, signal, resume = false } = options;
  await saveProgram(program, path, {
    resumeKey: resume ? await resumeKey(model) : null,
    onWait,
    ...(onProgress ? { onProgress } : {}),
    ...(signal ? { signal } : {}),
  });
}
