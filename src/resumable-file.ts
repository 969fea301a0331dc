/** Files whose writing can be interrupted and resumed by another process: what was written stays beside them. */
import type { FileHandle } from "node:fs/promises";
import type { ByteSink } from "./byte-source.ts";
import { cannotWrite, checkWritable, writeAll, writeFileWhole } from "./node-file.ts";
import { tryClaimPath, type WaitOptions } from "./path-claim.ts";
import { claimOf, openUnfinished, type UnfinishedFile } from "./unfinished-file.ts";

/** Least time between two notes, since each waits for the disk. */
const NOTE_MS = 5000;

export interface ResumeOptions extends WaitOptions {
  /** Identifies what is written: only a write with the same key is resumed. */
  readonly key: string;
  /** An abort keeps what was written; any other error removes it. */
  readonly signal?: AbortSignal | undefined;
  /** Least milliseconds between two notes. Default: 5000. */
  readonly noteMs?: number;
}

interface Progress {
  readonly key: string;
  /** Bytes that are finished and need not be written again. */
  readonly bytes: number;
}

/**
 * Writes `path`, which appears complete or not at all. The sink starts at the last mark of an interrupted write with the
 * same key, else at 0. While another process writes the same path, this works as `writeFileWhole`.
 */
export async function writeFileResumable(
  path: string,
  options: ResumeOptions,
  write: (sink: ByteSink) => Promise<void>,
): Promise<void> {
  await checkWritable(path);
  const claim = await tryClaimPath(claimOf(path), options);
  if (typeof claim === "string") return writeFileWhole(path, write);
  try {
    const { key } = options;
    const unfinished = await openUnfinished(path, (noted, size) => {
      const { key: kept, bytes } = (noted ?? {}) as Partial<Progress>;
      const isKept = kept === key && Number.isSafeInteger(bytes) && bytes! > 0 && bytes! <= size;
      return isKept ? { key, bytes: bytes! } : null;
    });
    await writeUnfinished(path, unfinished, options, write);
  } finally {
    await claim.release();
  }
}

async function writeUnfinished(
  path: string,
  unfinished: UnfinishedFile<Progress>,
  { key, signal, noteMs = NOTE_MS }: ResumeOptions,
  write: (sink: ByteSink) => Promise<void>,
): Promise<void> {
  const { handle, state } = unfinished;
  let marked = state?.bytes ?? 0;
  try {
    await handle.truncate(marked);
    await unfinished.keep({ key, bytes: marked });
    await write(
      sinkOf(handle, marked, noteMs, async (position, isDue) => {
        marked = position;
        if (isDue) await unfinished.keep({ key, bytes: marked });
      }),
    );
    await unfinished.finish();
  } catch (cause) {
    const isKept = signal?.aborted && marked > 0;
    await (isKept ? unfinished.leave({ key, bytes: marked }) : unfinished.discard()).catch(() => unfinished.discard());
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
