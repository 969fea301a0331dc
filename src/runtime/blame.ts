/** Errors that a program's file causes, with the file's name in front. */
import { InvalidArgumentError, InvalidFileError, LowbitError, UnsupportedError } from "../errors.ts";

/**
 * The error to throw where the file is at fault: it names the file. RangeErrors (of memory) become UnsupportedErrors with
 * the file as `file`. The reason of an abort stays as it is.
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
 * The error to throw for a call whose inputs were made to fit what the file says: inputs that do not fit, or a missing
 * method, are the file's fault.
 */
export function blamedForInputs(file: string, signal: AbortSignal | undefined, error: unknown): unknown {
  if ((signal?.aborted && error === signal.reason) || !(error instanceof InvalidArgumentError))
    return blamed(file, signal, error);
  const named = `${file}: `;
  const problem = error.message.startsWith(named) ? error.message.slice(named.length) : error.message;
  return new InvalidFileError(file, problem, { cause: error });
}
