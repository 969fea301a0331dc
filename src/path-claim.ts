/**
 * Claims of paths, which let one task at a time do work that two would do twice: `<path>.lock` names the holder. They work
 * between processes on all machines and containers that share a volume: the holder writes to its lock each second, from a
 * thread of its own, and a lock that stays unchanged for some seconds is a leftover. Clocks of two machines are never
 * compared. A holder that was stopped for so long may go on beside its successor, so files are protected by unique names,
 * not by claims.
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
/** Looks at an unchanged lock after which it is a leftover: 6 seconds, or longer where this process was stopped, too. */
const SILENT_LOOKS = 30;
/** Least time between the last look and taking over. */
const FRESH_MS = 2000;
/** Looks before the user is told about the wait. */
const UNTOLD_LOOKS = 5;

/** A claim of a path. */
export interface Claim {
  /** Whether the claim is still held: not after another process took over because this one was stopped for seconds. */
  isHeld(): Promise<boolean>;
  /** Gives the claim up. */
  release(): Promise<void>;
}

/** Options of waiting for a path. */
export interface WaitOptions {
  /** Ends the wait; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
  /** Called once, with a sentence, when another process must be waited for, such as a replica that does the same work. */
  readonly onWait?: ((reason: string) => void) | undefined;
}

/** Claims a file or folder, which need not exist, as soon as nobody else holds it. */
export async function claimPath(path: string, options: WaitOptions = {}): Promise<Claim> {
  return (await claim(path, options, true)) as Claim;
}

/** Claims a file or folder, or gives its holder: "process 17 on replica-2". Takes seconds where that must be found out. */
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

/** Makes the lock and gives null; otherwise gives its holder, or waits where `isPatient`. */
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

/** Removes a lock with content `text`, one process at a time, so that a new lock in its place stays. */
async function remove(lock: string, text: string | null): Promise<void> {
  const removal = `${lock}.removal`;
  const id = newWriterId();
  if ((await take(removal, textOf(id), false)) !== null) return;
  if ((await read(lock)) === text) await rm(lock, { force: true });
  if (idIn(await read(removal)) === id) await rm(removal, { force: true });
}

/** Content of a lock, for programs and for people who find it. */
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

/** The holder's id in a lock; null where it has none (yet). */
function idIn(text: string | null): string | null {
  const { id } = factsIn(text);
  return typeof id === "string" ? id : null;
}

function holderIn(text: string | null): string {
  const { host, pid } = factsIn(text);
  return Number.isInteger(pid) ? `process ${pid}${typeof host === "string" ? ` on ${host}` : ""}` : "another process";
}

/** Reads a lock; null when there is none. */
function read(lock: string): Promise<string | null> {
  return readFileWhole(lock).then(
    (bytes) => new TextDecoder().decode(bytes),
    ({ cause, message }: Error) => {
      const { code } = (cause ?? {}) as NodeJS.ErrnoException;
      // ESTALE: on shared volumes, a file that was removed after it was opened.
      if (code !== "ENOENT" && code !== "ESTALE")
        throw new InvalidFileError(lock, message.replace(`${lock}: `, ""), { cause });
      return null;
    },
  );
}

/** Makes the lock; false when there is one. */
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
 * Thread that writes to a lock each second: to the file that it opened, which belongs to nobody after another process took
 * over. It opens and closes the file itself, so that no write goes to a file that has got the same descriptor. On network
 * file systems, others see the write when it has reached the server.
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
  // Without these writes, others may take the claim over.
  worker.on("error", (error) => logInfo(() => `${lock}: is not kept: ${error.message}`));
  worker.unref();
  return worker;
}
