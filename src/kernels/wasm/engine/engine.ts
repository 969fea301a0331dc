/**
 * An engine: memory for a program's weights, scratch and state, generated code, and threads that run plans of calls.
 *
 * The same in Node and in a page; nothing here imports modules of Node. Where memory can be shared (Node, and pages that
 * are cross-origin isolated), `threads` workers do all the work and the caller's thread never waits, so it may be a page's
 * main thread. Elsewhere the plan runs on the caller's thread, with turns for the event loop; run it in a Web Worker.
 */
import { UnsupportedError } from "../../../errors.ts";
import { takeTurn } from "../../../event-loop.ts";
import { warn } from "../../../log.ts";
import { bytesOf } from "../../../tensor.ts";
import { pointsOf, type SizeRange, type Sizes } from "../../affine.ts";
import type { CallPlan, EncodedCall, KernelMemory, SizedCalls } from "../../contract.ts";
import type { Placement, WasmStep } from "../kernel-code.ts";
import { affineSteps, type SetStep } from "./affine-steps.ts";
import { Allocator } from "./allocator.ts";
import { type CodeModule, CodeTable } from "./code-table.ts";
import { type EngineMemory, growMemory, needsWide, releaseMemory, takeMemory } from "./engine-memory.ts";
import { LocalThread } from "./local-thread.ts";
import { HEAP_START, type PlacedPlan, record, THREADS_MAX, words } from "./runner.ts";
import { StepPlan } from "./step-plan.ts";
import type { WasmModule } from "./web-assembly.ts";
import { WorkerTeam } from "./worker-team.ts";
import { hasThreads } from "./workers.ts";

export interface EngineOptions {
  /** What the program will need, so that one memory of the right kind is made at once. */
  readonly bytes: number;
  readonly threads: number;
  /** Default: whether this place has threads. */
  readonly isShared?: boolean;
  /** 64-bit addresses. Default: when `bytes` needs them. */
  readonly isWide?: boolean;
}

/** Copies of short arrays elsewhere. */
type Literals = Map<ArrayBufferView, Uint8Array>;

/** Most bytes of an array that holds what a call was given as numbers, such as a position that the program knows. */
const LITERAL_BYTES_MAX = 64;

export class WasmEngine implements KernelMemory {
  readonly holdsConstants = true;
  readonly threads: number;
  readonly abort: Int32Array;
  readonly #memory: EngineMemory;
  readonly #buffers = new WeakSet<object>();
  readonly #allocator: Allocator;
  readonly #code: CodeTable;
  readonly #runner: WasmModule;
  /** All code so far, in the order of the table. */
  readonly #modules: CodeModule[] = [];
  #local: LocalThread | null;
  #team: WorkerTeam | null;
  /** When threads that could not be used have ended. */
  #ended: Promise<void> | undefined;
  #dirtyEnd: number;
  #isDisposed = false;

  constructor({ bytes, threads, isShared = hasThreads(), isWide = needsWide(bytes) }: EngineOptions) {
    this.#memory = takeMemory(bytes + HEAP_START, { isWide, isShared });
    const { memory, cleanFrom } = this.#memory;
    this.#buffers.add(memory.buffer);
    this.#dirtyEnd = cleanFrom;
    new Uint8Array(memory.buffer, 0, HEAP_START).fill(0);
    this.#allocator = new Allocator(HEAP_START, memory.buffer.byteLength);
    this.#code = new CodeTable(this.#memory);
    this.threads = isShared ? Math.min(threads, THREADS_MAX) : 1;
    this.abort = new Int32Array(memory.buffer, words.abort, 1);
    this.#runner = this.#code.runner();
    this.#local = isShared ? null : new LocalThread(this.#memory, this.#runner);
    this.#team = isShared ? new WorkerTeam(this.#memory, this.#runner, this.threads) : null;
  }

