/** Files of answers in OpenAI's batch format, to which a run appends after an earlier one was killed. */
import { type FileHandle, open } from "node:fs/promises";
import { InvalidFileError } from "../../errors.ts";
import { JsonSource, jsonText } from "../../json-text.ts";
import { cannotWrite, linesOf } from "../../node-file.ts";
import { type Claim, tryClaimPath } from "../../path-claim.ts";
import { newId } from "../ids.ts";

/** The response to one request of a batch. */
export interface BatchAnswer {
  /** HTTP status. */
  readonly status_code: number;
  /** Id of the request in the log of the process that answered it. */
  readonly request_id: string;
  /** JSON text of the response's body. */
  readonly body: string;
}

const NEWLINE = 0x0a;
const CHUNK_BYTES = 65536;

/** A file of answers, appended to: an answer is on disk when `write` resolves. */
export class BatchOutput {
  /** `custom_id`s of the answers in the file. */
  readonly done: Set<string>;
  readonly #path: string;
  readonly #handle: FileHandle;
  readonly #claim: Claim;
  #lines: string[] = [];
  #writing: Promise<void> | null = null;

  private constructor(path: string, handle: FileHandle, done: Set<string>, claim: Claim) {
    this.#path = path;
    this.#handle = handle;
    this.done = done;
    this.#claim = claim;
  }

  /**
   * Opens a file, or makes it; a last line without an end is cut off. InvalidFileError while another process writes the
   * file, and for a file that holds something else, which stays as it is.
   */
  static async open(path: string): Promise<BatchOutput> {
    const claim = await tryClaimPath(path);
    if (typeof claim === "string")
      throw new InvalidFileError(path, `is being written by ${claim}; wait for it, or end it`);
    try {
      const handle = await open(path, "a+").catch((cause) => {
        throw cannotWrite(path, cause);
      });
      try {
        const end = await wholeLinesEnd(handle);
        const done = await answeredIds(handle, path, end);
        await checkTorn(handle, path, end);
        await handle.truncate(end);
        return new BatchOutput(path, handle, done, claim);
      } catch (error) {
        await handle.close();
        throw error;
      }
    } catch (error) {
      await claim.release();
      throw error;
    }
  }

  /** Answers that come while others are being written go to disk together. */
  async write(custom_id: string, response: BatchAnswer): Promise<void> {
    const id = newId("batch_req", "_");
    const whole = { ...response, body: new JsonSource(response.body) };
    this.#lines.push(`${jsonText({ id, custom_id, response: whole, error: null })}\n`);
    while (this.#writing) await this.#writing;
    if (this.#lines.length > 0) {
      this.#writing = this.#flush().finally(() => {
        this.#writing = null;
      });
      await this.#writing;
    }
    this.done.add(custom_id);
  }

  async #flush(): Promise<void> {
    const text = this.#lines.join("");
    this.#lines = [];
    if (!(await this.#claim.isHeld()))
      throw new InvalidFileError(this.#path, "another process has taken over, as this one was stopped for seconds");
    try {
      await this.#handle.appendFile(text);
      await this.#handle.datasync();
    } catch (cause) {
      throw cannotWrite(this.#path, cause as Error);
    }
  }

  async close(): Promise<void> {
    await this.#handle.close();
    await this.#claim.release();
  }
}

/** Position behind the last line end of the file. */
async function wholeLinesEnd(handle: FileHandle): Promise<number> {
  const { size } = await handle.stat();
  for (let end = size; end > 0; ) {
    const start = Math.max(0, end - CHUNK_BYTES);
    const bytes = Buffer.alloc(end - start);
    const { bytesRead } = await handle.read(bytes, 0, bytes.length, start);
    const last = bytes.subarray(0, bytesRead).lastIndexOf(NEWLINE);
    if (last >= 0) return start + last + 1;
    end = start;
  }
  return 0;
}

/** How each answer begins. */
const ANSWER_START = Buffer.from('{"id":"batch_req_');

/** InvalidFileError unless the bytes behind the last whole line are none, or the beginning of an answer. */
async function checkTorn(handle: FileHandle, path: string, end: number): Promise<void> {
  const start = Buffer.alloc(ANSWER_START.length);
  const { bytesRead } = await handle.read(start, 0, start.length, end);
  if (!start.subarray(0, bytesRead).equals(ANSWER_START.subarray(0, bytesRead)))
    throw new InvalidFileError(path, "ends in a line that is no answer of a batch; give another file");
}

/** `custom_id`s of the answers before position `end`, where a line ends. */
async function answeredIds(handle: FileHandle, path: string, end: number): Promise<Set<string>> {
  const ids = new Set<string>();
  if (end === 0) return ids;
  let number = 0;
  const input = handle.createReadStream({ start: 0, end: end - 1, autoClose: false, encoding: "utf8" });
  for await (const line of linesOf(input, path)) {
    number++;
    ids.add(answeredId(line, `${path}, line ${number}`));
  }
  return ids;
}

function answeredId(line: string, place: string): string {
  try {
    const { custom_id, response } = JSON.parse(line);
    if (typeof custom_id === "string" && typeof response === "object") return custom_id;
  } catch {
    // Not JSON: refused below.
  }
  throw new InvalidFileError(place, "expected an answer of a batch, so that it can be gone on with; give another file");
}
