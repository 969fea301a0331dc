/** Checks limits of address space (ulimit -v) in advance, since V8 aborts the process when a thread cannot reserve enough. */
import { nodeBuiltin } from "../../../node-builtin.ts";

/** Address space of a thread: 674 MB in Node 20 on x64, most of it for code. */
const THREAD_BYTES = 704 * 2 ** 20;
/** Address space that V8 needs to compile and run anything. */
const SPARE_BYTES = 2 ** 28;

/** Whether V8 would soon abort the process for lack of address space. */
export function isShortOfAddresses(): boolean {
  return addressesLeft() < SPARE_BYTES;
}

/** Why this process has no address space for so many more threads; null if it has, or has no limit. */
export function lackOfAddresses(threads: number): string | null {
  const left = addressesLeft();
  if (left >= threads * THREAD_BYTES) return null;
  return (
    `${threads} threads need ${(threads * THREAD_BYTES) / 2 ** 20} MB of addresses and ${Math.floor(left / 2 ** 20)} are left; ` +
    "raise the limit (ulimit -v)"
  );
}

/** Address space in bytes that this process may still reserve; Infinity without a limit, or if Linux does not report one. */
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
