/** Errors that the contents of a program's file cause, with the file's name in front. */
import { LowbitError, UnsupportedError } from "../errors.ts";

/** Does work that a file decides. Its errors name the file; RangeErrors, of memory, become UnsupportedErrors. */
export async function blame<R>(file: string, signal: AbortSignal | undefined, work: () => Promise<R> | R): Promise<R> {
  try {
    return await work();
  } catch (error) {
    if (signal?.aborted && error === signal.reason) throw error;
    if (error instanceof RangeError)
      throw new UnsupportedError(`${file}: what it asks for cannot be had here: ${error.message}`, { cause: error });
    if (error instanceof LowbitError && !error.message.startsWith(file)) error.message = `${file}: ${error.message}`;
    throw error;
  }
}
