/**
 * Downloads one file in ranges, several at once, into a file of the cache. What has arrived stays when a download ends
 * early, and the next one goes on from there; the content is checked before the file takes its name.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { access, type FileHandle, open, rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { checkWritable, makeFolder, readTextIfAny } from "../node-file.ts";
import { tryClaim } from "../path-claim.ts";
import { HubError, type RequestOptions, request, retried, StallWatch } from "./request.ts";

export interface BlobSource {
  readonly url: string;
  readonly size: number;
  /** Content hash: sha256 in hexadecimal, or git's sha1 of a blob; other tags are not checked. */
  readonly etag: string;
}

export interface BlobOptions extends RequestOptions {
  /** Bytes of a range. Default 16 MiB. */
  readonly rangeBytes?: number | undefined;
  /** Ranges at once. Default 4. */
  readonly connections?: number | undefined;
  /** Called with the bytes that arrived since the last call; negative when some were thrown away. */
  onBytes?(count: number): void;
}

/** What a range ends with when the server does not know ranges. */
class NoRangesError extends HubError {}

const RANGE_BYTES = 1 << 24;
const CONNECTIONS = 4;
/** How often a download looks whether another of the same file has ended. */
const OTHER_MS = 200;

/** What is known of an unfinished download: which file it is of, and how much of each range has arrived. */
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
 * Downloads `source` to `path` where it is not there, or waits while another task or process does. HubError when the content is not what the hub
 * promised, or cannot be had.
 */
export async function downloadBlob(source: BlobSource, path: string, options: BlobOptions): Promise<void> {
  if (await exists(path)) return options.onBytes?.(source.size);
  const part = `${path}.lowbit-part`;
  await makeFolder(dirname(path));
  let claim = await tryClaim(part);
  while (claim.holder !== null) {
    await delay(OTHER_MS, undefined, options.signal && { signal: options.signal }).catch(() => {});
    options.signal?.throwIfAborted();
    claim = await tryClaim(part);
  }
  try {
    if (await exists(path)) options.onBytes?.(source.size);
    else await downloadPart(source, path, part, options);
  } finally {
    await claim.release();
  }
}

/** Downloads into `part`, and gives it its name. */
async function downloadPart(source: BlobSource, path: string, part: string, options: BlobOptions): Promise<void> {
  const record = `${part}.json`;
  const state = await readState(record, source, options.rangeBytes ?? RANGE_BYTES);
  options.onBytes?.(state.done.reduce((sum, count) => sum + count, 0));
  await checkWritable(part);
  const file = await open(part, state.done.some((count) => count > 0) ? "r+" : "w");
  try {
    await downloadRanges(source, state, file, options).catch((error: unknown) => {
      if (!(error instanceof NoRangesError)) throw error;
      return retried(options, () => downloadWhole(source, state, file, options));
    });
    await file.sync();
  } finally {
    await file.close();
    await writeFile(record, JSON.stringify(state));
  }
  const problem = await contentProblem(part, source);
  if (problem) {
    await rm(part, { force: true });
    await rm(record, { force: true });
    options.onBytes?.(-source.size);
    throw new HubError(`${source.url}: ${problem}; the download was thrown away`, true);
  }
  await rename(part, path);
  await rm(record, { force: true });
}

async function readState(record: string, { etag, size }: BlobSource, rangeBytes: number): Promise<Unfinished> {
  const fresh = { etag, size, rangeBytes, done: Array.from({ length: Math.ceil(size / rangeBytes) }, () => 0) };
  const text = (await readTextIfAny(record)) ?? "";
  try {
    const known = JSON.parse(text) as Unfinished;
    const fits = known.etag === etag && known.size === size && known.done.length === Math.ceil(size / known.rangeBytes);
    const isCount = (count: number) => Number.isInteger(count) && count >= 0 && count <= known.rangeBytes;
    return fits && known.done.every(isCount) ? known : fresh;
  } catch {
    return fresh;
  }
}

/** Workers that each take the next range; the first error ends all. */
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

/** The rest of one range, from where it ended before. */
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
    // A server without ranges sends the whole: only good for the first range of a file that has just one.
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

/** The file from its start in one response. What arrived before counts no more, and cannot be gone on from. */
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

/** What is wrong with the content, null when nothing is. */
async function contentProblem(path: string, { etag, size }: BlobSource): Promise<string | null> {
  const isSha256 = /^[0-9a-f]{64}$/.test(etag);
  if (!isSha256 && !/^[0-9a-f]{40}$/.test(etag)) return null;
  const hash = createHash(isSha256 ? "sha256" : "sha1");
  if (!isSha256) hash.update(`blob ${size}\0`);
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  const found = hash.digest("hex");
  return found === etag ? null : `expected checksum ${etag} but found ${found}`;
}
