/** Files of models in the browser's private file system, each with a head that says what it is of and whether it is whole. */
import type { ByteSink } from "../byte-source.ts";
import { InvalidFileError } from "../errors.ts";
import { canResume, type DownloadTarget, type FileVersion } from "./download.ts";

interface SyncAccess {
  getSize(): number;
  truncate(size: number): void;
  write(bytes: Uint8Array, at: { at: number }): number;
  read(bytes: Uint8Array, at: { at: number }): number;
  flush(): void;
  close(): void;
}

const FOLDER = "lowbit";

type SyncFileHandle = FileSystemFileHandle & { createSyncAccessHandle(): Promise<SyncAccess> };

/** What those who read a file share until they have, and who writes to it waits for: it is not as it was afterwards. */
function readersOf(name: string): string {
  return `${FOLDER}/${name}/readers`;
}

/** Does what changes a file once nobody reads it. */
export function withoutReaders<R>(name: string, signal: AbortSignal | undefined, work: () => Promise<R>): Promise<R> {
  return navigator.locks.request(readersOf(name), signal ? { signal } : {}, work);
}

/** Resolves with what gives the lock back. */
function hold(name: string, options: LockOptions): Promise<() => void> {
  return new Promise((resolve, reject) => {
    navigator.locks.request(name, options, () => new Promise<void>((release) => resolve(release))).catch(reject);
  });
}

/** A kept file that is read: its bytes behind the head. */
export interface OpenedFile {
  readonly blob: Blob;
  /** What the file is, as whoever gave it said. */
  readonly version: FileVersion;
  /** Ends the reading. */
  release(): void;
  /** Ends the reading and removes the file, unless another tab reads it. */
  forget(): Promise<void>;
}

/**
 * Opens the file that `find` finds or makes, one tab after the other: the second finds what the first has made. Null where
 * it gives null.
 */
export async function openKept(
  folder: FileSystemDirectoryHandle,
  name: string,
  signal: AbortSignal | undefined,
  find: () => Promise<Pick<OpenedFile, "blob" | "version"> | null>,
): Promise<OpenedFile | null> {
  const locking: LockOptions = signal ? { signal } : {};
  const alone = <R>(locking: LockOptions, work: () => Promise<R>): Promise<R> =>
    navigator.locks.request(`${FOLDER}/${name}`, locking, work);
  const kept = await alone(locking, async () => {
    const found = await find();
    return found && { ...found, release: await hold(readersOf(name), { ...locking, mode: "shared" }) };
  });
  if (!kept) return null;
  const removeUnread = () =>
    navigator.locks.request(readersOf(name), { ifAvailable: true }, async (lock) => {
      if (lock) await folder.removeEntry(name);
    });
  return {
    ...kept,
    forget() {
      kept.release();
      return alone({}, removeUnread).catch(() => {});
    },
  };
}

/** The folder of models; null where the browser has none for this page. */
export async function openFolder(): Promise<FileSystemDirectoryHandle | null> {
  try {
    return await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  } catch {
    return null;
  }
}

/** Name of the file of a key, such as an address. */
export async function nameOf(key: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(key));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Null when there is no room for even an empty file. */
export async function openTarget(folder: FileSystemDirectoryHandle, name: string) {
  try {
    const handle = (await folder.getFileHandle(name, { create: true })) as SyncFileHandle;
    const target = new FileTarget(await handle.createSyncAccessHandle());
    return { target, behindHead: async () => (await handle.getFile()).slice(HEAD_BYTES) };
  } catch (error) {
    if (isFull(error)) return null;
    throw error;
  }
}

/** The file of a name if it is there, whole, and what is wanted; it stays as it is. */
export async function findWhole(
  folder: FileSystemDirectoryHandle,
  name: string,
  isWanted: (target: FileTarget) => Promise<boolean>,
): Promise<Pick<OpenedFile, "blob" | "version"> | null> {
  const isThere = await folder.getFileHandle(name).then(
    () => true,
    () => false,
  );
  const opened = isThere ? await openTarget(folder, name) : null;
  if (!opened) return null;
  const { target, behindHead } = opened;
  try {
    if (!target.isComplete || !(await isWanted(target))) return null;
  } finally {
    target.close();
  }
  return { blob: await behindHead(), version: target.version! };
}

/**
 * Writes a file that is made here, of the file that `version` says, in the place of what has its name. Null, and no file,
 * when there is no room for its bytes.
 */
