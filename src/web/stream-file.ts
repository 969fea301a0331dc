/** A file at a URL read while it comes, and not kept: weights are nowhere but where they are wanted. */
import type { ByteSource } from "../byte-source.ts";
import { InvalidFileError } from "../errors.ts";
import { ArrivingFile } from "./arriving-file.ts";
import {
  canResume,
  type DownloadOptions,
  type DownloadTarget,
  download,
  type FileVersion,
  isSame,
} from "./download.ts";

/**
 * Begins a download, which waits for the reads and ends when the source is closed; nothing watches it, since who reads
 * sees its first bytes. Errors are those of `download`, of
 * reads when it has begun. InvalidFileError when it is cut and the rest is not known to be of the same file.
 */
export function streamFile(url: string, options: DownloadOptions = {}): Promise<ByteSource> {
  const closed = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, closed.signal]) : closed.signal;
  // The size is left open: that of an answer may be its length while compressed.
  const file = new ArrivingFile(url, 0, () => closed.abort());
  return new Promise((resolve, reject) => {
    const target = new StreamTarget(file, () => resolve(file));
    download(url, target, { ...options, signal, watch: () => null }).then(
      () => file.end(),
      (error) => {
        file.end(error);
        reject(error);
      },
    );
  });
}

class StreamTarget implements DownloadTarget {
  version: FileVersion | null = null;
  size = 0;
  readonly #file: ArrivingFile;
  readonly #onBegin: () => void;
  #came = 0;

  constructor(file: ArrivingFile, onBegin: () => void) {
    this.#file = file;
    this.#onBegin = onBegin;
  }

  /** A second answer from the first byte on is good where it is of the same file: what has come is passed over. */
  async restart(version: FileVersion): Promise<void> {
    if (this.#came > 0 && !(canResume(version) && isSame(version, this.version)))
      throw new InvalidFileError(
        this.#file.name,
        `the download was cut at byte ${this.#came} and the rest is not known to be of the same file; load it again`,
      );
    this.version = version;
    this.size = 0;
    this.#onBegin();
  }

  append(bytes: Uint8Array): Promise<void> | void {
    const fresh = bytes.subarray(Math.max(0, this.#came - this.size));
    this.size += bytes.length;
    if (fresh.length === 0) return;
    this.#came += fresh.length;
    return this.#file.append(fresh);
  }
}
