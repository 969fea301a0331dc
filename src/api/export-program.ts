/** Writes a model as a program file. */
import { checkModel, type Model } from "../checkpoint/model.ts";
import { resumeKey } from "../checkpoint/resume-key.ts";
import { checkOutput } from "../node-file.ts";
import { saveProgram } from "../program/save.ts";
import { fileBytes } from "../program/write.ts";
import { compileModel, unreadProgram } from "./compile-model.ts";
import type { CompileModelOptions } from "./compile-options.ts";
import { withTokenizerTables } from "./tokenizer-tables.ts";

/** Options of `exportProgram`: those of compiling, progress, and whether an interrupted export is resumed. */
export interface ExportOptions extends CompileModelOptions {
  /**
   * Keeps what was written when the export is aborted or killed (beside `path`, as `.partial`), and resumes from there when
   * the same export is called again. Default: false, each export begins anew.
   */
  readonly resume?: boolean;
  /**
   * Called with a reason, with `resume`, while it takes seconds to find out whether another process still writes the same
   * path.
   */
  readonly onWait?: ((reason: string) => void) | undefined;
  /** Called as the file is written, with bytes done and bytes in all. An error that it throws ends the export. */
  onProgress?(doneBytes: number, totalBytes: number): void;
}

/**
 * Compiles a model and writes it as a `.pte` file, tensor by tensor; the file appears complete or not at all. Throws as
 * `compileModel` does, and InvalidFileError for a path that cannot be written.
 */
export async function exportProgram(model: Model, path: string, options: ExportOptions = {}): Promise<void> {
  checkModel(model);
  await checkOutput(path, [model.checkpoint.folder]);
  const program = withTokenizerTables(compileModel(model, options), model.checkpoint.tokenizerJson);
  const { onProgress, onWait, signal, resume = false } = options;
  await saveProgram(program, path, {
    resumeKey: resume ? await resumeKey(model) : null,
    onWait,
    ...(onProgress ? { onProgress } : {}),
    ...(signal ? { signal } : {}),
  });
}

/** Bytes of a model's `.pte` file. Weights are not read, and may still wait for calibration. Throws as `compileModel`. */
export function programBytes(model: Model, options: CompileModelOptions = {}): number {
  return fileBytes(withTokenizerTables(unreadProgram(model, options), model.checkpoint.tokenizerJson));
}
