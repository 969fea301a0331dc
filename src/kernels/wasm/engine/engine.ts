/**
 * An engine: memory for a program's weights, scratch and state, generated code, and threads that run plans of calls.
 *
 * It works in Node and in pages, without importing Node's modules. Where memory can be shared (Node, and pages that are
 * cross-origin isolated), `threads` workers do all the work and the caller's thread never blocks, so it may be a page's main
 * thread. Elsewhere plans run on the caller's thread, with turns for the event loop; use a Web Worker there.
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
  /** Bytes that the program will need, to make one memory of the right kind at once. */
  readonly bytes: number;
  readonly threads: number;
  /** Whether memory is shared with threads. Default: whether threads are available. */
  readonly isShared?: boolean;
  /** Whether addresses have 64 bits. Default: if `bytes` requires it. */
  readonly isWide?: boolean;
}

/** Short arrays outside the engine's memory, each with its copy in it. */
type Literals = Map<ArrayBufferView, Uint8Array>;

/** Most bytes of an array outside the memory that is copied as a literal, such as a constant position. */
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
  /** All modules so far, in table order. */
  readonly #modules: CodeModule[] = [];
  #local: LocalThread | null;
  #team: WorkerTeam | null;
  /** Resolves when threads that could not be used have ended. */
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

  /** Allocates zeroed bytes. UnsupportedError when the memory cannot grow further. */
  allocate(byteLength: number): Uint8Array {
    this.#checkUsable();
    const { memory, isShared } = this.#memory;
    let start = this.#allocator.take(byteLength);
    if (start === null) {
      // Growing an unshared memory would detach the views of it.
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

  /** Does nothing: WebAssembly cannot return memory to the system. */
  discard(): void {}

  /** Makes a plan of calls whose arrays are in this memory; short arrays elsewhere that they read are copied now. */
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

  /**
   * Sets the plan's steps for other sizes, or makes a new plan where a step then has other phases; null when there is no room.
   */
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

  /** Ends the threads and releases the memory, whose arrays must not be used any more. */
  async dispose(): Promise<void> {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    const team = this.#team;
    // The finalizer of forgotten programs would keep the team alive, and with it its errors, whose stacks keep whoever disposed
    // of the engine.
    this.#team = null;
    await team?.dispose();
    await this.#ended;
    releaseMemory(this.#memory);
  }

  /** Throws if the engine was disposed: another engine may use the memory by now. */
  #checkUsable(): void {
    if (this.#isDisposed) throw new UnsupportedError("the program was disposed of");
  }

  #release(address: number): void {
    if (!this.#isDisposed) this.#allocator.free(address);
  }

  #placement(scratch: Uint8Array, literals: Literals): Placement {
    const addressOf = (view: ArrayBufferView) => {
      // An empty array is never accessed, so its address does not matter: calls without scratch memory have one.
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

  /** The worker threads; null if plans run on the caller's thread, which is so from now on if threads cannot be started. */
  async #startedTeam(): Promise<WorkerTeam | null> {
    const team = this.#team;
    const problem = await team?.started;
    this.#checkUsable();
    // Another run may have handled it meanwhile.
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

  /** Runs a step immediately on the caller's thread, for an engine without worker threads. */
  runNow(step: WasmStep): void {
    const { address, phases } = this.#place([step]).placed;
    this.#local!.run({ address, phases, times: 0 });
    this.#release(address);
  }

  /** Returns a function that runs a step on the caller's thread, any number of times. */
  readyNow(step: WasmStep): () => void {
    const { address, phases } = this.#place([step]).placed;
    return () => this.#local!.run({ address, phases, times: 0 });
  }

  get byteLength(): number {
    return this.#memory.memory.buffer.byteLength;
  }
}

/** How the step depends on the sizes; null if it must be remade for other sizes. */
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
