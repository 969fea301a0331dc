/** Memory that a program asks for, whose sizes come from files. */
import { UnsupportedError } from "../errors.ts";
import { zeroedBytes } from "../kernels/plan.ts";

/** Zeroed bytes; UnsupportedError when this machine cannot give so many. */
export function allocate(what: string, byteLength: number): Uint8Array {
  try {
    return zeroedBytes(byteLength);
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw new UnsupportedError(
      `${what}: the program asks for ${byteLength} bytes, which cannot be had here; export it for a shorter context`,
      { cause },
    );
  }
}
