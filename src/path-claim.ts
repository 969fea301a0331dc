/**
 * Claims of paths, by which one task at a time does work that two would do twice: `<path>.lock` says who does it. They hold
 * between the processes of all machines and containers that share a volume: whoever has a claim writes to its lock each
 * second, from a thread that work does not block, and a lock that stays as it is for some seconds is left over. Clocks of
 * two machines are never compared. One who was stopped for that long may go on beside who took over, so files are
 * kept whole by names of their own, not by claims.
 */

import { open, rm } from "node:fs/promises";
import { hostname } from "node:os";
import { resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { checkOptions, checkString } from "./arguments.ts";
import { InvalidFileError } from "./errors.ts";
import { logInfo } from "./log.ts";
import { cannotWrite, readFileWhole } from "./node-file.ts";
import { isRunning, newWriterId } from "./writer-id.ts";

const LOOK_MS = 200;
/** Looks at a lock that stayed as it is, after which it is left over: 6 seconds, or longer where this process was stopped, too. */
const SILENT_LOOKS = 30;
/** Nobody takes over that soon after a look. */
const FRESH_MS = 2000;
/** Looks before the user is told of the wait. */
const UNTOLD_LOOKS = 5;

/** A path that is claimed. */
export interface Claim {
  /** Whether it is still: not when another took over, because this process was stopped for seconds. */
  isHeld(): Promise<boolean>;
  /** Gives it up. */
  release(): Promise<void>;
}

/** How to wait for a path. */
export interface WaitOptions {
  /** Ends the wait; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
  /** Called once with a sentence when there is somebody to wait for, such as another replica that does the same. */
  readonly onWait?: ((reason: string) => void) | undefined;
}

/** Claims a file or folder, which need not be there, as soon as nobody else has it. */
export async function claimPath(path: string, options: WaitOptions = {}): Promise<Claim> {
  return (await claim(path, options, true)) as Claim;
}

/** Claims a file or folder, or says who works there: "process 17 on replica-2". Takes seconds where that must be found out. */
export function tryClaimPath(path: string, options: WaitOptions = {}): Promise<Claim | string> {
  return claim(path, options, false);
}

async function claim(path: string, options: WaitOptions, isPatient: boolean): Promise<Claim | string> {
  checkString("path", path);
  checkOptions(options);
  const { signal, onWait } = options;
  const lock = `${resolve(path)}.lock`;
  const id = newWriterId();
  const tell = (holder: string) => {
    const reason = `${path}: waits for ${holder}, which works there (${lock})`;
    logInfo(() => reason);
    onWait?.(reason);
  };
  const holder = await take(lock, textOf(id), isPatient, signal, tell);
  if (holder !== null) return holder;
  const beat = startBeat(lock, id);
  let isHeld = true;
  let lookedAt = Date.now();
  return {
    async isHeld() {
      const now = Date.now();
      if (Math.abs(now - lookedAt) < FRESH_MS) return isHeld;
      isHeld = idIn(await read(lock)) === id;
      lookedAt = now;
      return isHeld;
    },
    async release() {
      await beat.terminate();
      if (idIn(await read(lock)) === id) await rm(lock, { force: true });
    },
  };
}

/** Makes the lock; or gives who has it, but if one is to wait. */
async function take(
  lock: string,
  text: string,
  isPatient: boolean,
  signal?: AbortSignal,
  tell: (holder: string) => void = () => {},
): Promise<string | null> {
  let seen: string | null | undefined;
  let looks = 0;
  for (let all = 0; !(await make(lock, text)); all++) {
    signal?.throwIfAborted();
    const found = await read(lock);
    const id = idIn(found);
    const isThere = id === null ? null : isRunning(id);
    const isBeating = id !== null && idIn(seen ?? null) === id && seen !== found;
    if (!isPatient && (isThere || isBeating)) return holderIn(found);
    looks = found === seen ? looks + 1 : 0;
    seen = found;
    if (isThere === false || looks >= SILENT_LOOKS) {
      await remove(lock, found);
      seen = undefined;
      await delay(1);
      continue;
    }
    if (all === UNTOLD_LOOKS) tell(holderIn(found));
    await delay(LOOK_MS, undefined, signal && { signal }).catch(() => {});
  }
  return null;
}

/** Removes a lock that says `text`, one after the other: not one that has been put in its place. */
async function remove(lock: string, text: string | null): Promise<void> {
  const removal = `${lock}.removal`;
  const id = newWriterId();
  if ((await take(removal, textOf(id), false)) !== null) return;
  if ((await read(lock)) === text) await rm(lock, { force: true });
  if (idIn(await read(removal)) === id) await rm(removal, { force: true });
}

/** What a lock says: for programs, and for people who find it. */
function textOf(id: string): string {
  return `${JSON.stringify({ id, host: hostname(), pid: process.pid })}\n`;
}

function factsIn(text: string | null): { readonly id?: unknown; readonly host?: unknown; readonly pid?: unknown } {
  try {
    return JSON.parse(text?.split("\n", 1)[0] ?? "") ?? {};
  } catch {
    return {};
  }
}

/** The id in a lock; null where it has none (yet). */
function idIn(text: string | null): string | null {
  const { id } = factsIn(text);
  return typeof id === "string" ? id : null;
}

function holderIn(text: string | null): string {
  const { host, pid } = factsIn(text);
  return Number.isInteger(pid) ? `process ${pid}${typeof host === "string" ? ` on ${host}` : ""}` : "another process";
}

/** What a lock says; null when there is none. */
function read(lock: string): Promise<string | null> {
  return readFileWhole(lock).then(
    (bytes) => new TextDecoder().decode(bytes),
    ({ cause, message }: Error) => {
      const { code } = (cause ?? {}) as NodeJS.ErrnoException;
      // On shared volumes, also one that was removed since it was opened.
      if (code !== "ENOENT" && code !== "ESTALE")
        throw new InvalidFileError(lock, message.replace(`${lock}: `, ""), { cause });
      return null;
    },
  );
}

/** Writes the lock; false when there is one. */
async function make(lock: string, text: string): Promise<boolean> {
  try {
    const handle = await open(lock, "wx");
    try {
      await handle.writeFile(text);
    } catch (cause) {
      await rm(lock, { force: true });
      throw cause;
    } finally {
      await handle.close();
    }
    return true;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "EEXIST") throw cannotWrite(lock, cause as Error);
    return false;
  }
}

/**
 * Writes to a lock each second: to the file that it opened, which is nobody's any more when another took over. Its own
 * thread opens and closes the file, so that no beat goes to a file that has got the same number. Network file systems
 * show others what was written when it is on the server.
 */
const BEAT = `
const { workerData: { lock, id } } = require("node:worker_threads");
const { closeSync, fdatasync, fstatSync, openSync, readFileSync, writeSync } = require("node:fs");
const file = openSync(lock, "r+");
const end = fstatSync(file).size;
if (!readFileSync(file, "utf8").includes(id)) closeSync(file);
else {
  let isSyncing = false;
  let count = 0;
  setInterval(() => {
    try {
      writeSync(file, String(++count), end);
    } catch {
      return;
    }
    if (isSyncing) return;
    isSyncing = true;
    fdatasync(file, () => {
      isSyncing = false;
    });
  }, 1000);
}
`;

function startBeat(lock: string, id: string): Worker {
  const worker = new Worker(BEAT, { eval: true, workerData: { lock, id }, execArgv: [], env: {} });
  // Without a beat the claim is one that others may take over.
  worker.on("error", (error) => logInfo(() => `${lock}: is not kept: ${error.message}`));
  worker.unref();
  return worker;
}
