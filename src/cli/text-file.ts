/** Text files of options. */
import { InvalidFileError } from "../index.ts";
import { readFileWhole } from "../tools/index.ts";

/** Reads a UTF-8 file. InvalidFileError, which names `what`, for a file that cannot be read, and for other bytes. */
export async function readTextFile(path: string, what?: string): Promise<string> {
  const bytes = await readFileWhole(path).catch((cause: Error) => {
    if (what === undefined) throw cause;
    const problem = cause.message.replace(`${path}: `, "");
    throw new InvalidFileError(path, `${what} cannot be read: ${problem}`, { cause });
  });
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new InvalidFileError(path, "expected UTF-8 text", { cause });
  }
}
