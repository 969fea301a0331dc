/** Saving of programs as files of Node; apart from write.ts, which runs in browsers too. */
import { createHash } from "node:crypto";
import { writeFileWhole } from "../node-file.ts";
import type { WaitOptions } from "../path-claim.ts";
import { writeFileResumable } from "../resumable-file.ts";
import type { Program } from "./program.ts";
import { encodeStart, type WriteOptions, writeProgram } from "./write.ts";

/** Options of `saveProgram`: those of writing, and how a save that was interrupted is known again. */
export interface SaveOptions extends WriteOptions {
  /** Names what the data is made from: a save that was interrupted goes on where it was when this is the same. */
  readonly resumeKey?: string | null;
  /** Called where it takes seconds to find out whether another process still writes the same path. */
  readonly onWait?: WaitOptions["onWait"];
}

/** Writes a program to `path`, which appears complete or not at all. Throws as `writeProgram` does. */
export async function saveProgram(program: Program, path: string, options: SaveOptions = {}): Promise<void> {
  const { resumeKey = null, signal, onWait } = options;
  const write = (sink: Parameters<typeof writeProgram>[1]) => writeProgram(program, sink, options);
  if (resumeKey === null) return writeFileWhole(path, write);
  const key = createHash("sha256").update(resumeKey).update("\0").update(encodeStart(program)).digest("hex");
  await writeFileResumable(path, { key, signal, onWait }, write);
}
