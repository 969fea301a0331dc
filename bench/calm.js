/**
 * Measures the load of the rest of the machine. Figures from a shared machine count only if it was calm: engines whose threads
 * wait for each other by spinning lose many times more than others by a busy core.
 */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { multiplyAdds } from "./peak.js";

const TICKS_PER_SECOND = 100;
/** Cores that others may use in a calm moment. */
const CALM_CORES_MAX = 0.15;
const LOOK_MS = 200;

/** CPU seconds of a process, all its threads and those of its children that ended, so far, on Linux. @param {number} pid */
export function processSeconds(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1).split(" ");
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS_PER_SECOND;
}

/** CPU seconds of the whole machine and of some processes so far; null where the system does not tell. */
function cpuSeconds(pids) {
  try {
    const [user, nice, system, , , irq, softirq, steal] = readFileSync("/proc/stat", "utf8")
      .split("\n", 1)[0]
      .split(/\s+/)
      .slice(1)
      .map(Number);
    const all = (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND;
    return pids.map(processSeconds).reduce((others, seconds) => others - seconds, all);
  } catch {
    return null;
  }
}

/**
 * Runs `work` and tells how many cores others kept busy meanwhile (0 where the system does not tell).
 * @template R @param {readonly number[]} pids Processes of our own. @param {() => Promise<R>} work
 */
export async function watched(pids, work) {
  const before = cpuSeconds(pids);
  const start = performance.now();
  const result = await work();
  const seconds = (performance.now() - start) / 1000;
  const after = cpuSeconds(pids);
  const others = before === null || after === null ? 0 : Math.max(0, after - before) / seconds;
  return { result, others };
}

/** Part of the best rate so far that the matrix or vector units must reach in a calm moment. */
const UNITS_MIN = 0.85;
let bestRate = 0;

/**
 * Rate of 8-bit multiply-adds that the units of all `threads` threads give now, of the best seen by this process. Where
 * other guests of the host work on the other hardware threads of our cores, this falls to less than half, and kernels
 * on matrix units slow down by more than vector kernels do; the system itself tells nothing of it.
 */
export function unitsShare(threads) {
  const rate = multiplyAdds("i8", threads) ?? 1;
  bestRate = Math.max(bestRate, rate);
  return rate / bestRate;
}

/** Waits until the machine is calm, at most so long. @param {number} seconds @param {number} threads */
export async function calm(seconds, threads = availableParallelism()) {
  const end = performance.now() + 1000 * seconds;
  while (performance.now() < end) {
    const { others } = await watched([process.pid], () => sleep(LOOK_MS));
    if (others < CALM_CORES_MAX && unitsShare(threads) >= UNITS_MIN) return;
  }
}
