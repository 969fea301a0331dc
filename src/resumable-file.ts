/**
 * Files whose writing may be interrupted and continued by another process: what was written stays in `<path>.partial`,
 * with a note `<path>.partial.json` of what it is and how much of it is safe on the disk, and a claim while it is written.
 */
import { type FileHandle, open, rename, rm, stat, writeFile } from "node:fs/promises";
import type { ByteSink } from "./byte-source.ts";
import { cannotWrite, checkWritable, readTextIfAny, writeAll, writeFileWhole } from "./node-file.ts";
import { tryClaim } from "./path-claim.ts";

/** Notes wait for the disk, so they are not made more often. */
const NOTE_MS = 5000;

export interface ResumeOptions {
  /** Says what is written: only a write of the same key is continued. */
  readonly key: string;
  /** Aborted, it keeps what was written; any other error removes it. */
  readonly signal?: AbortSignal | undefined;
  /** Least time between two notes. Default: 5000. */
  readonly noteMs?: number;
}

interface Note {
  readonly key: string;
  readonly bytes: number;
}

/**
 * Writes `path`, which appears complete or not at all. The sink's position is where an interrupted write of the same key
 * had last called `mark`, else 0. While another writes the same path, this is `writeFileWhole`.
 */
export async function writeFileResumable(
  path: string,
  options: ResumeOptions,
  write: (sink: ByteSink) => Promise<void>,
): Promise<void> {
  await checkWritable(path);
  const { holder, release } = await tryClaim(partialOf(path));
  if (holder !== null) return writeFileWhole(path, write);
  try {
    await writePartial(path, await readNote(path), options, write);
  } finally {
    await release();
  }
}

async function writePartial(
  path: string,
  note: Note | null,
  { key, signal, noteMs = NOTE_MS }: ResumeOptions,
  write: (sink: ByteSink) => Promise<void>,
): Promise<void> {
  const partial = partialOf(path);
  await checkWritable(partial);
  const kept = note?.key === key && (await sizeOf(partial)) >= note.bytes ? note.bytes : 0;
  const handle = await open(partial, kept > 0 ? "r+" : "w").catch((cause: Error) => {
    throw cannotWrite(path, cause);
  });
  let marked = kept;
  const keep = async () => {
    await handle.datasync();
    await writeNote(path, { key, bytes: marked });
  };
  try {
    await handle.truncate(kept);
    await writeNote(path, { key, bytes: kept });
    await write(
      sinkOf(handle, kept, noteMs, async (position, isDue) => {
        marked = position;
        if (isDue) await keep();
      }),
    );
    await handle.sync();
    await handle.close();
    await rename(partial, path);
    await rm(noteOf(path), { force: true });
  } catch (cause) {
    if (signal?.aborted && marked > 0) await keep().catch(() => {});
    else await Promise.all([partial, noteOf(path)].map((file) => rm(file, { force: true })));
    await handle.close().catch(() => {});
    throw cannotWrite(path, cause as Error);
  }
}

function sinkOf(
  handle: FileHandle,
  start: number,
  noteMs: number,
  onMark: (position: number, isDue: boolean) => Promise<void>,
): ByteSink {
  let position = start;
  let noted = performance.now();
  return {
    get position() {
      return position;
    },
    async write(bytes) {
      await writeAll(handle, bytes, position);
      position += bytes.length;
    },
    rewrite: (at, bytes) => writeAll(handle, bytes, at),
    async mark() {
      const isDue = performance.now() - noted >= noteMs;
      await onMark(position, isDue);
      if (isDue) noted = performance.now();
    },
  };
}

const partialOf = (path: string) => `${path}.partial`;
const noteOf = (path: string) => `${path}.partial.json`;

/** The note beside a path; null when there is none, or none that can be read. */
async function readNote(path: string): Promise<Note | null> {
  try {
    const { key, bytes } = JSON.parse((await readTextIfAny(noteOf(path))) ?? "");
    const valid = typeof key === "string" && Number.isSafeInteger(bytes) && bytes >= 0;
    return valid ? { key, bytes } : null;
  } catch {
    return null;
  }
}

async function writeNote(path: string, note: Note): Promise<void> {
  const temporary = `${noteOf(path)}.${process.pid}`;
  await writeFile(temporary, JSON.stringify(note));
  await rename(temporary, noteOf(path));
}

async function sizeOf(path: string): Promise<number> {
  const status = await stat(path).catch(() => null);
  return status?.size ?? -1;
}
