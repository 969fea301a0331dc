/** Opening of `.pte` files of Node, with the files of tensors that they need. */
import { mapFile } from "../kernels/native/mapped-file.ts";
import { openFile } from "../node-file.ts";
import type { Program } from "../program/program.ts";
import { readProgram } from "../program/read.ts";
import type { LoadOptions } from "../runtime/program.ts";

export interface ProgramFileOptions extends LoadOptions {
  /** Paths of files of tensors (.ptd) that the program leaves outside; several programs may share one. */
  readonly data?: readonly string[] | undefined;
}

/** Reads a program (mapped where the addon can), and closes its files when `work` has ended. */
export async function withProgramFile<R>(
  path: string,
  { data = [] }: ProgramFileOptions,
  work: (program: Program) => Promise<R>,
): Promise<R> {
  const files = [];
  try {
    for (const name of [path, ...data]) files.push(await openFile(name));
    const [program, ...tensors] = files.map((file) => mapFile(file.name) ?? file);
    return await work(await readProgram(program!, { data: tensors }));
  } finally {
    await Promise.all(files.map((file) => file.close()));
  }
}
