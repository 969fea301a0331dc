/**
 * Downloads one file into the cache, in several ranges at once. An interrupted download keeps what has arrived and is resumed
 * later; the content is checked before the file gets its name.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { access, type FileHandle } from "node:fs/promises";
import { dirname } from "node:path";
import { makeFolder } from "../node-file.ts";
import { claimPath, type WaitOptions } from "../path-claim.ts";
import { claimOf, openUnfinished, type UnfinishedFile } from "../unfinished-file.ts";
import { HubError, type RequestOptions, request, retried, StallWatch } from "./request.ts";

export interface BlobSource {
  readonly url: string;
  readonly size: number;
  /** Content hash: sha256 in hexadecimal, or git's sha1 of a blob; an ETag of another form is not checked. */
  readonly etag: string;
}

export interface BlobOptions extends RequestOptions, WaitOptions {
  /** Aborts the download, which throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Size of a range in bytes. Default 16 MiB. */
  readonly rangeBytes?: number | undefined;
  /** Number of ranges downloaded at once. Default 4. */
  readonly connections?: number | undefined;
  /** Called with the number of bytes that arrived since the last call; negative when some were discarded. */
  onBytes?(count: number): void;
}

/** Thrown when the server does not support range requests. */
class NoRangesError extends HubError {}

const RANGE_BYTES = 1 << 24;
const CONNECTIONS = 4;
/** Milliseconds between saves of the progress, from which another process can resume if this one is killed. */
const KEEP_MS = 5000;

/** State of an unfinished download: its file, and how much of each range has arrived. */
interface Unfinished {
  readonly etag: string;
  readonly size: number;
  readonly rangeBytes: number;
  readonly done: number[];
}

export const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  );

/**
 * Downloads `source` to `path` if it is not there, or waits while another task or process does. HubError when the content is
 * not what the hub promised, or cannot be had.
 */
export async function downloadBlob(source: BlobSource, path: string, options: BlobOptions): Promise<void> {
  if (await exists(path)) return options.onBytes?.(source.size);
  await makeFolder(dirname(path));
  const claim = await claimPath(claimOf(path), options);
  try {
    if (await exists(path)) options.onBytes?.(source.size);
    else await downloadPart(source, path, options);
  } finally {
    await claim.release();
  }
}

/** Downloads into a temporary file, and renames it when complete. */
async function downloadPart(source: BlobSource, path: string, options: BlobOptions): Promise<void> {
  const unfinished = await openUnfinished(path, (noted) => stateIn(noted, source));
  const state = unfinished.state ?? freshState(source, options.rangeBytes ?? RANGE_BYTES);
  options.onBytes?.(state.done.reduce((sum, count) => sum + count, 0));
  try {
    await downloadKept(source, state, unfinished, options);
  } catch (error) {
    await unfinished.leave(state).catch(() => unfinished.discard());
    throw error;
  }
  const problem = await contentProblem(unfinished.file, source);
  if (problem === null) return unfinished.finish();
  await unfinished.discard();
  options.onBytes?.(-source.size);
  throw new HubError(`${source.url}: ${problem}; the download was thrown away`, true);
}

/** Downloads, saving the progress from time to time. */
async function downloadKept(
  source: BlobSource,
  state: Unfinished,
  { handle, keep }: UnfinishedFile<Unfinished>,
  options: BlobOptions,
): Promise<void> {
  let keeping = keep(state);
  const timer = setInterval(() => {
    // A copy, since more may arrive while it is being written.
    const now = { ...state, done: [...state.done] };
    keeping = keeping.then(() => keep(now));
    keeping.catch(() => clearInterval(timer));
  }, KEEP_MS);
  try {
    await downloadRanges(source, state, handle, options).catch((error: unknown) => {
      if (!(error instanceof NoRangesError)) throw error;
      return retried(options, () => downloadWhole(source, state, handle, options));
    });
  } finally {
    clearInterval(timer);
    await keeping;
  }
}

function freshState({ etag, size }: BlobSource, rangeBytes: number): Unfinished {
  return { etag, size, rangeBytes, done: Array.from({ length: Math.ceil(size / rangeBytes) }, () => 0) };
}

/** The saved state, if it is of the same content; null otherwise. */
function stateIn(noted: unknown, { etag, size }: BlobSource): Unfinished | null {
  const known = noted as Unfinished;
  const isCount = (count: number) => Number.isInteger(count) && count >= 0 && count <= known.rangeBytes;
  const fits =
    known?.etag === etag &&
    known.size === size &&
    Number.isSafeInteger(known.rangeBytes) &&
    known.rangeBytes > 0 &&
    Array.isArray(known.done) &&
    known.done.length === Math.ceil(size / known.rangeBytes) &&
    known.done.every(isCount);
  return fits ? known : null;
}

