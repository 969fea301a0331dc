/** Downloads a file to an appendable target; after a broken connection, the rest is requested from where it broke. */
import { InvalidFileError } from "../errors.ts";

/** A version of a file, by the server's headers. */
export interface FileVersion {
  /** ETag, or else Last-Modified. Null if the server sends neither: versions cannot be told apart then. */
  readonly validator: string | null;
  /** Size in bytes. Null if the server does not send it, and for compressed responses, whose length differs. */
  readonly byteLength: number | null;
}

/** Receives the bytes of one file in order. */
export interface DownloadTarget {
  /** Number of bytes received. */
  readonly size: number;
  /** Version of the file that the bytes belong to; null without bytes. */
  readonly version: FileVersion | null;
  /** Discards all bytes and starts with another version. */
  restart(version: FileVersion): Promise<void>;
  /** Appends bytes; the next ones are appended once it has resolved. */
  append(bytes: Uint8Array): Promise<void> | void;
}

export interface DownloadOptions {
  readonly fetch?: typeof fetch;
  readonly signal?: AbortSignal | undefined;
  /** Called with bytes done and in total; `totalBytes` is 0 if unknown. */
  onProgress?(doneBytes: number, totalBytes: number): void;
  /**
   * Returns an observer that gets the file's bytes from the first one on, or null for none. `refuse` ends the download with an
   * error, at any time.
   */
  watch?(totalBytes: number, refuse: (error: Error) => void): { take(bytes: Uint8Array): void } | null;
}

/** Consecutive attempts without new bytes after which the download fails. */
const ATTEMPTS = 3;
const PAUSE_MS = 300;

/**
 * Downloads until the target has the whole file. InvalidFileError for an error status, or when the connection keeps breaking;
 * errors of the target and those passed to `refuse` are rethrown; an abort throws the signal's reason.
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

/** Makes one request; returns a network error, if there was one. */
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
  // A whole response may be longer than announced: with Content-Encoding hidden across origins, the announced length may be
  // that of compressed data.
  const { byteLength } = version;
  if (byteLength !== null && (target.size < byteLength || (isRest && target.size > byteLength)))
    return new InvalidFileError(url, `expected ${byteLength} bytes but found ${target.size}`);
  return null;
}

/** Why the partial response does not continue the bytes before `start`; null if it does, as far as the headers show. */
function mismatchOf({ headers }: Response, start: number, isSameFile: boolean): string | null {
  if (!isSameFile) return "the file changed during the download";
  // The header is hidden across origins; the length is checked then.
  const found = headers.get("content-range")?.match(/^bytes (\d+)-/)?.[1] ?? start;
  return Number(found) === start
    ? null
    : `expected its bytes from ${start} on but the server sends those from ${found} on`;
}

/** Passes the body's bytes on; returns a network error, if there was one. */
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
    // Needed after an error of the target; no effect on a finished stream.
    reader.cancel().catch(() => {});
  }
  if (refusal) throw refusal;
  return null;
}

/** The version in the headers of a complete response, or of a partial one from byte `start` on. */
export function versionOf({ headers, status }: Response, start = 0): FileVersion {
  const validator = headers.get("etag") ?? headers.get("last-modified");
  if (headers.has("content-encoding")) return { validator, byteLength: null };
  const total = status === 206 ? headers.get("content-range")?.match(/\/(\d+)$/)?.[1] : undefined;
  if (total !== undefined) return { validator, byteLength: Number(total) };
  // Content-Range is hidden across origins, but not the length of the part.
  const length = headers.get("content-length");
  return { validator, byteLength: length === null ? null : Number(length) + (status === 206 ? start : 0) };
}

export function isSame(a: FileVersion, b: FileVersion | null): boolean {
  return b !== null && a.validator === b.validator && a.byteLength === b.byteLength;
}

/** Whether a partial download of this version can be resumed: its version and size are known. */
export function canResume(version: FileVersion | null): boolean {
  return version !== null && version.validator !== null && version.byteLength !== null;
}
