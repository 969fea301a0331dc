/**
 * Ids of writers of files, unique among all machines and containers that share a volume. The name of a temporary file has the id
 * of its writer, so that others can tell whether the writer still runs.
 */
import { createHash, randomBytes } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";

/** The form of ids in names of files, such as "3f2a9c01-123-45678-9a1b2c3d4e5f". */
export const WRITER_ID = "[0-9a-f]+-\\d+-\\d+-[0-9a-f]{12}";

/** The boot of a machine and its namespace of processes: process numbers mean something within the two alone. */
interface Place {
  /** "0" where the system does not tell. */
  readonly hash: string;
  /** When this process started, in ticks of the machine's clock; "0" where the system does not tell. */
  readonly started: string;
}

const unknown: Place = { hash: "0", started: "0" };
let place: Place | null = null;

/** On Linux. Other systems do not tell when another process started, so that a number may be that of a later process. */
function placeOfProcess(): Place {
  try {
    // The /proc of another namespace has other processes under the same numbers.
    if (readlinkSync("/proc/self") !== String(process.pid)) return unknown;
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const facts = [boot, readlinkSync("/proc/self/ns/pid"), readlinkSync("/proc/self/ns/time")].join();
    const started = startOf(process.pid);
    return started === null ? unknown : { hash: createHash("sha256").update(facts).digest("hex").slice(0, 8), started };
  } catch {
    return unknown;
  }
}

/** When a process started, the 22nd field of its stat; null where the system does not tell. */
function startOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The second field is a name in parentheses, which may have any character.
    return /^\d+$/.exec(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "")?.[0] ?? null;
  } catch {
    return null;
  }
}

/** A new id, of the machine and namespace, the process number, the start of the process, and random bytes. */
export function newWriterId(): string {
  place ??= placeOfProcess();
  return [place.hash, process.pid, place.started, randomBytes(6).toString("hex")].join("-");
}

/** Whether the process of an id still runs; null where that cannot be told, such as for another machine or container. */
export function isRunning(id: string): boolean | null {
  place ??= placeOfProcess();
  const [hash, pid, started] = id.split("-");
  if (place === unknown || hash !== place.hash) return null;
  try {
    process.kill(Number(pid), 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
  }
  const now = startOf(Number(pid));
  return now === null ? null : now === started;
}
