/** Opens `.pte` files in Node, with the files of tensors (.ptd) that they need. */
import { checkOptions, checkString, unexpected } from "../arguments.ts";
import { UnsupportedError } from "../errors.ts";
import { hostCpu } from "../kernels/cpu.ts";
import { mapFile } from "../kernels/native/mapped-file.ts";
import { revectorize } from "../kernels/wasm/revectorize.ts";
import { openFile } from "../node-file.ts";
import type { Program } from "../program/program.ts";
import { readProgram } from "../program/read.ts";
import type { LoadOptions } from "../runtime/program.ts";

/** How a `.pte` file is opened and loaded: files of data beside it, threads, CPU, progress and an abort signal. */
export interface ProgramFileOptions extends LoadOptions {
  /** Paths of files of tensors (.ptd) that the program keeps outside itself; several programs may share one. */
  readonly data?: readonly string[] | undefined;
}

/** Time to warm up with revectorization, where V8's optimising compiler takes longer. */
const REVECTORIZED_MS = 2000;

/**
 * Turns on revectorization of WebAssembly where the environment asks for it (see `revectorize`); gives how long to warm up
 * then.
 */
export function engineOptions({ cpu = hostCpu() }: LoadOptions): { warmUpMs?: number } {
  return cpu.features.has("simd128") && revectorize() ? { warmUpMs: REVECTORIZED_MS } : {};
}

/**
 * Reads a program (mapped where the addon can), and closes its files when `work` has ended. What cannot run here, such as
 * an unregistered operator, is an UnsupportedError that names the file.
 */
export async function withProgramFile<R>(
  path: string,
  options: ProgramFileOptions,
  work: (program: Program) => Promise<R>,
): Promise<R> {
  checkOptions(options);
  const { data = [] } = options;
  if (!Array.isArray(data)) throw unexpected("data", "a list of paths", data);
  for (const name of data) checkString("data", name);
  const files = [];
  try {
    for (const name of [path, ...data]) files.push(await openFile(name));
    const [program, ...tensors] = files.map((file) => mapFile(file.name) ?? file);
    return await work(await readProgram(program!, { data: tensors }));
  } catch (error) {
    if (!(error instanceof UnsupportedError) || error.message.includes(path)) throw error;
    throw new UnsupportedError(`${path}: ${error.message}`, { cause: error });
  } finally {
    await Promise.all(files.map((file) => file.close()));
  }
}
