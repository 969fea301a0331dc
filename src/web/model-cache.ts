/**
 * Caches downloaded models in the browser's private file system, one file each with the server's version of it. Works only in
 * workers, which alone can write there synchronously. Without such a file system, or room in it, nothing is cached.
 */
import type { ByteSource } from "../byte-source.ts";
import { UnsupportedError } from "../errors.ts";
import type { Program } from "../program/program.ts";
import { blobSource } from "./blob-source.ts";
import { type DownloadOptions, download, type FileVersion, isSame, versionOf } from "./download.ts";
import {
  type FileTarget,
  findWhole,
  isFull,
  nameOf,
  type OpenedFile,
  openFolder,
  openKept,
  openTarget,
  withoutReaders,
} from "./kept-file.ts";
import { streamFile } from "./stream-file.ts";

/** A model's file to read; it is closed when the model is loaded or the load fails. */
export interface StoredModel {
  readonly source: ByteSource;
  /** Whether the file is cached for later visits; null for the user's own file. */
  readonly isCached: boolean | null;
  /** Identifies a program made from the file in the cache; null where it is not cached. */
  readonly origin: Origin | null;
  /** Removes a file from the cache, if it proves to be damaged. */
  forget(): Promise<void>;
}

/** A file that a program is made from. */
interface Origin {
  /** Cache key of the program. */
  readonly key: string;
  readonly version: FileVersion;
}

/** Options of making a program from a file. */
export interface MakingOptions {
  readonly signal: AbortSignal;
  /** Called as the program is written. */
  onProgress(doneBytes: number, totalBytes: number): void;
}

/** A program to load. */
export interface OpenedProgram {
  readonly program: Program;
  /** Whether its bytes are made while it is loaded, which takes time. */
  readonly isMadeNow: boolean;
  /** Ends reading. */
  close(): Promise<void>;
  /** Removes a file from the cache, if it proves to be damaged. */
  forget(): Promise<void>;
}

/**
 * Fetches the file at a URL: cached if possible, otherwise read while it arrives. A cached file, or the program made from it,
 * is used when the server has the same version or cannot be reached. data: and blob: URLs are not cached, since no later visit
 * has them.
 */
export async function fetchModel(url: string, options: DownloadOptions = {}): Promise<StoredModel> {
  const folder = /^https?:/.test(url) ? await openFolder() : null;
  const kept = folder && (await openAt(url, folder, options));
  if (!kept) return { source: await streamFile(url, options), isCached: false, origin: null, async forget() {} };
  const { blob, version, release, forget } = kept;
  const source = { ...blobSource(url, blob), close: async () => release() };
  return { source, isCached: true, origin: { key: programKey(url), version }, forget };
}

/** The current program made from the file at a URL, or else the file itself; null when there is no room. */
async function openAt(
  url: string,
  folder: FileSystemDirectoryHandle,
  options: DownloadOptions,
): Promise<OpenedFile | null> {
  const { signal } = options;
  const program = await nameOf(programKey(url));
  const made = await openKept(folder, program, signal, () =>
    findWhole(folder, program, (target) => isCurrent(url, target, options)),
  );
  if (made) return made;
  const file = await nameOf(url);
  return openKept(folder, file, signal, () => fetchToFolder(url, folder, file, options));
}

/** Cache key of the program made from the file at a URL. */
function programKey(url: string): string {
  return `program of ${url}`;
}

/** Downloads a file into the folder; null when there is no room. */
async function fetchToFolder(
  url: string,
  folder: FileSystemDirectoryHandle,
  name: string,
  options: DownloadOptions,
): Promise<Pick<OpenedFile, "blob" | "version"> | null> {
  const opened = await openTarget(folder, name);
  if (!opened) return null;
  const { target, behindHead } = opened;
  try {
    if (!(await isCurrent(url, target, options))) {
      if (target.isComplete) target.expectAnother();
      await withoutReaders(name, options.signal, () => download(url, target, options));
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
  return { blob: await behindHead(), version: target.version! };
}

/** Milliseconds to wait for the server's version of a cached file: bad networks may give no error. */
const ANSWER_MS = 5000;

/** Whether the target is the complete current file. If the server does not respond, a complete file is good. */
async function isCurrent(url: string, target: FileTarget, { signal, fetch: request = fetch }: DownloadOptions) {
  if (!target.isComplete) return false;
  const late = AbortSignal.timeout(ANSWER_MS);
  const init = { cache: "no-store", signal: signal ? AbortSignal.any([signal, late]) : late } as const;
  let response = await request(url, { ...init, method: "HEAD" }).catch(() => null);
  // Some servers support only GET; the body is discarded.
  if (response && !response.ok) response = await request(url, init).catch(() => null);
  await response?.body?.cancel().catch(() => {});
  signal?.throwIfAborted();
  return !response?.ok || isUnchanged(versionOf(response), target.version);
}

/** Compares versions; by the validator alone where a length is unknown, as in HEAD or compressed responses. */
function isUnchanged(now: FileVersion, kept: FileVersion | null): boolean {
  const lengths = [now.byteLength, kept?.byteLength ?? null];
  if (now.validator === null || !lengths.includes(null)) return isSame(now, kept);
  return now.validator === kept?.validator;
}
