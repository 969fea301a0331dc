/**
 * Unfinished files, which take long to write and which another process resumes when their writer has ended: the file is
 * written as `<path>.<writer's id>.partial`, by one process only, and `<path>.partial.json` notes its key, how much of it
 * is done, and which of these files it is.
 */
import { constants, copyFile, type FileHandle, open, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { cannotWrite, readTextIfAny, removeLeftovers, writeFileWhole } from "./node-file.ts";
import { isRunning, newWriterId, WRITER_ID } from "./writer-id.ts";

const ENDING = ".partial";

interface Note<S> {
  /** Name of the unfinished file. */
  readonly file: string;
  /** Whether its writer has left it for others. */
  readonly isLeft: boolean;
  readonly state: S;
}

/** A file that is being written, by the holder of the claim `claimOf(path)`. */
export interface UnfinishedFile<S> {
  readonly handle: FileHandle;
  /** Path of the file that is written. */
  readonly file: string;
  /** The state that an earlier writer noted; null for an empty file with nothing to resume. */
  readonly state: S | null;
  /** Notes a new state, after the file's data is on disk. */
  keep(state: S): Promise<void>;
  /** Notes the state for another writer, and closes the file. */
  leave(state: S): Promise<void>;
  /** Closes the file and renames it to its path. */
  finish(): Promise<void>;
  /** Closes the file and removes it. */
  discard(): Promise<void>;
}

/** The path to claim before opening an unfinished file. */
export const claimOf = (path: string) => `${path}${ENDING}`;
const noteOf = (path: string) => `${path}${ENDING}.json`;

/**
 * Opens the unfinished file of a path, or begins one. `stateOf` parses the state that an earlier writer noted for a file of
 * `bytes` bytes; null for one that cannot be resumed.
 */
export async function openUnfinished<S>(
  path: string,
  stateOf: (noted: unknown, bytes: number) => S | null,
): Promise<UnfinishedFile<S>> {
  const note = await readNote(path);
  const earlier = note && join(dirname(path), note.file);
  const size = earlier === null ? null : await stat(earlier).catch(() => null);
  const state = note && size?.isFile() ? stateOf(note.state, size.size) : null;
  await removeLeftovers(path);
  await removeLeftovers(path, ENDING, state === null ? undefined : note!.file);
  const own = `${path}.${newWriterId()}${ENDING}`;
  // A writer that may still run keeps its own file until this one is finished.
  const isEnded = note !== null && (note.isLeft || isRunning(idIn(note.file)) === false);
  try {
    if (earlier !== null && isEnded) await (state === null ? rm(earlier, { force: true }) : rename(earlier, own));
    else if (state !== null) await copyFile(earlier!, own, constants.COPYFILE_FICLONE);
    const handle = await open(own, state === null ? "wx" : "r+");
    return unfinished(path, own, isEnded ? null : earlier, handle, state);
  } catch (cause) {
    throw cannotWrite(path, cause as Error);
  }
}

function unfinished<S>(
  path: string,
  file: string,
  earlier: string | null,
  handle: FileHandle,
  state: S | null,
): UnfinishedFile<S> {
  const write = async (state: S, isLeft: boolean) => {
    await handle.datasync();
    const note: Note<S> = { file: basename(file), isLeft, state };
    await writeFileWhole(noteOf(path), (sink) => sink.write(new TextEncoder().encode(JSON.stringify(note))));
  };
  const removeNote = async () => {
    if ((await readNote(path))?.file === basename(file)) await rm(noteOf(path), { force: true });
  };
  return {
    handle,
    file,
    state,
    keep: (state) => write(state, false),
    async leave(state) {
      await write(state, true);
      await handle.close();
    },
    async finish() {
      await handle.sync();
      await handle.close();
      await rename(file, path).catch(async (cause: NodeJS.ErrnoException) => {
        // Another process took over while this one was stopped, then finished and removed this file: its result counts.
        if (cause.code !== "ENOENT" || !(await stat(path).catch(() => null))) throw cause;
      });
      await removeNote();
      if (earlier !== null) await rm(earlier, { force: true });
    },
    async discard() {
      await handle.close();
      await rm(file, { force: true });
      await removeNote();
    },
  };
}

const idIn = (file: string) => file.slice(0, -ENDING.length).split(".").at(-1)!;

/** The note beside a path; null when there is none that can be read. */
async function readNote(path: string): Promise<Note<unknown> | null> {
  try {
    const { file, isLeft, state } = JSON.parse((await readTextIfAny(noteOf(path))) ?? "");
    const isOfPath = typeof file === "string" && file.startsWith(`${basename(path)}.`);
    if (!isOfPath || !new RegExp(`^${WRITER_ID}$`).test(idIn(file)) || !file.endsWith(ENDING)) return null;
    return { file, isLeft: isLeft === true, state };
  } catch {
    return null;
  }
}
