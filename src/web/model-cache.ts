/**
 * Downloaded models in the browser's private file system: one file each, and beside it what the server said of it. Works
 * in workers, which alone can write there at once. Where there is no such file system or no room, files are not kept.
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

/** A model's file as it can be read; it is closed when the model is loaded or cannot be. */
export interface StoredModel {
  readonly source: ByteSource;
  /** Whether it is there after a reload; null for a file of the user's own. */
  readonly isCached: boolean | null;
  /** What a program that is made of the file is kept under; null where it is not. */
  readonly origin: Origin | null;
  /** Keeps a file no longer that proves to be damaged. */
  forget(): Promise<void>;
}

/** A file that programs are made of. */
interface Origin {
  /** Names the program. */
  readonly key: string;
  readonly version: FileVersion;
}

/** How a program is made of a file. */
export interface MakingOptions {
  readonly signal: AbortSignal;
  /** Called as it is written. */
  onProgress(doneBytes: number, totalBytes: number): void;
}

/** A program that can be loaded. */
export interface OpenedProgram {
  readonly program: Program;
  /** Whether its bytes are made as it is loaded, which takes time. */
  readonly isMadeNow: boolean;
  /** Ends the reading. */
  close(): Promise<void>;
  /** Keeps a file no longer that proves to be damaged. */
  forget(): Promise<void>;
}

/**
 * The file at a URL: cached where it can be, else read as it comes. A cached one is used when the server has no other, or
 * cannot be asked; so is the program that was made of it. Addresses of data, and of blobs, which no later visit has, are not kept.
 */
export async function fetchModel(url: string, options: DownloadOptions = {}): Promise<StoredModel> {
  const folder = /^https?:/.test(url) ? await openFolder() : null;
  const kept = folder && (await openAt(url, folder, options));
  if (!kept) return { source: await streamFile(url, options), isCached: false, origin: null, async forget() {} };
  const { blob, version, release, forget } = kept;
  const source = { ...blobSource(url, blob), close: async () => release() };
  return { source, isCached: true, origin: { key: programKey(url), version }, forget };
}

/** The program that was made of the file at a URL, where it is current, else the file itself; null when there is no room. */
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

/** What the program is kept under that is made of the file at a URL. */
function programKey(url: string): string {
  return `program of ${url}`;
}

/** Null when there is no room. */
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