export function writeWhole(
  folder: FileSystemDirectoryHandle,
  { name, version, byteLength }: { name: string; version: FileVersion; byteLength: number },
  signal: AbortSignal | undefined,
  write: (sink: ByteSink) => Promise<void>,
): Promise<Pick<OpenedFile, "blob" | "version"> | null> {
  return withoutReaders(name, signal, async () => {
    const opened = await openTarget(folder, name);
    if (!opened) return null;
    const { target, behindHead } = opened;
    try {
      await target.restart(version, byteLength);
      const sink = {
        get position() {
          return target.size;
        },
        write: async (bytes: Uint8Array) => target.append(bytes),
        rewrite: async (position: number, bytes: Uint8Array) => target.replace(position, bytes),
      };
      await write(sink);
      target.finish(true);
    } catch (error) {
      target.close();
      await folder.removeEntry(name);
      if (isFull(error)) return null;
      throw error;
    }
    target.close();
    return { blob: await behindHead(), version };
  });
}

/** Room before the model's bytes for a JSON text, padded with zeros: whose bytes they are and whether they are all. */
const HEAD_BYTES = 4096;

class NoRoomError extends InvalidFileError {}

export function isFull(error: unknown): boolean {
  return error instanceof NoRoomError || (error as Error).name === "QuotaExceededError";
}

/** A file that grows. */
export class FileTarget implements DownloadTarget {
  version: FileVersion | null = null;
  size = 0;
  isComplete = false;
  readonly #access: SyncAccess;

  constructor(access: SyncAccess) {
    this.#access = access;
    const stored = access.getSize() > HEAD_BYTES ? readHead(access) : null;
    if (!stored) return;
    this.version = stored.version;
    this.size = access.getSize() - HEAD_BYTES;
    const byteLength = stored.madeBytes ?? stored.version.byteLength;
    this.isComplete = stored.isComplete && (byteLength === null || byteLength === this.size);
  }

  /** Whether it has a whole file, or bytes that a later download can complete. */
  get isOfUse(): boolean {
    return this.isComplete || (this.size > 0 && canResume(this.version));
  }

  /** For a download from the first byte on; until it begins, the file that is there stays. */
  expectAnother(): void {
    this.version = null;
    this.size = 0;
  }

  /** `byteLength`: bytes that will come, where they are others than the version's. */
  async restart(version: FileVersion, byteLength = version.byteLength): Promise<void> {
    const { quota = 0, usage = 0 } = await navigator.storage.estimate();
    if (byteLength !== null && byteLength > quota - usage) throw new NoRoomError("cache", "is full");
    this.version = version;
    this.size = 0;
    this.isComplete = false;
    this.#access.truncate(0);
    this.#writeHead();
  }

  append(bytes: Uint8Array): void {
    this.#write(bytes, HEAD_BYTES + this.size);
    this.size += bytes.length;
  }

  replace(position: number, bytes: Uint8Array): void {
    this.#write(bytes, HEAD_BYTES + position);
  }

  /** Marks the bytes as whole; `isMade`: of a file that was made of the version, and is no copy of it. */
  finish(isMade = false): void {
    if (this.isComplete) return;
    this.isComplete = true;
    this.#writeHead(isMade ? this.size : undefined);
    this.#access.flush();
  }

  close(): void {
    this.#access.close();
  }

  #writeHead(madeBytes?: number): void {
    const bytes = new Uint8Array(HEAD_BYTES);
    const { version, isComplete } = this;
    new TextEncoder().encodeInto(JSON.stringify({ version, isComplete, madeBytes }), bytes);
    this.#write(bytes, 0);
  }

  /** Chromium has been seen to tell of bytes as written that a full storage did not take: the file's size counts. */
  #write(bytes: Uint8Array, at: number): void {
    const written = this.#access.write(bytes, { at });
    if (written < bytes.length || this.#access.getSize() < at + bytes.length) throw new NoRoomError("cache", "is full");
  }
}

/** Null for what an older or interrupted write left. */
function readHead(
  access: SyncAccess,
): { version: FileVersion; isComplete: boolean; madeBytes: number | undefined } | null {
  const bytes = new Uint8Array(HEAD_BYTES);
  access.read(bytes, { at: 0 });
  try {
    const { version, isComplete, madeBytes } = JSON.parse(
      new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0))),
    );
    const { validator, byteLength } = version;
    return { version: { validator, byteLength }, isComplete: isComplete === true, madeBytes };
  } catch {
    return null;
  }
}
