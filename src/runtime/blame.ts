/** Errors that the contents of a program's file cause, with the file's name in front. */
import { InvalidArgumentError, InvalidFileError, LowbitError, UnsupportedError } from "../errors.ts";

/**
 * What to throw for an error of work that a file decides: it names the file, and RangeErrors, of memory, are
 * UnsupportedErrors. The reason of an abort stays as it is.
 */
export function blamed(file: string, signal: AbortSignal | undefined, error: unknown): unknown {
  if (signal?.aborted && error === signal.reason) return error;
  if (error instanceof RangeError)
    return new UnsupportedError(`${file}: what it asks for cannot be had here: ${error.message}`, { cause: error });
  if (error instanceof LowbitError && !error.message.startsWith(file)) error.message = `${file}: ${error.message}`;
  return error;
}

/** As `blamed`, for inputs that were made as the file asks for them: what is wrong with them is the file's fault, too. */
export function blamedForInputs(file: string, signal: AbortSignal | undefined, error: unknown): unknown {
  const cause = blamed(file, signal, error);
  if (!(cause instanceof InvalidArgumentError)) return cause;
  return new InvalidFileError(file, cause.message.slice(file.length).replace(/^: /, ""), { cause });
}
