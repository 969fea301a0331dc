/** Collection of garbage when a test wants it. */
import { setImmediate } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Collects garbage until nothing more goes: finalizers free memory that a later collection finds. */
export async function collectGarbage(): Promise<void> {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as () => void;
  for (let i = 0; i < 4; i++) {
    gc();
    await setImmediate();
  }
}
