/**
 * The plan loop: every thread goes through the same phases, takes tiles until none are left, and waits for the others at a
 * barrier. Consecutive phases of one tile run on one thread without barriers between them, except in timed runs. Waiting
 * threads spin briefly, then sleep. The loop runs in WebAssembly from the first phase to the last.
 */

import type { FunctionCode } from "../assembler/expression.ts";
import {
  type Callable,
  call,
  callFor,
  callIndirect,
  drop,
  leave,
  select,
  when,
  whileDo,
  widen,
} from "../assembler/expression.ts";
import { f64, i32, int, long, memory, ptr, size } from "../assembler/instructions.ts";
import { defineFunction } from "../assembler/module.ts";
import { advance, elementAt, forRange } from "../generate/loops.ts";
import { kernelParams } from "../kernel-code.ts";

/** Addresses of words shared by threads, each in its own cache line. The first bytes of memory are unused. */
export const words = {
  arrivals: 64,
  generation: 128,
  sleepers: 192,
  /**
   * 1 when the last barrier saw an abort, so that all threads leave. It is written only at barriers: a delayed thread may read
   * it when the others are already at the next run's first barrier.
   */
  stop: 256,
  /** Set from outside to abort a run. */
  abort: 320,
  /** Number of the latest command. */
  command: 384,
  /** Kind of the command: see worker-program.ts. */
  commandKind: 448,
  /** Worker states, 4 bytes each. */
  states: 512,
  /** For each thread, 4 bytes: shift that shortens its spinning, after spinning was in vain. */
  patience: 768,
} as const;
export const THREADS_MAX = 64;
/** Address at which allocations begin. */
export const HEAP_START = 1024;

/**
 * Layout of a phase in a plan: table index of the function, number of tiles, index of the step for timing, number of directly
 * following one-tile phases if this has one tile, arguments; and the next tile to take.
 */
export const record = { code: 0, tiles: 4, step: 8, followers: 12, args: 16, nextTile: 64, bytes: 128 } as const;

/**
 * Iterations of the waiting loop before a thread sleeps: about 200 microseconds. A thread that had to sleep anyway, for example
 * because other processes use the cores, spins half as long the next time, down to an eighth; one that did not, twice as long
 * again. On busy cores, a shorter spin would be slightly faster, but on a host that takes cores away for moments, sleeping at
 * every phase after each of them is a third slower.
 */
const SPINS = 200_000;
const SHIFT_MAX = 3;

/** Imported function of the runner: the time in milliseconds. */
export const nowImport: Callable<Record<never, never>, "f64"> = { name: "now", params: {}, result: "f64" };

/** Addresses of a plan in memory. */
export interface PlacedPlan {
  readonly address: number;
  readonly phases: number;
  /** Address of an array of float64 milliseconds, one per step, or 0. */
  readonly times: number;
}

/** The functions of the runner's module; `run` is the entry. */
export function runnerFunctions(): FunctionCode[] {
  const arrive = arriveCode();
  const run = defineFunction(
    "run",
    { plan: "ptr", count: "i32", thread: "i32", threads: "i32", times: "ptr" },
    ({ plan, count, thread, threads, times }, scope) => {
      const turns = scope.local("i32", "turns");
      const tile = scope.local("i32", "tile");
      const tiles = scope.local("i32", "tiles");
      const code = scope.local("i32", "code");
      const args = scope.local("ptr", "args");
      const followers = scope.local("i32", "followers");
      const done = scope.local("i32", "done");
      const next = scope.local("ptr", "next");
      const isTimed = scope.local("i32", "is_timed");
      const slot = scope.local("ptr", "slot");
      const before = scope.local("f64", "before");
      const now = scope.local("f64", "now_ms");
      const take = tile.set(i32.atomic_rmw_add(plan, int(1), record.nextTile));
      const type = { params: kernelParams, result: null };
      const runTile = [
        code.set(i32.load(next, record.code)),
        args.set(ptr.load(next, record.args)),
        callIndirect(type, code, { args, tile, thread }),
      ];
      return [
        isTimed.set(i32.and(i32.eqz(thread), ptr.lt_u(size(0), times))),
        when(isTimed, [before.set(callFor(nowImport, {}))]),
        whileDo(i32.lt_u(done, count), [
          tiles.set(i32.load(plan, record.tiles)),
          followers.set(i32.load(plan, record.followers)),
          when(select(ptr.lt_u(size(0), times), int(1), i32.ge_u(followers, i32.sub(count, done))), [
            followers.set(int(0)),
          ]),
          take,
          next.set(plan),
          whileDo(i32.lt_u(tile, tiles), [
            runTile,
            forRange(turns, int(0), followers, [advance(next, record.bytes), runTile]),
            take,
          ]),
          call(arrive, { phase: plan, thread, threads }),
          when(isTimed, [
            now.set(callFor(nowImport, {})),
            slot.set(ptr.add(times, widen(i32.mul(i32.load(plan, record.step), int(8))))),
            f64.store(slot, f64.add(f64.load(slot), f64.sub(now, before))),
            before.set(now),
          ]),
          when(i32.load(size(words.stop)), [leave]),
          followers.set(i32.add(followers, int(1))),
          plan.set(elementAt(plan, followers, record.bytes)),
          done.set(i32.add(done, followers)),
        ]),
      ];
    },
  );
  return [run, arrive];
}

const arriveParams = { phase: "ptr", thread: "i32", threads: "i32" } as const;

/** The barrier after a phase. The last thread to arrive resets the phase for the next run and checks for an abort. */
function arriveCode(): FunctionCode<typeof arriveParams, null> {
  return defineFunction("arrive", arriveParams, ({ phase, thread, threads }, scope) => {
    const generation = scope.local("i32", "seen");
    const spins = scope.local("i32", "spins");
    const shift = scope.local("i32", "shift");
    const patience = elementAt(size(words.patience), thread, 4);
    const at = (address: number) => size(address);
    const isSame = () => i32.eq(i32.atomic_load(at(words.generation)), generation);
    const release = [
      i32.atomic_store(at(words.arrivals), int(0)),
      i32.atomic_store(phase, int(0), record.nextTile),
      i32.store(at(words.stop), i32.atomic_load(at(words.abort))),
      drop(i32.atomic_rmw_add(at(words.generation), int(1))),
      when(i32.atomic_load(at(words.sleepers)), [drop(memory.atomic_notify(at(words.generation), int(-1)))]),
    ];
    const wait = [
      shift.set(i32.load(patience)),
      spins.set(i32.shr_u(int(SPINS), shift)),
      whileDo(i32.and(isSame(), i32.ne(spins, int(0))), [spins.set(i32.sub(spins, int(1)))]),
      shift.set(select(isSame(), i32.add(shift, int(1)), i32.sub(shift, int(1)))),
      when(i32.gt_s(shift, int(SHIFT_MAX)), [shift.set(int(SHIFT_MAX))]),
      when(i32.lt_s(shift, int(0)), [shift.set(int(0))]),
      i32.store(patience, shift),
      when(isSame(), [
        drop(i32.atomic_rmw_add(at(words.sleepers), int(1))),
        whileDo(isSame(), [drop(memory.atomic_wait32(at(words.generation), generation, long(-1n)))]),
        drop(i32.atomic_rmw_sub(at(words.sleepers), int(1))),
      ]),
    ];
    return [
      generation.set(i32.atomic_load(at(words.generation))),
      when(i32.eq(i32.add(i32.atomic_rmw_add(at(words.arrivals), int(1)), int(1)), threads), release, wait),
    ];
  });
}
