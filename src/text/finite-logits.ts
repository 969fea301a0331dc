/** Checks for logits that no token can be drawn from, the fault of a caller or of a program's file. */
import { checkInstance } from "../arguments.ts";
import { InvalidFileError } from "../errors.ts";

/** A message about invalid logits; null if all are finite or -Infinity, and not all -Infinity. */
export function logitsProblem(logits: Float32Array): string | null {
  checkInstance("logits", logits, Float32Array, "a Float32Array");
  const id = logits.findIndex((logit) => Number.isNaN(logit) || logit === Number.POSITIVE_INFINITY);
  if (id >= 0) return `logits: expected finite numbers or -Infinity but found ${logits[id]} at id ${id}`;
  if (logits.some((logit) => logit !== Number.NEGATIVE_INFINITY)) return null;
  return `logits: all ${logits.length} are -Infinity, no token can follow`;
}

/** Runs `work` on a program's logits; if it fails because of them, throws InvalidFileError naming the program's `file`. */
export function ofLogits<R>(file: string | undefined, logits: Float32Array, work: () => R): R {
  try {
    return work();
  } catch (cause) {
    const problem = file === undefined ? null : logitsProblem(logits);
    throw problem === null ? cause : new InvalidFileError(file!, problem, { cause });
  }
}
