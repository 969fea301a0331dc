/** Saves programs as files in Node; write.ts, which also runs in browsers, does the writing. */

import { createHash } from "node:crypto";
import { checkOptions, unexpected } from "../arguments.ts";
import { checkPath, writeFileWhole } from "../node-file.ts";
import type { WaitOptions } from "../path-claim.ts";
import { writeFileResumable } from "../resumable-file.ts";
import type { Program } from "./program.ts";
import { encodeStart, type WriteOptions, writeProgram } from "./write.ts";

/** Options of `saveProgram`: those of writing, and of resuming an interrupted save. */
export interface SaveOptions extends WriteOptions {
  /** Key of everything that the data depends on. An interrupted save with the same key is resumed. */
  readonly resumeKey?: string | null;
  /** Called with a reason while it takes seconds to find out whether another process still writes the same path. */
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
