/** Responses that are kept in a file, a line of JSON for each change, for the server that comes after this one. */
import { appendFile, chmod } from "node:fs/promises";
import { UnsupportedError } from "../errors.ts";
import { logInfo } from "../log.ts";
import { cannotWrite, checkWritable, readTextIfAny, writeFileWhole } from "../node-file.ts";
import { type Claim, tryClaimPath } from "../path-claim.ts";
import type { KeptResponse } from "./kept-response.ts";

/** A change: a response that is kept, or the id of one that is forgotten. */
type Line = { readonly kept: KeptResponse } | { readonly forgotten: string };

/** The file is written anew when it has so many times the bytes of what is kept. */
const SPARE = 2;
const SPARE_BYTES = 65536;

export class ResponseFile {
  readonly #path: string;
  readonly #claim: Claim;
  /** What the file had when it was opened. */
  readonly found: readonly KeptResponse[];
  #bytes: number;
  #writing: Promise<void> = Promise.resolve();
  #isFailed = false;

  private constructor(path: string, claim: Claim, found: readonly KeptResponse[], bytes: number) {
    this.#path = path;
    this.#claim = claim;
    this.found = found;
    this.#bytes = bytes;
  }

  /**
   * Opens a file, or begins one. Lines that are none, as one that a killed process was writing, say nothing. UnsupportedError while
   * another server has the file; InvalidFileError for one that cannot be written.
   */
  static async open(path: string): Promise<ResponseFile> {
    await checkWritable(path);
    const claim = await tryClaimPath(path);
    if (typeof claim === "string") throw new UnsupportedError(`${path}: is in use by ${claim}`);
    const text = (await readTextIfAny(path)) ?? "";
    const found = new Map<string, KeptResponse>();
    for (const line of text.split("\n")) {
      const change = parsed(line);
      if (!change) continue;
      if ("kept" in change) found.set(change.kept.id, change.kept);
      else found.delete(change.forgotten);
    }
    return new ResponseFile(path, claim, [...found.values()], Buffer.byteLength(text));
  }

  /** Notes a change; `all` gives what is kept, which the file is written of when it has become long. */
  write(line: Line, all: () => Iterable<KeptResponse>): void {
    const text = `${JSON.stringify(line)}\n`;
    this.#writing = this.#writing.then(() => this.#append(text, all)).catch((error) => this.#fail(error));
  }

  async #append(text: string, all: () => Iterable<KeptResponse>): Promise<void> {
    const lines = () => Array.from(all(), (kept) => `${JSON.stringify({ kept })}\n`).join("");
    this.#bytes += Buffer.byteLength(text);
    const whole = this.#bytes > SPARE_BYTES ? lines() : "";
    if (this.#bytes <= SPARE_BYTES + SPARE * Buffer.byteLength(whole) && !this.#isFailed) {
      // What a killed process left of a line must not become a part of this one.
      await appendFile(this.#path, `\n${text}`, { mode: 0o600 });
      return;
    }
    const bytes = new TextEncoder().encode(lines());
    await writeFileWhole(this.#path, (sink) => sink.write(bytes));
    await chmod(this.#path, 0o600);
    this.#bytes = bytes.length;
    this.#isFailed = false;
  }

  /** A full disk is no fault of a request: the file is written anew with the next response. */
  #fail(error: unknown): void {
    this.#isFailed = true;
    logInfo(() => `responses are not kept: ${cannotWrite(this.#path, error as Error).message}`);
  }

  /** Resolves when all is written, and gives the file to others. */
  async close(): Promise<void> {
    await this.#writing;
    await this.#claim.release();
  }
}

function parsed(line: string): Line | null {
  if (line === "") return null;
  try {
    const value = JSON.parse(line) as { kept?: Partial<KeptResponse>; forgotten?: unknown };
    if (typeof value.forgotten === "string") return { forgotten: value.forgotten };
    const { id, owner, input, output, body } = value.kept ?? {};
    const isWhole = typeof id === "string" && typeof owner === "string" && typeof body === "object" && body !== null;
    if (isWhole && Array.isArray(input) && Array.isArray(output)) return { kept: value.kept as KeptResponse };
  } catch {
    // A line that was not finished.
  }
  return null;
}
