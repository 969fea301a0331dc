/** Logits that no token can be chosen by: the fault of who gives them, a caller or the file of a program. */
import { checkInstance } from "../arguments.ts";
import { InvalidFileError } from "../errors.ts";

/** What is wrong with logits; null where they are finite, or -Infinity for some. */
export function logitsProblem(logits: Float32Array): string | null {
  checkInstance("logits", logits, Float32Array, "a Float32Array");
  const id = logits.findIndex((logit) => Number.isNaN(logit) || logit === Number.POSITIVE_INFINITY);
  if (id >= 0) return `logits: expected finite numbers or -Infinity but found ${logits[id]} at id ${id}`;
  if (logits.some((logit) => logit !== Number.NEGATIVE_INFINITY)) return null;
  return `logits: all ${logits.length} are -Infinity, no token can follow`;
}

/** What `work` makes of a program's logits; InvalidFileError naming `file` where it fails because of them. */
export function ofLogits<R>(file: string | undefined, logits: Float32Array, work: () => R): R {
  try {
    return work();
  } catch (cause) {
    const problem = file === undefined ? null : logitsProblem(logits);
    throw problem === null ? cause : new InvalidFileError(file!, problem, { cause });
  }
}
