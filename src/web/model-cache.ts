/**
 * Downloaded models in the browser's private file system: one file each, and beside it what the server said of it. Works
 * in workers, which alone can write there at once. Where there is no such file system or no room, files are not kept.
 */
import type { ByteSource } from "../byte-source.ts";
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { blobSource } from "./blob-source.ts";
import {
  canResume,
  type DownloadOptions,
  type DownloadTarget,
  download,
  type FileVersion,
  isSame,
  versionOf,
} from "./download.ts";
import { streamFile } from "./stream-file.ts";

/** A model's file as it can be read; it is closed when the model is loaded or cannot be. */
export interface StoredModel {
  readonly source: ByteSource;
  /** Whether it is there after a reload; null for a file of the user's own. */
  readonly isCached: boolean | null;
  /** Keeps a file no longer that proves to be damaged. */
  forget(): Promise<void>;
}

interface SyncAccess {
  getSize(): number;
  truncate(size: number): void;
  write(bytes: Uint8Array, at: { at: number }): number;
  read(bytes: Uint8Array, at: { at: number }): number;
  flush(): void;
  close(): void;
}

type SyncFileHandle = FileSystemFileHandle & { createSyncAccessHandle(): Promise<SyncAccess> };

const FOLDER = "lowbit";

/**
 * The file at a URL: cached where it can be, else read as it comes. A cached one is used when the server has no other, or
 * cannot be asked. Addresses of data, and of blobs, which no later visit has, are not kept.
 */
export async function fetchModel(url: string, options: DownloadOptions = {}): Promise<StoredModel> {
  const folder = /^https?:/.test(url) ? await openFolder() : null;
  const stream = async () => ({ source: await streamFile(url, options), isCached: false, async forget() {} });
  if (!folder) return stream();
  const name = await nameOf(url);
  const locking = options.signal ? { signal: options.signal } : {};
  // Two tabs must not write to one file; the second finds it complete.
  const alone = <R>(locking: LockOptions, work: () => Promise<R>): Promise<R> =>
    navigator.locks.request(`${FOLDER}/${name}`, locking, work);
  const kept = await alone(locking, async () => {
    const blob = await fetchToFolder(url, folder, name, options);
    return blob && { blob, release: await hold(readersOf(name), { ...locking, mode: "shared" }) };
  });
  if (!kept) return stream();
  const { blob, release } = kept;
  const source = { ...blobSource(url, blob), close: async () => release() };
  const removeUnread = () =>
    navigator.locks.request(readersOf(name), { ifAvailable: true }, async (lock) => {
      if (lock) await folder.removeEntry(name);
    });
  const forget = () => {
    release();
    return alone({}, removeUnread).catch(() => {});
  };
  return { source, isCached: true, forget };
}

/** What those who read a file share until they have, and who writes to it waits for: it is not as it was afterwards. */
function readersOf(name: string): string {
  return `${FOLDER}/${name}/readers`;
}

/** Resolves with what gives the lock back. */
function hold(name: string, options: LockOptions): Promise<() => void> {
  return new Promise((resolve, reject) => {
    navigator.locks.request(name, options, () => new Promise<void>((release) => resolve(release))).catch(reject);
  });
}

async function openFolder(): Promise<FileSystemDirectoryHandle | null> {
  try {
    return await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  } catch {
    return null;
  }
}

async function nameOf(url: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(url));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Null when there is no room. */
async function fetchToFolder(
  url: string,
  folder: FileSystemDirectoryHandle,
  name: string,
  options: DownloadOptions,
): Promise<Blob | null> {
  const opened = await openTarget(folder, name);
  if (!opened) return null;
  const { handle, target } = opened;
  try {
    if (!(await isCurrent(url, target, options))) {
      if (target.isComplete) target.expectAnother();
      const { signal } = options;
      await navigator.locks.request(readersOf(name), signal ? { signal } : {}, () => download(url, target, options));
    }
    target.finish();
  } catch (error) {
    target.close();
    if (isFull(error)) {
      await folder.removeEntry(name);
      return null;
    }
    if (!target.isOfUse || error instanceof UnsupportedError) await folder.removeEntry(name);
    throw error;
  }
  target.close();
  const file = await handle.getFile();
  return file.slice(HEAD_BYTES);
}

