/**
 * Model files in the browser's private file system; each begins with a header that identifies its content and says whether it
 * is complete.
 */
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

/** Name of the lock that readers of a file share and that a writer needs exclusively. */
function readersOf(name: string): string {
  return `${FOLDER}/${name}/readers`;
}

/** Runs `work`, which changes a file, when nobody reads it. */
export function withoutReaders<R>(name: string, signal: AbortSignal | undefined, work: () => Promise<R>): Promise<R> {
  return navigator.locks.request(readersOf(name), signal ? { signal } : {}, work);
}

/** Acquires a lock and resolves with a function that releases it. */
function hold(name: string, options: LockOptions): Promise<() => void> {
  return new Promise((resolve, reject) => {
    navigator.locks.request(name, options, () => new Promise<void>((release) => resolve(release))).catch(reject);
  });
}

/** A cached file that is being read: the bytes after its header. */
export interface OpenedFile {
  readonly blob: Blob;
  /** Version of the file, as recorded when it was written. */
  readonly version: FileVersion;
  /** Ends reading. */
  release(): void;
  /** Ends reading and removes the file, unless another tab reads it. */
  forget(): Promise<void>;
}

/**
 * Opens the file that `find` finds or makes. Only one tab at a time runs `find`, so the next one finds the file. Null if `find`
 * returns null.
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

/** The folder of models; null where the page has no private file system. */
export async function openFolder(): Promise<FileSystemDirectoryHandle | null> {
  try {
    return await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  } catch {
    return null;
  }
}

/** File name for a key, such as an address. */
export async function nameOf(key: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(key));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Opens a file for writing; null when there is no room for even an empty file. */
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

/** The complete file of this name if it is the wanted one, left unchanged; null otherwise. */
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
 * Writes a file that is derived from the one identified by `version`, replacing any file of this name. Null, without a file,
 * when there is no room.
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

/** Bytes of the header: a JSON text padded with zeros that identifies the content and says whether it is complete. */
const HEAD_BYTES = 4096;

class NoRoomError extends InvalidFileError {}

export function isFull(error: unknown): boolean {
  return error instanceof NoRoomError || (error as Error).name === "QuotaExceededError";
}

/** A file that grows while it is downloaded. */
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

  /** Whether it is complete, or can be completed by a later download. */
  get isOfUse(): boolean {
    return this.isComplete || (this.size > 0 && canResume(this.version));
  }

  /** Prepares a download from the first byte; the existing file stays until that begins. */
  expectAnother(): void {
    this.version = null;
    this.size = 0;
  }

  /** Starts a new file. `byteLength`: its size, if it differs from the version's. */
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

  /** Marks the file complete. `isMade`: it was made from the version rather than copied. */
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

  /** Writes bytes. Chromium may report bytes as written that a full storage did not take, so the file's size is checked. */
  #write(bytes: Uint8Array, at: number): void {
    const written = this.#access.write(bytes, { at });
    if (written < bytes.length || this.#access.getSize() < at + bytes.length) throw new NoRoomError("cache", "is full");
  }
}

/** Reads the header; null if an older version or an interrupted write left it. */
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