/** Downloads ranges by several workers, each of which takes the next one; the first error ends all. */
async function downloadRanges(
  source: BlobSource,
  state: Unfinished,
  file: FileHandle,
  options: BlobOptions,
): Promise<void> {
  const stop = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, stop.signal]) : stop.signal;
  let next = 0;
  const work = async () => {
    while (next < state.done.length) {
      const index = next++;
      await retried({ ...options, signal }, () => downloadRange(source, state, index, file, { ...options, signal }));
    }
  };
  const workers = Array.from({ length: options.connections ?? CONNECTIONS }, () =>
    work().catch((error: unknown) => {
      stop.abort(error);
      throw error;
    }),
  );
  const results = await Promise.allSettled(workers);
  options.signal?.throwIfAborted();
  if (results.some(({ status }) => status === "rejected")) throw stop.signal.reason;
}

/** Downloads the rest of one range, from where it was interrupted. */
async function downloadRange(
  { url, size }: BlobSource,
  state: Unfinished,
  index: number,
  file: FileHandle,
  options: BlobOptions,
): Promise<void> {
  const rangeStart = index * state.rangeBytes;
  const end = Math.min(size, rangeStart + state.rangeBytes);
  let at = rangeStart + state.done[index]!;
  if (at >= end) return;
  const watch = new StallWatch(options);
  try {
    const response = await request(
      url,
      { headers: { range: `bytes=${at}-${end - 1}`, "accept-encoding": "identity" } },
      options,
      watch,
    );
    // A server without range support sends the whole file, which is usable only if the file has a single range.
    const whole = response.status === 200 && at === 0 && end === size;
    if (response.status !== 206 && !whole) {
      await response.body?.cancel().catch(() => {});
      const problem = `${url}: expected a part of the file but found status ${response.status}`;
      throw response.status === 200 ? new NoRangesError(problem) : new HubError(problem);
    }
    for await (const bytes of chunks(url, response, watch, options)) {
      if (at + bytes.length > end)
        throw new HubError(`${url}: sent more than the ${end - rangeStart} bytes asked for`, true);
      await file.write(bytes, 0, bytes.length, at);
      at += bytes.length;
      state.done[index] = at - rangeStart;
      options.onBytes?.(bytes.length);
    }
  } finally {
    watch.stop();
  }
  if (at < end) throw new HubError(`${url}: ended ${end - at} bytes early`, true);
}

/** Downloads the whole file in one response. Earlier parts are discarded, and it cannot be resumed. */
async function downloadWhole(
  { url, size }: BlobSource,
  state: Unfinished,
  file: FileHandle,
  options: BlobOptions,
): Promise<void> {
  options.onBytes?.(-state.done.reduce((sum, count) => sum + count, 0));
  state.done.fill(0);
  const watch = new StallWatch(options);
  let at = 0;
  try {
    const response = await request(url, { headers: { "accept-encoding": "identity" } }, options, watch);
    for await (const bytes of chunks(url, response, watch, options)) {
      if (at + bytes.length > size) throw new HubError(`${url}: sent more than its ${size} bytes`, true);
      await file.write(bytes, 0, bytes.length, at);
      at += bytes.length;
      options.onBytes?.(bytes.length);
    }
    if (at < size) throw new HubError(`${url}: ended ${size - at} bytes early`, true);
  } catch (error) {
    options.onBytes?.(-at);
    throw error;
  } finally {
    watch.stop();
  }
}

async function* chunks(
  url: string,
  response: Response,
  watch: StallWatch,
  { signal }: BlobOptions,
): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  if (!reader) return;
  try {
    for (;;) {
      watch.heard();
      const { done, value } = await reader.read();
      if (done) return;
      yield value as Uint8Array;
    }
  } catch (cause) {
    signal?.throwIfAborted();
    if (cause instanceof HubError) throw cause;
    throw new HubError(`${url}: connection lost: ${(cause as Error).message}`, true, { cause });
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** Checks the content's size and hash; returns the problem, null when there is none. */
async function contentProblem(path: string, { etag, size }: BlobSource): Promise<string | null> {
  const isSha256 = /^[0-9a-f]{64}$/.test(etag);
  if (!isSha256 && !/^[0-9a-f]{40}$/.test(etag)) return null;
  const hash = createHash(isSha256 ? "sha256" : "sha1");
  if (!isSha256) hash.update(`blob ${size}\0`);
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  const found = hash.digest("hex");
  return found === etag ? null : `expected checksum ${etag} but found ${found}`;
}
