/** Downloads into something that grows; what a cut connection left out is asked for again, from where it was cut. */
import { InvalidFileError } from "../errors.ts";

/** What a server says of a file. */
export interface FileVersion {
  /** ETag or, without one, Last-Modified. Null where the server gives neither: its answers cannot be told apart. */
  readonly validator: string | null;
  /** Null where the server does not say, and of compressed answers, whose length is another. */
  readonly byteLength: number | null;
}

/** Takes the bytes of one file in order. */
export interface DownloadTarget {
  /** Bytes it has. */
  readonly size: number;
  /** Version of the file that the bytes are of; null when they are of none. */
  readonly version: FileVersion | null;
  /** Forgets all bytes, for those of another version. */
  restart(version: FileVersion): Promise<void>;
  /** The next bytes; those after them come once it has them. */
  append(bytes: Uint8Array): Promise<void> | void;
}

export interface DownloadOptions {
  readonly fetch?: typeof fetch;
  readonly signal?: AbortSignal | undefined;
  /** `totalBytes` is 0 where the server does not say. */
  onProgress?(doneBytes: number, totalBytes: number): void;
  /** Begins to watch a file from its first byte, unless null; `refuse` ends the download with an error, at any time. */
  watch?(totalBytes: number, refuse: (error: Error) => void): { take(bytes: Uint8Array): void } | null;
}

/** Attempts in a row that bring nothing new before the download is given up. */
const ATTEMPTS = 3;
const PAUSE_MS = 300;

/**
 * Brings a target to the whole file. InvalidFileError for a status that is no success, or when the connection is cut
 * again and again; errors of the target and those given to `refuse` as they are; an abort throws the signal's reason.
 */
export async function download(url: string, target: DownloadTarget, options: DownloadOptions = {}): Promise<void> {
  let largest = target.size;
  for (let failures = 0; ; ) {
    const problem = await attempt(url, target, options);
    if (problem === null) return;
    options.signal?.throwIfAborted();
    failures = target.size > largest ? 0 : failures + 1;
    largest = Math.max(largest, target.size);
    if (failures >= ATTEMPTS)
      throw new InvalidFileError(url, `the download was cut at byte ${target.size}: ${problem.message}`, {
        cause: problem,
      });
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * failures));
  }
}

const UNKNOWN: FileVersion = { validator: null, byteLength: null };

/** One request; gives the network's error, if there was one. */
async function attempt(url: string, target: DownloadTarget, options: DownloadOptions): Promise<Error | null> {
  const { fetch: request = fetch, signal } = options;
  const start = canResume(target.version) ? target.size : 0;
  const init = { ...(start > 0 ? { headers: { Range: `bytes=${start}-` } } : {}), ...(signal ? { signal } : {}) };
  const response = await request(url, { ...init, cache: "no-store" }).catch((error: Error) => error);
  if (response instanceof Error) return response;
  if (response.status === 416) {
    await target.restart(UNKNOWN);
    return new InvalidFileError(url, `the file has no byte ${start} any more`);
  }
  if (!response.ok) throw new InvalidFileError(url, `expected a file but the server answers ${response.status}`);
  const version = versionOf(response, start);
  const isRest = response.status === 206;
  const mismatch = isRest ? mismatchOf(response, start, isSame(version, target.version)) : null;
  if (mismatch !== null) {
    await response.body?.cancel();
    await target.restart(UNKNOWN);
    return new InvalidFileError(url, mismatch);
  }
  if (!isRest) await target.restart(version);
  const problem = await take(response.body!, target, version, isRest ? { ...options, watch: () => null } : options);
  if (problem) return problem;
  // More than was said: the length of an answer whose compression the browser hides from pages of other origins.
  const { byteLength } = version;
  if (byteLength !== null && (target.size < byteLength || (isRest && target.size > byteLength)))
    return new InvalidFileError(url, `expected ${byteLength} bytes but found ${target.size}`);
  return null;
}

/** Why the part in an answer does not continue the bytes before `start`; null when it does, as far as can be seen. */
function mismatchOf({ headers }: Response, start: number, isSameFile: boolean): string | null {
  if (!isSameFile) return "the file changed during the download";
  // Pages of other origins are not shown it; there the length tells.
  const found = headers.get("content-range")?.match(/^bytes (\d+)-/)?.[1] ?? start;
  return Number(found) === start
    ? null
    : `expected its bytes from ${start} on but the server sends those from ${found} on`;
}

/** Hands the bytes of an answer on; gives the network's error, if there was one. */
async function take(
  body: ReadableStream<Uint8Array>,
  target: DownloadTarget,
  { byteLength }: FileVersion,
  { watch, onProgress }: DownloadOptions,
): Promise<Error | null> {
  const reader = body.getReader();
  let refusal: Error | null = null;
  const total = byteLength ?? 0;
  const watcher = watch?.(total, (error) => {
    refusal = error;
    void reader.cancel();
  });
  try {
    for (;;) {
      const part = await reader.read().catch((error: Error) => error);
      if (part instanceof Error) return part;
      if (part.done) break;
      await target.append(part.value);
      watcher?.take(part.value);
      onProgress?.(target.size, target.size > total ? 0 : total);
    }
  } finally {
    // For errors of the target; what has ended is not changed by it.
    reader.cancel().catch(() => {});
  }
  if (refusal) throw refusal;
  return null;
}

/** From the headers of a whole answer, or of a part from byte `start` on. */
export function versionOf({ headers, status }: Response, start = 0): FileVersion {
  const validator = headers.get("etag") ?? headers.get("last-modified");
  if (headers.has("content-encoding")) return { validator, byteLength: null };
  const total = status === 206 ? headers.get("content-range")?.match(/\/(\d+)$/)?.[1] : undefined;
  if (total !== undefined) return { validator, byteLength: Number(total) };
  // Pages of other origins are not shown Content-Range, but the length of the part.
  const length = headers.get("content-length");
  return { validator, byteLength: length === null ? null : Number(length) + (status === 206 ? start : 0) };
}

export function isSame(a: FileVersion, b: FileVersion | null): boolean {
  return b !== null && a.validator === b.validator && a.byteLength === b.byteLength;
}

/** Whether bytes of a version can be told from another's, and counted. */
export function canResume(version: FileVersion | null): boolean {
  return version !== null && version.validator !== null && version.byteLength !== null;
}
