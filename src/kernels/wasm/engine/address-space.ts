/** Limits of addresses (ulimit -v): V8 ends the process where a thread of it finds too few, so that they are counted before. */
import { nodeBuiltin } from "../../../node-builtin.ts";

/** What a thread of Node 20 takes: 674 MB on x64, most of it for code. */
const THREAD_BYTES = 704 * 2 ** 20;
/** What V8 must find to compile and to run anything. */
const SPARE_BYTES = 2 ** 28;

/** Whether V8 would end the process for want of addresses before long. */
export function isShortOfAddresses(): boolean {
  return addressesLeft() < SPARE_BYTES;
}

/** Says why this process has no addresses for so many threads more; null where it has, or none are counted. */
export function lackOfAddresses(threads: number): string | null {
  const left = addressesLeft();
  if (left >= threads * THREAD_BYTES) return null;
  return (
    `${threads} threads need ${(threads * THREAD_BYTES) / 2 ** 20} MB of addresses and ${Math.floor(left / 2 ** 20)} are left; ` +
    "raise the limit (ulimit -v)"
  );
}

/** Bytes of addresses that this process may still take; infinite without a limit, and where Linux does not tell. */
function addressesLeft(): number {
  const files = nodeBuiltin<typeof import("node:fs")>("node:fs");
  try {
    const limit = /^Max address space +(\d+)/m.exec(files!.readFileSync("/proc/self/limits", "latin1"));
    const used = /^VmSize:\s+(\d+)/m.exec(files!.readFileSync("/proc/self/status", "latin1"));
    return limit && used ? Number(limit[1]) - 1024 * Number(used[1]) : Number.POSITIVE_INFINITY;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
