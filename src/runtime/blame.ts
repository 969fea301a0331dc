/** Errors that the contents of a program's file cause, with the file's name in front. */
import { InvalidArgumentError, InvalidFileError, LowbitError, UnsupportedError } from "../errors.ts";

/**
 * What to throw for an error of work that a file decides: it names the file, and RangeErrors, of memory, are
 * UnsupportedErrors, which have the file as their `file`. The reason of an abort stays as it is.
 */
export function blamed(file: string, signal: AbortSignal | undefined, error: unknown): unknown {
  if (signal?.aborted && error === signal.reason) return error;
  if (error instanceof RangeError)
    return new UnsupportedError(`${file}: what it asks for cannot be had here: ${error.message}`, {
      file,
      cause: error,
    });
  if (error instanceof UnsupportedError && error.file === null) {
    const named = error.message.startsWith(file) ? error.message : `${file}: ${error.message}`;
    return new UnsupportedError(named, { file, cause: error });
  }
  if (error instanceof LowbitError && !error.message.startsWith(file)) error.message = `${file}: ${error.message}`;
  return error;
}

/**
 * What to throw for an error of a call whose inputs are made here as the file says what they are: inputs that do not fit, or
 * a method that is not there, are the file's fault.
 */
export function blamedForInputs(file: string, signal: AbortSignal | undefined, error: unknown): unknown {
  if ((signal?.aborted && error === signal.reason) || !(error instanceof InvalidArgumentError))
    return blamed(file, signal, error);
  const named = `${file}: `;
  const problem = error.message.startsWith(named) ? error.message.slice(named.length) : error.message;
  return new InvalidFileError(file, problem, { cause: error });
}
