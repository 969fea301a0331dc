/** Logits that are not numbers, by which no token can be drawn: the fault of a caller or of a program's file. */
import { checkInstance } from "../arguments.ts";
import { InvalidFileError } from "../errors.ts";

/** What is wrong with logits, for a message; null for numbers that are finite or, for some tokens, -Infinity. */
export function logitsProblem(logits: Float32Array): string | null {
  checkInstance("logits", logits, Float32Array, "a Float32Array");
  const id = logits.findIndex((logit) => Number.isNaN(logit) || logit === Number.POSITIVE_INFINITY);
  if (id >= 0) return `logits: expected finite numbers or -Infinity but found ${logits[id]} at id ${id}`;
  if (logits.some((logit) => logit !== Number.NEGATIVE_INFINITY)) return null;
  return `logits: all ${logits.length} are -Infinity, no token can follow`;
}

/** The result of `work` on a program's logits; InvalidFileError naming the program's `file` where it fails because of them. */
export function ofLogits<R>(file: string | undefined, logits: Float32Array, work: () => R): R {
  try {
    return work();
  } catch (cause) {
    const problem = file === undefined ? null : logitsProblem(logits);
    throw problem === null ? cause : new InvalidFileError(file!, problem, { cause });
  }
}