  /** Zeroed bytes of the memory. UnsupportedError when it has no more. */
  allocate(byteLength: number): Uint8Array {
    this.#checkUsable();
    const { memory, isShared } = this.#memory;
    let start = this.#allocator.take(byteLength);
    if (start === null) {
      // Growth takes an unshared buffer away from the views on it.
      if (!isShared)
        throw new UnsupportedError(
          `the program has no room for ${byteLength} bytes more: its memory of ${this.byteLength} bytes cannot grow ` +
            "where memory is not shared; dispose of sessions that are not used, or isolate the page",
        );
      growMemory(this.#memory, this.#allocator.missing(byteLength));
      this.#buffers.add(memory.buffer);
      this.#allocator.extend(memory.buffer.byteLength);
      start = this.#allocator.take(byteLength)!;
    }
    const bytes = new Uint8Array(memory.buffer, start, byteLength);
    if (start < this.#dirtyEnd) bytes.fill(0);
    this.#dirtyEnd = Math.max(this.#dirtyEnd, start + byteLength);
    return bytes;
  }

  free(bytes: Uint8Array): void {
    this.#release(bytes.byteOffset);
  }

  addressOf(bytes: Uint8Array): bigint {
    return BigInt(bytes.byteOffset);
  }

  /** WebAssembly gives nothing back. */
  discard(): void {}

  /** A plan of calls whose arrays are in this memory; of short ones elsewhere that they read, copies, made now. */
  planCalls(calls: readonly EncodedCall[], _threads?: number, sized?: SizedCalls): CallPlan {
    this.#checkUsable();
    const literals: Literals = new Map();
    const prepare = (call: EncodedCall | null): WasmStep | null => {
      if (call && call.target !== "wasm")
        throw new UnsupportedError(`a WebAssembly plan has no place for ${call.target} calls`);
      return call?.prepare(this.#placement(call.scratch, literals)) ?? null;
    };
    const at = (index: number, sizes: Sizes) => prepare(sized!.at(index, sizes));
    const steps = calls.map((call) => prepare(call)!);
    const setters = sized && steps.map((step, index) => affineStepOf(sized.range, index, step, at));
    let plan = this.#place(steps);
    return {
      run: (abort, nanoseconds) => this.#run(plan.placed, abort, nanoseconds),
      ...(setters && {
        resize: (sizes) => {
          const resized = this.#resize(plan, setters, (index) => at(index, sizes), sizes);
          plan = resized ?? plan;
          return resized !== null;
        },
      }),
      dispose: () => {
        for (const { byteOffset } of literals.values()) this.#release(byteOffset);
        this.#release(plan.placed.address);
      },
    };
  }

  /** The plan with its steps at other sizes, or one in its stead where a step has other phases then; null for no room. */
  #resize(
    plan: StepPlan,
    setters: readonly (SetStep | null)[],
    at: (index: number) => WasmStep | null,
    sizes: Sizes,
  ): StepPlan | null {
    this.#checkUsable();
    const made = new Map<number, WasmStep>();
    for (const [index, set] of setters.entries()) {
      const step = set ? undefined : at(index);
      if (step === null) return null;
      if (step) made.set(index, step);
    }
    this.#loadCode([...made.values()]);
    if (![...made].every(([index, step]) => plan.fits(index, step))) {
      const steps = setters.map((_, index) => made.get(index) ?? at(index));
      if (!steps.every((step) => step !== null)) return null;
      this.#release(plan.placed.address);
      return this.#place(steps);
    }
    for (const [index, step] of made) plan.setStep(index, step);
    for (const set of setters) set?.(plan, sizes);
    plan.finish();
    return plan;
  }

  /** Ends the threads and gives the memory back: arrays of it must not be used any more. */
  async dispose(): Promise<void> {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    const team = this.#team;
    // Its errors hold, by their stacks, who disposed of the engine, and what frees forgotten programs holds the engine.
    this.#team = null;
    await team?.dispose();
    await this.#ended;
    releaseMemory(this.#memory);
  }

  /** The memory may be another engine's by now. */
  #checkUsable(): void {
    if (this.#isDisposed) throw new UnsupportedError("the program was disposed of");
  }

  #release(address: number): void {
    if (!this.#isDisposed) this.#allocator.free(address);
  }

  #placement(scratch: Uint8Array, literals: Literals): Placement {
    const addressOf = (view: ArrayBufferView) => {
      // Nothing of it is read or written, wherever it is: a call that needs no scratch is given none.
      if (view.byteLength === 0) return 0;
      if (!this.#buffers.has(view.buffer)) throw new UnsupportedError("an array of the call is in another memory");
      return view.byteOffset;
    };
    const read = (view: ArrayBufferView) => {
      if (view.byteLength > LITERAL_BYTES_MAX || this.#buffers.has(view.buffer)) return addressOf(view);
      const literal = literals.get(view) ?? this.allocate(view.byteLength);
      literal.set(bytesOf(view));
      literals.set(view, literal);
      return literal.byteOffset;
    };
    return {
      read,
      write: addressOf,
      pages: ({ pages }) => addressOf(pages),
      states: ({ states, nextStates }) => ({ now: addressOf(states), next: addressOf(nextStates) }),
      scratch: addressOf(scratch),
      threads: this.threads,
    };
  }

  #loadCode(steps: readonly WasmStep[]): void {
    const module = this.#code.extend(steps.flatMap(({ phases }) => phases.map(({ code }) => code)));
    if (!module) return;
    this.#modules.push(module);
    (this.#team ?? this.#local!).load(module);
  }

  /** The threads; null where the caller's runs plans, from now on also where threads cannot be started. */
  async #startedTeam(): Promise<WorkerTeam | null> {
    const team = this.#team;
    const problem = await team?.started;
    this.#checkUsable();
    // Another run may have been here meanwhile.
    if (!problem || !this.#team) return this.#team;
    this.#team = null;
    this.#ended = team!.dispose();
    this.#local = new LocalThread(this.#memory, this.#runner);
    for (const module of this.#modules) this.#local.load(module);
    warn(`${problem.message}; the model runs on one thread`);
    return null;
  }

  #place(steps: readonly WasmStep[]): StepPlan {
    this.#loadCode(steps);
    const allocate = (byteLength: number) => this.allocate(byteLength);
    return new StepPlan(steps, { allocate, indexOf: (code) => this.#code.indexOf(code) });
  }

  async #run(plan: PlacedPlan, abort: Int32Array, nanoseconds?: Float64Array): Promise<void> {
    this.#checkUsable();
    const timed = { ...plan, times: nanoseconds ? plan.times : 0 };
    const team = await this.#startedTeam();
    if (team) await team.run(timed);
    else await this.#runLocally(timed, abort);
    if (!nanoseconds) return;
    const times = new Float64Array(this.#memory.memory.buffer, plan.times, nanoseconds.length);
    for (let i = 0; i < times.length; i++) nanoseconds[i]! += 1e6 * times[i]!;
    times.fill(0);
  }

  async #runLocally({ address, phases, times }: PlacedPlan, abort: Int32Array): Promise<void> {
    for (let i = 0; i < phases && abort[0] === 0; i++) {
      this.#local!.run({ address: address + record.bytes * i, phases: 1, times });
      await takeTurn();
      this.#checkUsable();
    }
  }

  /** Runs a step at once on the caller's thread; for an engine without threads of its own. */
  runNow(step: WasmStep): void {
    const { address, phases } = this.#place([step]).placed;
    this.#local!.run({ address, phases, times: 0 });
    this.#release(address);
  }

  /** Makes a step ready that runs at once on the caller's thread, as often as it is called for. */
  readyNow(step: WasmStep): () => void {
    const { address, phases } = this.#place([step]).placed;
    return () => this.#local!.run({ address, phases, times: 0 });
  }

  get byteLength(): number {
    return this.#memory.memory.buffer.byteLength;
  }
}

/** Null where the step is to be made again for other sizes. */
function affineStepOf(
  range: SizeRange,
  index: number,
  first: WasmStep,
  at: (index: number, sizes: Sizes) => WasmStep | null,
): SetStep | null {
  const others = pointsOf(range)
    .slice(1)
    .map((sizes) => at(index, sizes));
  return others.every((step) => step !== null) ? affineSteps(range, index, [first, ...others]) : null;
}
