/** Files in Node: random-access reads, and writes that appear complete or not at all. */
import type { Stats } from "node:fs";
import { access, constants, type FileHandle, mkdir, open, readdir, rename, rm, stat, statfs } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { checkFields, checkString, unexpected } from "./arguments.ts";
import { type ByteSink, type ByteSource, checkRange } from "./byte-source.ts";
import { InvalidFileError } from "./errors.ts";
import { checkNoPointer } from "./git-lfs.ts";
import { isRunning, newWriterId, WRITER_ID } from "./writer-id.ts";

/** Largest single read that every platform accepts (2 GiB - 1 on Linux and macOS). */
const READ_MAX_BYTES = 1 << 30;

/** Closes the handle of a source that is garbage collected unclosed: Node ends the process where it collects a FileHandle. */
const forgotten = new FinalizationRegistry(({ handle, key }: { handle: FileHandle; key: symbol }) => {
  reading.delete(key);
  void handle.close();
});

/** InvalidArgumentError for a path that is no string, such as a URL. */
export function checkPath(path: unknown): void {
  checkString("path", path);
}

/** Paths of open sources, by key: a map by source would keep sources from being garbage collected. */
const reading = new Map<symbol, { readonly path: string; readonly status: Stats }>();

/** Whether two states are of one file or folder, also through different paths and links. */
function isSame(a: Stats, b: Stats): boolean {
  return a.dev === b.dev && a.ino === b.ino;
}

/**
 * Opens a regular file. Anything else is refused without being opened: opening a named pipe blocks, even for signals, until
 * somebody writes to it, and opening a device may have effects.
 */
