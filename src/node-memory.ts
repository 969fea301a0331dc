/** Memory of the machine that Node runs on. */
import { totalmem } from "node:os";

/** Bytes of memory of this machine or, where there is one with less, of the container that this process is in. */
export function totalMemory(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
}
