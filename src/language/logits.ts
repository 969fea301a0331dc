/** Checks the logits and hidden states that a method gives, since the program's file may say anything. */
import { InvalidFileError } from "../errors.ts";
import type { Tensor } from "../tensor.ts";

/** What a method's logits must be. */
export interface ExpectedLogits {
  /** File of the program, for messages. */
  readonly file: string;
  /** Name of the method, for messages. */
  readonly method: string;
  readonly vocabularySize: number;
  /** Number of tokens; null for any number but zero. */
  readonly rows: number | null;
}

/** Values [tokens, V] of logits in float32. InvalidFileError for another type or number of values. */
export function logitsOf(logits: Tensor | undefined, expected: ExpectedLogits): Float32Array {
  return valuesOf(logits, "logits", expected.vocabularySize, expected);
}

/** Values [tokens, size] of hidden states in float32. InvalidFileError for another type or number of values. */
export function hiddenOf(
  hidden: Tensor | undefined,
  size: number,
  expected: Omit<ExpectedLogits, "vocabularySize">,
): Float32Array {
  return valuesOf(hidden, "hidden states", size, expected);
}

function valuesOf(
  found: Tensor | undefined,
  what: string,
  size: number,
  { file, method, rows }: Omit<ExpectedLogits, "vocabularySize">,
): Float32Array {
  const { length = 0 } = found?.data ?? {};
  const isWhole = rows === null ? length > 0 && length % size === 0 : length === rows * size;
  if (found?.dtype === "f32" && isWhole) return found.data as Float32Array;
  const shown = found ? `${found.dtype} [${found.shape}]` : "nothing";
  throw new InvalidFileError(
    file,
    `method ${method}: expected ${what} f32 [.., ${rows ?? "rows"}, ${size}] but found ${shown}`,
  );
}