async function openRegular(path: string): Promise<{ handle: FileHandle; status: Stats }> {
  checkPath(path);
  const refuse = (cause: NodeJS.ErrnoException): never => {
    const problem = cause.code === "ENOENT" ? "no such file" : cause.message;
    throw new InvalidFileError(path, problem, { cause });
  };
  checkRegular(path, await stat(path).catch(refuse));
  // Nonblocking, since a pipe may have replaced the file after it was checked.
  const handle = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0)).catch(refuse);
  try {
    const status = await handle.stat();
    checkRegular(path, status);
    return { handle, status };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function checkRegular(path: string, status: Stats): void {
  if (!status.isFile()) throw new InvalidFileError(path, `expected a file but found ${describeOther(status)}`);
}

/**
 * Reads the lines of a UTF-8 file as they are asked for. InvalidFileError as `readFileWhole`, and for a line of more than
 * `charactersMax` characters, before the whole line is read.
 */
export async function* readLines(path: string, charactersMax: number): AsyncGenerator<string> {
  const { handle } = await openRegular(path);
  const input = handle.createReadStream({ encoding: "utf8" });
  try {
    yield* linesOf(input, path, charactersMax);
  } finally {
    input.destroy();
  }
}

/**
 * The lines of a text that comes in pieces. Only LF or CRLF end a line: JSON strings may contain Unicode's other line ends.
 */
export async function* linesOf(
  pieces: AsyncIterable<string>,
  path: string,
  charactersMax = Number.POSITIVE_INFINITY,
): AsyncGenerator<string> {
  let number = 1;
  let line = "";
  const check = () => {
    if (line.length > charactersMax)
      throw new InvalidFileError(`${path}, line ${number}`, `expected at most ${charactersMax} characters`);
  };
  for await (const piece of pieces) {
    let start = 0;
    for (let end = piece.indexOf("\n"); end >= 0; end = piece.indexOf("\n", start)) {
      line += piece.slice(start, end);
      check();
      yield line.endsWith("\r") ? line.slice(0, -1) : line;
      number++;
      line = "";
      start = end + 1;
    }
    line += piece.slice(start);
    check();
  }
  if (line !== "") yield line;
}

/** Reads all bytes of a regular file. InvalidFileError when it is missing or no regular file. */
export async function readFileWhole(path: string): Promise<Uint8Array> {
  const { handle } = await openRegular(path);
  try {
    return await handle.readFile();
  } catch (cause) {
    throw new InvalidFileError(path, (cause as Error).message, { cause });
  } finally {
    await handle.close();
  }
}

/** Reads an optional text file; null where it is missing or cannot be read. */
export async function readTextIfAny(path: string): Promise<string | null> {
  return readFileWhole(path).then(
    (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes),
    () => null,
  );
}

/** State by which writes to a file are detected: size in bytes, and modification time in milliseconds. */
export interface FileState {
  readonly size: number;
  readonly mtimeMs: number;
}

/** InvalidFileError when a file was written after it was opened. */
export function checkUnchanged(path: string, before: FileState, now: FileState | undefined): void {
  if (now && now.size === before.size && now.mtimeMs === before.mtimeMs) return;
  const problem =
    now && now.size !== before.size ? `it had ${before.size} bytes and has ${now.size}` : "it was written to";
  throw new InvalidFileError(path, `has changed since it was opened (${problem}): open it again`);
}

/**
 * Opens a file for random-access reads. InvalidFileError when it is missing, not a regular file, or a Git LFS pointer, and
 * for reads after somebody wrote to the file or truncated it, since they would not fit earlier ones.
 */
export async function openFile(path: string): Promise<ByteSource> {
  const { handle, status } = await openRegular(path);
  const key = Symbol(path);
  let isClosed = false;
  const readInto = async (offset: number, target: Uint8Array) => {
    const { length } = target;
    if (isClosed) throw new InvalidFileError(path, "is closed: whatever needs it must be done before");
    checkRange(path, status.size, offset, length);
    for (let done = 0; done < length; ) {
      const { bytesRead } = await handle.read(target, done, Math.min(length - done, READ_MAX_BYTES), offset + done);
      if (bytesRead === 0) throw new InvalidFileError(path, `file ends at ${offset + done}; it was cut while read`);
      done += bytesRead;
    }
    checkUnchanged(path, status, await handle.stat());
  };
  const source: ByteSource = {
    name: path,
    size: status.size,
    readInto,
    async read(offset, length) {
      checkRange(path, status.size, offset, length);
      const bytes = new Uint8Array(length);
      await readInto(offset, bytes);
      return bytes;
    },
    close() {
      isClosed = true;
      forgotten.unregister(source);
      reading.delete(key);
      return handle.close();
    },
  };
  reading.set(key, { path, status });
  forgotten.register(source, { handle, key }, source);
  await checkNoPointer(source).catch(async (error) => {
    await source.close();
    throw error;
  });
  return source;
}

function describeOther(status: Stats): string {
  if (status.isDirectory()) return "a directory";
  if (status.isFIFO()) return "a named pipe";
  if (status.isSocket()) return "a socket";
  return status.isCharacterDevice() || status.isBlockDevice() ? "a device" : "no file";
}

/**
 * Writes a file under a temporary name beside `path`, and renames it when `write` has returned. After an error, the
 * temporary file is removed and the file at `path` stays as it was. Temporary files of killed processes are removed by the
 * next write.
 */
export async function writeFileWhole(path: string, write: (sink: ByteSink) => Promise<void>): Promise<void> {
  await checkWritable(path);
  if (typeof write !== "function") throw unexpected("write", "a function", write);
  await removeLeftovers(path);
  const temporary = `${path}.${newWriterId()}.part`;
  const handle = await open(temporary, "wx").catch((cause: Error) => {
    throw new InvalidFileError(path, `cannot be written: ${cause.message}`, { cause });
  });
  try {
    let position = 0;
    await write({
      get position() {
        return position;
      },
      async write(bytes) {
        await writeAll(handle, bytes, position);
        position += bytes.length;
      },
      rewrite: (at, bytes) => writeAll(handle, bytes, at),
    });
    await handle.sync();
    await handle.close();
    await rename(temporary, path);
  } catch (cause) {
    await handle.close().catch(() => {});
    await rm(temporary, { force: true });
    throw cannotWrite(path, cause as Error);
  }
}

/**
 * Age at which a temporary file is a leftover when its writer, on another machine or in a container, cannot be looked up.
 */
const LEFTOVER_MS = 86_400_000;

/**
 * Removes temporary files and folders of `path`, named `<path>.<writer's id><ending>`, whose writers have ended, except
 * `keep`.
 */
export async function removeLeftovers(path: string, ending = ".part", keep?: string): Promise<void> {
  const [folder, name] = [dirname(path), basename(path)];
  const pattern = new RegExp(`^\\.(${WRITER_ID})\\${ending}$`);
  for (const other of await readdir(folder).catch(() => [])) {
    const id = other.startsWith(`${name}.`) && other !== keep && pattern.exec(other.slice(name.length))?.[1];
    if (!id) continue;
    const file = join(folder, other);
    const { mtimeMs } = (await stat(file).catch(() => null)) ?? { mtimeMs: Date.now() };
    const isOver = isRunning(id) === false || Date.now() - mtimeMs > LEFTOVER_MS;
    if (isOver) await rm(file, { recursive: true, force: true }).catch(() => {});
  }
}

/** InvalidFileError for a path at which no file can be written. Call it before the work that makes the file. */
export async function checkWritable(path: string): Promise<void> {
  checkPath(path);
  if (path === "") throw new InvalidFileError(path, "expected the path of a file to write");
  const status = await stat(path).catch(() => null);
  if (status && !status.isFile())
    throw new InvalidFileError(path, `expected a file to write but found ${describeOther(status)}`);
  for (const { path: input, status: read } of status ? reading.values() : [])
    if (isSame(read, status!)) throw overInput(path, input);
  await access(dirname(path), constants.W_OK).catch((cause: Error) => {
    throw cannotWrite(path, cause);
  });
}

function overInput(path: string, input: string): InvalidFileError {
  const what = path === input ? "is read, and would be replaced" : `would replace ${input}, which is read`;
  return new InvalidFileError(path, `${what}: write to another path`);
}

/** Names of files that belong to a checkpoint folder: an output with such a name there would become a part of it. */
const memberNames = /\.(safetensors|bin|pth?|gguf|jinja|model)$|^(?!.*trace).*\.(json|txt)$/;

/**
 * InvalidFileError for an output that cannot be written, that is one of the inputs (files or checkpoint folders), also
 * through a link, or that its name would make a part of an input folder. Missing inputs are ignored. Call it before long
 * work: `writeFileWhole` refuses only files that are open for reading at that moment.
 */
export async function checkOutput(path: string, inputs: readonly (string | undefined)[]): Promise<void> {
  await checkWritable(path);
  if (!Array.isArray(inputs)) throw unexpected("inputs", "a list of paths", inputs);
  const statusOf = (name: string) => stat(name).catch(() => null);
  const [target, folder] = await Promise.all([path, dirname(path)].map(statusOf));
  for (const input of inputs) {
    const source = input === undefined ? null : await statusOf(input);
    if (!source) continue;
    if (target && isSame(target, source)) throw overInput(path, input!);
    if (!source.isDirectory()) continue;
    const isProgram = path.endsWith(".pte");
    if (folder && isSame(folder, source) && !isProgram && (target || memberNames.test(basename(path))))
      throw new InvalidFileError(
        path,
        `would become a part of the checkpoint ${input}, which is read: write elsewhere`,
      );
    for (const name of target && !isProgram ? await readdir(input!).catch(() => []) : []) {
      const member = await statusOf(join(input!, name));
      if (member && isSame(member, target!)) throw overInput(path, join(input!, name));
    }
  }
}

/** InvalidFileError for an output folder that is an input, or that contains one. */
export async function checkOutputFolder(path: string, inputs: readonly (string | undefined)[]): Promise<void> {
  checkPath(path);
  const target = await stat(path).catch(() => null);
  for (const input of target ? inputs : []) {
    const source = input === undefined ? null : await stat(input).catch(() => null);
    const folder = source?.isDirectory() ? source : source && (await stat(dirname(input!)).catch(() => null));
    if (folder && isSame(folder, target!))
      throw new InvalidFileError(
        path,
        `holds ${input}, which is read, and whose files would be replaced: write to another folder`,
      );
  }
}

/**
 * Makes a folder and its parents. InvalidFileError where that is impossible. One folder at a time, since `mkdir` with
 * `recursive` never returns in folders such as /proc.
 */
export async function makeFolder(path: string): Promise<void> {
  const make = () =>
    mkdir(path).then(
      () => null,
      (cause: NodeJS.ErrnoException) => cause,
    );
  let problem = await make();
  if (problem?.code === "ENOENT") {
    await makeFolder(dirname(path));
    problem = await make();
  }
  if (problem === null || (await stat(path).catch(() => null))?.isDirectory()) return;
  throw problem.code === "EEXIST"
    ? new InvalidFileError(path, "expected a folder to write to but found a file", { cause: problem })
    : cannotWrite(path, problem);
}

/** The part of Node's FileHandle that is used for writing, so that this package's declarations do not need Node's types. */
interface WritableHandle {
  write(bytes: Uint8Array, offset: number, length: number, position: number): Promise<{ bytesWritten: number }>;
}

/** Writes all bytes at a position. */
export async function writeAll(handle: WritableHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const length = Math.min(bytes.length - done, READ_MAX_BYTES);
    done += (await handle.write(bytes, done, length, position + done)).bytesWritten;
  }
}

const writeErrors = new Set(["ENOSPC", "EFBIG", "EDQUOT", "EIO", "EACCES", "ENOENT", "EISDIR", "EROFS", "ENOTDIR"]);

/** An error of the file system while writing `path`, as InvalidFileError; any other error unchanged. */
export function cannotWrite(path: string, cause: Error): Error {
  checkFields("cause", cause, [], "an error");
  const { code } = cause as NodeJS.ErrnoException;
  if (code === undefined || !writeErrors.has(code)) return cause;
  return new InvalidFileError(path, `cannot be written: ${cause.message}`, { cause });
}

/** Free bytes on the disk of a folder, which need not exist yet; Infinity where the system does not tell. */
export async function freeDisk(folder: string): Promise<number> {
  for (let at = resolve(folder); ; at = dirname(at)) {
    const found = await statfs(at).catch(() => null);
    if (found) return found.bavail * found.bsize;
    if (at === dirname(at)) return Number.POSITIVE_INFINITY;
  }
}
