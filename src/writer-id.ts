/**
 * Ids of writers of files, unique among all machines and containers that share a volume. The name of a temporary file
 * contains its writer's id, so that others can tell whether the writer still runs.
 */
import { createHash, randomBytes } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";

/** Form of ids in file names, such as "3f2a9c01-123-45678-9a1b2c3d4e5f". */
export const WRITER_ID = "[0-9a-f]+-\\d+-\\d+-[0-9a-f]{12}";

/** The boot of a machine and its process namespace, within which process numbers are unique. */
interface Place {
  /** Hash of both; "0" where the system does not tell. */
  readonly hash: string;
  /** When this process started, in ticks of the machine's clock; "0" where the system does not tell. */
  readonly started: string;
}

const unknown: Place = { hash: "0", started: "0" };
let place: Place | null = null;

/** Only Linux tells when another process started; elsewhere, a number may have passed to a later process. */
function placeOfProcess(): Place {
  try {
    // /proc of another namespace lists other processes under the same numbers.
    if (readlinkSync("/proc/self") !== String(process.pid)) return unknown;
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const facts = [boot, readlinkSync("/proc/self/ns/pid"), readlinkSync("/proc/self/ns/time")].join();
    const started = startOf(process.pid);
    return started === null ? unknown : { hash: createHash("sha256").update(facts).digest("hex").slice(0, 8), started };
  } catch {
    return unknown;
  }
}

/** Start time of a process, the 22nd field of its stat; null where the system does not tell. */
function startOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The second field is a name in parentheses, which may contain any character.
    return /^\d+$/.exec(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "")?.[0] ?? null;
  } catch {
    return null;
  }
}

/** Makes an id of machine and namespace, process number, start of the process, and random bytes. */
export function newWriterId(): string {
  place ??= placeOfProcess();
  return [place.hash, process.pid, place.started, randomBytes(6).toString("hex")].join("-");
}

/** Whether the process of an id still runs; null where that cannot be told, such as on another machine. */
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
