/** Saving of programs as files of Node; apart from write.ts, which runs in browsers too. */

import { createHash } from "node:crypto";
import { checkOptions, unexpected } from "../arguments.ts";
import { checkPath, writeFileWhole } from "../node-file.ts";
import type { WaitOptions } from "../path-claim.ts";
import { writeFileResumable } from "../resumable-file.ts";
import type { Program } from "./program.ts";
import { encodeStart, type WriteOptions, writeProgram } from "./write.ts";

/** Options of `saveProgram`: those of writing, and what lets an interrupted save be resumed. */
export interface SaveOptions extends WriteOptions {
  /** Key of what the data is made from. An interrupted save of the same key is resumed. */
  readonly resumeKey?: string | null;
  /** Called while it is found out, for seconds, whether another process still writes the same path. */
  readonly onWait?: WaitOptions["onWait"];
}

function checkProgram(program: Partial<Program> | null): void {
  if (!Array.isArray(program?.methods) || !Array.isArray(program.constants) || !(program.namedData instanceof Map))
    throw unexpected("program", "one of readProgram()", program);
}

/** Writes a program to `path`, which appears complete or not at all. Throws as `writeProgram` does. */
export async function saveProgram(program: Program, path: string, options: SaveOptions = {}): Promise<void> {
  checkPath(path);
  checkOptions(options);
  checkProgram(program);
  const { resumeKey = null, signal, onWait } = options;
  const write = (sink: Parameters<typeof writeProgram>[1]) => writeProgram(program, sink, options);
  if (resumeKey === null) return writeFileWhole(path, write);
  const key = createHash("sha256").update(resumeKey).update("\0").update(encodeStart(program)).digest("hex");
  await writeFileResumable(path, { key, signal, onWait }, write);
}
