/** Text files of options. */
import { readFile } from "node:fs/promises";
import { InvalidFileError } from "../errors.ts";

/** The text of a file of UTF-8; InvalidFileError for what cannot be read, which `what` names, and for other bytes. */
export async function readTextFile(path: string, what?: string): Promise<string> {
  const bytes = await readFile(path).catch((cause: NodeJS.ErrnoException) => {
    const problem = cause.code === "ENOENT" ? "no such file" : cause.message;
    throw new InvalidFileError(path, what === undefined ? problem : `${what} cannot be read: ${problem}`, { cause });
  });
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new InvalidFileError(path, "expected UTF-8 text", { cause });
  }
}
