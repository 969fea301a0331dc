/** Unfinished work in files, which one task at a time may do: `<path>.pid` says which process does. */
import { rename, rm, writeFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { InvalidFileError } from "./errors.ts";
import { cannotWrite, isRunning, readFileWhole } from "./node-file.ts";

/** Notes that this process has. */
const own = new Set<string>();

/** A note is empty until its process is written into it; one that stays empty for longer was left by a power cut. */
const EMPTY_MS = 1000;

export interface Claim {
  /** The process that has the path; null when it was free. */
  readonly holder: number | null;
  /** Gives it up, if this claim has it. */
  release(): Promise<void>;
}

/** Claims a file or folder, which need not be there. A claim of a process that has ended is taken over. */
export async function tryClaim(path: string): Promise<Claim> {
  const note = `${path}.pid`;
  const refused = (holder: number): Claim => ({ holder, release: async () => {} });
  if (own.has(note)) return refused(process.pid);
  own.add(note);
  const holder = await take(note).catch((error: unknown) => {
    own.delete(note);
    throw error;
  });
  if (holder !== null) {
    own.delete(note);
    return refused(holder);
  }
  return {
    holder: null,
    async release() {
      await rm(note, { force: true });
      own.delete(note);
    },
  };
}

/** Makes the note, where there is none or that of a process that has ended; else gives the process that has it. */
async function take(note: string): Promise<number | null> {
  const start = performance.now();
  while (!(await make(note))) {
    const text = await read(note);
    // Given up meanwhile, so that what is there now is another's; or not written yet.
    if (!text && performance.now() - start < EMPTY_MS) {
      await delay(10);
      continue;
    }
    const pid = Number(text);
    if (pid > 0 && pid !== process.pid && isRunning(pid)) return pid;
    await removeEnded(note, text);
  }
  return null;
}

/** Removes a note that says `text`, but not one that another process has put in its place. */
async function removeEnded(note: string, text: string | null): Promise<void> {
  const aside = `${note}.${process.pid}`;
  const isMoved = await rename(note, aside).then(
    () => true,
    (cause: NodeJS.ErrnoException) => {
      if (cause.code !== "ENOENT") throw cannotWrite(note, cause);
      return false;
    },
  );
  if (!isMoved) return;
  if ((await read(aside)) === text) await rm(aside, { force: true });
  else await rename(aside, note);
}

/** What a note says; null when there is none. */
function read(note: string): Promise<string | null> {
  return readFileWhole(note).then(
    (bytes) => new TextDecoder().decode(bytes),
    ({ cause, message }: Error) => {
      const { code } = (cause ?? {}) as NodeJS.ErrnoException;
      if (code !== "ENOENT") throw new InvalidFileError(note, message.replace(`${note}: `, ""), { cause });
      return null;
    },
  );
}

/** Writes the note; false when there is one. */
function make(note: string): Promise<boolean> {
  return writeFile(note, String(process.pid), { flag: "wx" }).then(
    () => true,
    (cause: NodeJS.ErrnoException) => {
      if (cause.code !== "EEXIST") throw cannotWrite(note, cause);
      return false;
    },
  );
}

/**
 * Claims a file or folder, which need not be there, for work that others must not do at the same time, such as encoding into
 * one folder; returns what gives it up. InvalidFileError while another process, or another task of this one, has it.
 */
export async function claimPath(path: string): Promise<() => Promise<void>> {
  const { holder, release } = await tryClaim(path);
  if (holder === null) return release;
  throw new InvalidFileError(
    path,
    `process ${holder} works there: wait for it, or write to another path (remove ${path}.pid when that is another program)`,
  );
}
