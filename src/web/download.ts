/** Downloads into something that grows; what a cut connection left out is asked for again, from where it was cut. */
import { InvalidFileError } from "../errors.ts";

/** What a server says of a file: two answers with equal values are of the same bytes. */
export interface FileVersion {
  readonly etag: string | null;
  /** Null where the server does not say. */
  readonly byteLength: number | null;
}

/** Takes the bytes of one file in order. */
export interface DownloadTarget {
  /** Bytes it has. */
  readonly size: number;
  /** Of what file they are; null when they are none. */
  readonly version: FileVersion | null;
  /** Forgets all bytes, for those of another version. */
  restart(version: FileVersion): Promise<void>;
  append(bytes: Uint8Array): void;
}

export interface DownloadOptions {
  readonly fetch?: typeof fetch;
  readonly signal?: AbortSignal | undefined;
  /** `totalBytes` is 0 where the server does not say. */
  onProgress?(doneBytes: number, totalBytes: number): void;
  /** Begins to watch a file from its first byte; `refuse` ends the download with an error, at any time. */
  watch?(totalBytes: number, refuse: (error: Error) => void): { take(bytes: Uint8Array): void };
}

/** Attempts in a row that bring nothing before the download is given up. */
const ATTEMPTS = 3;
const PAUSE_MS = 300;

/**
 * Brings a target to the whole file. InvalidFileError for a status that is no success, or when the connection is cut
 * again and again; errors of `append` and those given to `refuse` as they are; an abort throws the signal's reason.
 */
export async function download(url: string, target: DownloadTarget, options: DownloadOptions = {}): Promise<void> {
  for (let failures = 0; ; ) {
    const before = target.size;
    const problem = await attempt(url, target, options);
    if (problem === null) return;
    options.signal?.throwIfAborted();
    failures = target.size > before ? 0 : failures + 1;
    if (failures >= ATTEMPTS)
      throw new InvalidFileError(url, `the download was cut at byte ${target.size}: ${problem.message}`, {
        cause: problem,
      });
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * failures));
  }
}

/** One request; gives the network's error, if there was one. */
async function attempt(url: string, target: DownloadTarget, options: DownloadOptions): Promise<Error | null> {
  const { fetch: request = fetch, signal, onProgress } = options;
  const start = target.version ? target.size : 0;
  const init = { ...(start > 0 ? { headers: { Range: `bytes=${start}-` } } : {}), ...(signal ? { signal } : {}) };
  const response = await request(url, { ...init, cache: "no-store" }).catch((error: Error) => error);
  if (response instanceof Error) return response;
  if (response.status === 416) {
    await target.restart({ etag: null, byteLength: null });
    return new InvalidFileError(url, `the file has no byte ${start} any more`);
  }
  if (!response.ok) throw new InvalidFileError(url, `expected a file but the server answers ${response.status}`);
  const version = versionOf(response);
  const isRest = response.status === 206;
  if (!isRest) await target.restart(version);
  else if (!isSame(version, target.version)) {
    await response.body?.cancel();
    await target.restart({ etag: null, byteLength: null });
    return new InvalidFileError(url, "the file changed during the download");
  }
  const total = version.byteLength ?? 0;
  const reader = response.body!.getReader();
  let refusal: Error | null = null;
  const refuse = (error: Error) => {
    refusal = error;
    void reader.cancel();
  };
  const watcher = isRest ? undefined : options.watch?.(total, refuse);
  for (;;) {
    const part = await reader.read().catch((error: Error) => error);
    if (part instanceof Error) return part;
    if (part.done) break;
    target.append(part.value);
    watcher?.take(part.value);
    onProgress?.(target.size, total);
  }
  if (refusal) throw refusal;
  if (version.byteLength !== null && target.size !== version.byteLength)
    return new InvalidFileError(url, `expected ${version.byteLength} bytes but found ${target.size}`);
  return null;
}

/** From the headers of a whole answer or of a part. */
export function versionOf({ headers, status }: Response): FileVersion {
  const text =
    status === 206
      ? headers.get("content-range")?.match(/\/(\d+)$/)?.[1]
      : (headers.get("content-length") ?? undefined);
  // The length of compressed answers is not that of the file.
  const byteLength = headers.has("content-encoding") || text === undefined ? null : Number(text);
  return { etag: headers.get("etag"), byteLength };
}

export function isSame(a: FileVersion, b: FileVersion | null): boolean {
  return b !== null && a.etag === b.etag && a.byteLength === b.byteLength;
}
