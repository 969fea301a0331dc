/** What a method gives as logits, checked before it is believed: the file may say anything. */
import { InvalidFileError } from "../errors.ts";
import type { Tensor } from "../tensor.ts";

/** What is expected of a method's logits. */
export interface ExpectedLogits {
  /** File of the program, for messages. */
  readonly file: string;
  /** Name of the method, for messages. */
  readonly method: string;
  readonly vocabularySize: number;
  /** Rows; null where any number but zero will do. */
  readonly rows: number | null;
}

/** Values [rows, V] of logits in float32. InvalidFileError for another type or number of values. */
export function logitsOf(logits: Tensor | undefined, expected: ExpectedLogits): Float32Array {
  const { file, method, vocabularySize, rows } = expected;
  const { length = 0 } = logits?.data ?? {};
  const isWhole = rows === null ? length > 0 && length % vocabularySize === 0 : length === rows * vocabularySize;
  if (logits?.dtype === "f32" && isWhole) return logits.data as Float32Array;
  const found = logits ? `${logits.dtype} [${logits.shape}]` : "nothing";
  throw new InvalidFileError(
    file,
    `method ${method}: expected logits f32 [.., ${rows ?? "rows"}, ${vocabularySize}] but found ${found}`,
  );
}
