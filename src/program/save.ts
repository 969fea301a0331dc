/** Saving of programs as files of Node; apart from write.ts, which runs in browsers too. */
import { writeFileWhole } from "../node-file.ts";
import type { Program } from "./program.ts";
import { type WriteOptions, writeProgram } from "./write.ts";

/** Writes a program to `path`, which appears complete or not at all. Throws as `writeProgram` does. */
export async function saveProgram(program: Program, path: string, options: WriteOptions = {}): Promise<void> {
  await writeFileWhole(path, (sink) => writeProgram(program, sink, options));
}
