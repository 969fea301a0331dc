/** The limits of this machine, measured by loops of the native addon: bytes read and multiply-adds a second. */
import { nativeAddon } from "../dist/kernels/native/addon.js";
import { argumentNames, orderArguments } from "../dist/kernels/native/families.js";
import { kernelsOf, readBandwidth as readMemories, secondsOf } from "../dist/kernels/native/read-bandwidth.js";

/** Enough for clock speeds to settle, short enough for a shared machine. */
const MACS_PER_TILE = 1e9;
const RUNS = 3;

/** The addon, which everything here is about. */
export function requireAddon() {
  const addon = nativeAddon();
  if (!addon) throw new Error("the native addon is not built; run node scripts/build-native.js");
  return addon;
}

/** Bytes a second that `threads` threads read of memories. @param {Parameters<typeof readMemories>} given */
export function readBandwidth(...given) {
  const found = readMemories(...given);
  if (found === null) throw new Error("the native addon has no loop that reads memory here");
  return found;
}

/**
 * Multiply-adds a second on `threads` threads, the best of this CPU's ways; null where there is no loop for it.
 * @param {"i8" | "bf16" | "f32"} type @param {number} threads
 */
export function multiplyAdds(type, threads) {
  const addon = requireAddon();
  const tiles = 4 * threads;
  const call = orderArguments(argumentNames.measureMacs, { macs: MACS_PER_TILE, tiles });
  const rates = kernelsOf(addon, `measure_macs_${type}`).flatMap((kernel) =>
    Array.from({ length: RUNS }, () => {
      const seconds = secondsOf(addon, [{ kernel, ...call }], threads);
      return (MACS_PER_TILE * tiles) / seconds;
    }),
  );
  return rates.length > 0 ? Math.max(...rates) : null;
}
