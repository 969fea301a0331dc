/** A file at a URL that is read while it arrives and not cached, so that the weights are in memory only where they are used. */
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
 * Begins a download that is paced by the reads and ends when the source is closed; no HeadCheck is needed, since the reader
 * sees the first bytes. Throws the errors of `download`; once begun, reads throw them. InvalidFileError when the connection
 * breaks and the rest may be of another version.
 */
export function streamFile(url: string, options: DownloadOptions = {}): Promise<ByteSource> {
  const closed = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, closed.signal]) : closed.signal;
  // The size is left unknown: the announced length may be the compressed one.
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

  /** Accepts a second response from the first byte on if it is of the same version: bytes already received are skipped. */
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