/** Null when there is no room for even an empty file. */
async function openTarget(folder: FileSystemDirectoryHandle, name: string) {
  try {
    const handle = (await folder.getFileHandle(name, { create: true })) as SyncFileHandle;
    return { handle, target: new FileTarget(await handle.createSyncAccessHandle()) };
  } catch (error) {
    if (isFull(error)) return null;
    throw error;
  }
}

/** How long the server of a kept file may take to say whether it has another: bad networks give no errors. */
const ANSWER_MS = 5000;

/** Whether the target has all of the file that the server has now; without an answer, what is complete is good. */
async function isCurrent(url: string, target: FileTarget, { signal, fetch: request = fetch }: DownloadOptions) {
  if (!target.isComplete) return false;
  const late = AbortSignal.timeout(ANSWER_MS);
  const init = { cache: "no-store", signal: signal ? AbortSignal.any([signal, late]) : late } as const;
  let response = await request(url, { ...init, method: "HEAD" }).catch(() => null);
  // Some servers answer GET alone; its bytes are not wanted.
  if (response && !response.ok) response = await request(url, init).catch(() => null);
  await response?.body?.cancel().catch(() => {});
  signal?.throwIfAborted();
  return !response?.ok || isUnchanged(versionOf(response), target.version);
}

/** By the validator alone where a length is not known: answers without a body, and compressed ones, may not have it. */
function isUnchanged(now: FileVersion, kept: FileVersion | null): boolean {
  const lengths = [now.byteLength, kept?.byteLength ?? null];
  if (now.validator === null || !lengths.includes(null)) return isSame(now, kept);
  return now.validator === kept?.validator;
}

/** Room before the model's bytes for a JSON text, padded with zeros: whose bytes they are and whether they are all. */
const HEAD_BYTES = 4096;

class NoRoomError extends InvalidFileError {}

function isFull(error: unknown): boolean {
  return error instanceof NoRoomError || (error as Error).name === "QuotaExceededError";
}

class FileTarget implements DownloadTarget {
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
    const { byteLength } = stored.version;
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

  async restart(version: FileVersion): Promise<void> {
    const { quota = 0, usage = 0 } = await navigator.storage.estimate();
    if (version.byteLength !== null && version.byteLength > quota - usage) throw new NoRoomError("cache", "is full");
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

  /** Marks the bytes as whole. */
  finish(): void {
    if (this.isComplete) return;
    this.isComplete = true;
    this.#writeHead();
    this.#access.flush();
  }

  close(): void {
    this.#access.close();
  }

  #writeHead(): void {
    const bytes = new Uint8Array(HEAD_BYTES);
    const { version, isComplete } = this;
    new TextEncoder().encodeInto(JSON.stringify({ version, isComplete }), bytes);
    this.#write(bytes, 0);
  }

  /** Chromium has been seen to tell of bytes as written that a full storage did not take: the file's size counts. */
  #write(bytes: Uint8Array, at: number): void {
    const written = this.#access.write(bytes, { at });
    if (written < bytes.length || this.#access.getSize() < at + bytes.length) throw new NoRoomError("cache", "is full");
  }
}

/** Null for what an older or interrupted write left. */
function readHead(access: SyncAccess): { version: FileVersion; isComplete: boolean } | null {
  const bytes = new Uint8Array(HEAD_BYTES);
  access.read(bytes, { at: 0 });
  try {
    const { version, isComplete } = JSON.parse(new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0))));
    const { validator, byteLength } = version;
    return { version: { validator, byteLength }, isComplete: isComplete === true };
  } catch {
    return null;
  }
}
