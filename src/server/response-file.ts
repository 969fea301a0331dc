/** Stores responses in a file across restarts: a JSON line for each change. */
import { appendFile, chmod } from "node:fs/promises";
import { UnsupportedError } from "../errors.ts";
import { logInfo } from "../log.ts";
import { cannotWrite, checkWritable, readTextIfAny, writeFileWhole } from "../node-file.ts";
import { type Claim, tryClaimPath } from "../path-claim.ts";
import type { StoredResponse } from "./stored-response.ts";

/** A change: a response that is stored, or the id of one that is removed. */
type Line = { readonly kept: StoredResponse } | { readonly forgotten: string };

/** The file is rewritten when it is this many times as large as the stored responses. */
const SPARE = 2;
const SPARE_BYTES = 65536;

export class ResponseFile {
  readonly #path: string;
  readonly #claim: Claim;
  /** Responses that were in the file when it was opened. */
  readonly found: readonly StoredResponse[];
  #bytes: number;
  #writing: Promise<void> = Promise.resolve();
  #isFailed = false;

  private constructor(path: string, claim: Claim, found: readonly StoredResponse[], bytes: number) {
    this.#path = path;
    this.#claim = claim;
    this.found = found;
    this.#bytes = bytes;
  }

  /**
   * Opens or makes a file. Lines that cannot be parsed, as after a killed process, are skipped. UnsupportedError while
   * another server uses the file; InvalidFileError for one that cannot be written.
   */
  static async open(path: string): Promise<ResponseFile> {
    await checkWritable(path);
    const claim = await tryClaimPath(path);
    if (typeof claim === "string") throw new UnsupportedError(`${path}: is in use by ${claim}`);
    const text = (await readTextIfAny(path)) ?? "";
    const found = new Map<string, StoredResponse>();
    for (const line of text.split("\n")) {
      const change = parsed(line);
      if (!change) continue;
      if ("kept" in change) found.set(change.kept.id, change.kept);
      else found.delete(change.forgotten);
    }
    return new ResponseFile(path, claim, [...found.values()], Buffer.byteLength(text));
  }

  /** Appends a change; when the file has become long, it is rewritten with `all` stored responses. */
  write(line: Line, all: () => Iterable<StoredResponse>): void {
    const text = `${JSON.stringify(line)}\n`;
    this.#writing = this.#writing.then(() => this.#append(text, all)).catch((error) => this.#fail(error));
  }

  async #append(text: string, all: () => Iterable<StoredResponse>): Promise<void> {
    const lines = () => Array.from(all(), (kept) => `${JSON.stringify({ kept })}\n`).join("");
    this.#bytes += Buffer.byteLength(text);
    const whole = this.#bytes > SPARE_BYTES ? lines() : "";
    if (this.#bytes <= SPARE_BYTES + SPARE * Buffer.byteLength(whole) && !this.#isFailed) {
      // Starts a new line, in case a killed process left an unfinished one.
      await appendFile(this.#path, `\n${text}`, { mode: 0o600 });
      return;
    }
    const bytes = new TextEncoder().encode(lines());
    await writeFileWhole(this.#path, (sink) => sink.write(bytes));
    await chmod(this.#path, 0o600);
    this.#bytes = bytes.length;
    this.#isFailed = false;
  }

  /** A failed write, as on a full disk, is no fault of the request: the file is rewritten with the next response. */
  #fail(error: unknown): void {
    this.#isFailed = true;
    logInfo(() => `responses are not kept: ${cannotWrite(this.#path, error as Error).message}`);
  }

  /** Waits for all writes, and releases the file. */
  async close(): Promise<void> {
    await this.#writing;
    await this.#claim.release();
  }
}

function parsed(line: string): Line | null {
  if (line === "") return null;
  try {
    const value = JSON.parse(line) as { kept?: Partial<StoredResponse>; forgotten?: unknown };
    if (typeof value.forgotten === "string") return { forgotten: value.forgotten };
    const { id, owner, input, output, body } = value.kept ?? {};
    const isWhole = typeof id === "string" && typeof owner === "string" && typeof body === "object" && body !== null;
    if (isWhole && Array.isArray(input) && Array.isArray(output)) return { kept: value.kept as StoredResponse };
  } catch {
    // An unfinished line.
  }
  return null;
}
