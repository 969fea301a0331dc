/** Files of Node: positioned reads without loading the whole, and writes that appear complete or not at all. */
import type { Stats } from "node:fs";
import { access, constants, type FileHandle, mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { checkString } from "./arguments.ts";
import { type ByteSink, type ByteSource, checkRange } from "./byte-source.ts";
import { InvalidFileError } from "./errors.ts";
import { checkNoPointer } from "./git-lfs.ts";

/** Largest single read that every platform accepts (2 GiB - 1 on Linux and macOS). */
const READ_MAX_BYTES = 1 << 30;

/** Writes begun by this process: two of the same path must not share a temporary file. */
let writes = 0;

/** Closes the handles of sources that are forgotten: Node ends processes that leave that to its garbage collector. */
const forgotten = new FinalizationRegistry((handle: FileHandle) => void handle.close());

/** InvalidArgumentError for what is no path, such as a URL: programs without types may give anything. */
export function checkPath(path: unknown): void {
  checkString("path", path);
}

/** Opens a file for positioned reads; InvalidFileError when it is missing, not a regular file, or a Git LFS pointer. */
export async function openFile(path: string): Promise<ByteSource> {
  checkPath(path);
  const handle = await open(path, "r").catch((cause: NodeJS.ErrnoException) => {
    const problem = cause.code === "ENOENT" ? "no such file" : cause.message;
    throw new InvalidFileError(path, problem, { cause });
  });
  const status = await handle.stat();
  if (!status.isFile()) {
    await handle.close();
    throw new InvalidFileError(path, `expected a file but found ${describeOther(status)}`);
  }
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
      return handle.close();
    },
  };
  forgotten.register(source, handle, source);
  await checkNoPointer(source).catch(async (error) => {
    await source.close();
    throw error;
  });
  return source;
}

function describeOther(status: Stats): string {
  return status.isDirectory() ? "a directory" : "no file";
}

/**
 * Writes a file under a temporary name beside `path` and renames it when `write` has returned;
 * on any error, the temporary file is removed and what was at `path` stays. Those of processes that were killed are
 * removed by the next write of `path`.
 */
export async function writeFileWhole(path: string, write: (sink: ByteSink) => Promise<void>): Promise<void> {
  await checkWritable(path);
  await removeLeftovers(path);
  const temporary = `${path}.${process.pid}-${++writes}.part`;
  const handle = await open(temporary, "w").catch((cause: Error) => {
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

/** Removes the temporary files of `path` whose processes have ended. */
async function removeLeftovers(path: string): Promise<void> {
  const [folder, name] = [dirname(path), basename(path)];
  for (const other of await readdir(folder).catch(() => [])) {
    const pid = other.startsWith(`${name}.`) && /^\.(\d+)-\d+\.part$/.exec(other.slice(name.length))?.[1];
    if (pid && !isRunning(Number(pid))) await rm(join(folder, other), { force: true }).catch(() => {});
  }
}

/** Whether there is a process of this number, of whatever user. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** InvalidFileError for a path that no file can be written to, before the work that makes the file. */
export async function checkWritable(path: string): Promise<void> {
  checkPath(path);
  if (path === "") throw new InvalidFileError(path, "expected the path of a file to write");
  const status = await stat(path).catch(() => null);
  if (status && !status.isFile())
    throw new InvalidFileError(path, `expected a file to write but found ${describeOther(status)}`);
  await access(dirname(path), constants.W_OK).catch((cause: Error) => {
    throw cannotWrite(path, cause);
  });
}

/**
 * Makes a folder, and those that it lies in; InvalidFileError where there cannot be one. In steps: Node's `recursive` tries
 * for ever where a folder such as /proc has room for none.
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

/** What is written to of a file of Node; not by Node's own type, which declarations must not need. */
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

/** An error of the file system in writing `path` as InvalidFileError; any other error as it is. */
export function cannotWrite(path: string, cause: Error): Error {
  const { code } = cause as NodeJS.ErrnoException;
  if (code === undefined || !writeErrors.has(code)) return cause;
  return new InvalidFileError(path, `cannot be written: ${cause.message}`, { cause });
}
