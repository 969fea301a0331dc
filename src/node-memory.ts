/** Memory of the machine, in Node. */
import { totalmem } from "node:os";

/** Bytes of memory of this machine, or of the container if it has less. */
export function totalMemory(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
}
