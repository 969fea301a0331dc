/** The worker threads of an engine: they get code and commands, and are awaited without blocking. */
import { UnsupportedError } from "../../../errors.ts";
import { lackOfAddresses } from "./address-space.ts";
import type { CodeModule } from "./code-table.ts";
import type { EngineMemory } from "./engine-memory.ts";
import type { PlacedPlan } from "./runner.ts";
import { HEAP_START, words } from "./runner.ts";
import type { WasmModule } from "./web-assembly.ts";
import { WORKER_LISTENS, type WorkerReply } from "./worker-program.ts";
import { type EngineWorker, startWorker, type WorkerEvents } from "./workers.ts";

/** Milliseconds that workers wait for a command before they enter their event loops: longer than a token takes. */
const LINGER_MS = 50;
const WORD = { command: words.command / 4, kind: words.commandKind / 4, states: words.states / 4 } as const;
const LISTEN = 0;
const RUN = 1;

interface Waiter {
  readonly kind: WorkerReply["kind"];
  /** Number of replies still to come. */
  left: number;
  resolve(): void;
  reject(error: Error): void;
}

export class WorkerTeam {
  readonly #memory: EngineMemory;
  readonly #workers: EngineWorker[] = [];
  readonly #waiters: Waiter[] = [];
  #failure: Error | null = null;
  /**
   * Resolves with null when all workers run, or with the reason why they do not: the system may have no more threads, or the
   * page forbid workers.
   */
  readonly started: Promise<Error | null>;
  /** Resolves when the workers have loaded all code so far. */
  #ready: Promise<void>;

  constructor(memory: EngineMemory, runner: WasmModule, threads: number) {
    this.#memory = memory;
    const events = {
      onReply: (reply: WorkerReply) => this.#take(reply),
      onFailure: (problem: string) => this.#fail(problem),
    };
    this.#startWorkers(threads, events);
    this.#workers.forEach((worker, thread) => {
      const facts = {
        thread,
        threads,
        commandWord: WORD.command,
        kindWord: WORD.kind,
        stateWord: WORD.states + thread,
        isWide: memory.isWide,
        lingerMs: LINGER_MS,
      };
      worker.post({ kind: "start", memory: memory.memory, runner, facts });
    });
    this.#ready = this.#replies("ready", threads);
    this.started = this.#ready.then(
      () => null,
      (error: Error) => error,
    );
  }

  /** Sends code to all workers, in the order of the calls. */
  load({ module, names }: CodeModule): void {
    this.#ready = this.#ready.then(() => {
      this.#command(LISTEN);
      for (const worker of this.#workers) worker.post({ kind: "load", module, names });
      return this.#replies("loaded", this.#workers.length);
    });
    this.#ready.catch(() => {});
  }

  async run({ address, phases, times }: PlacedPlan): Promise<void> {
    await this.#ready;
    const control = this.#control();
    const place = (at: number, value: number) => {
      control[at] = value | 0;
      control[at + 1] = Math.floor(value / 2 ** 32);
    };
    place(WORD.kind + 1, address);
    control[WORD.kind + 3] = phases;
    place(WORD.kind + 4, times);
    const done = this.#replies("done", 1);
    this.#command(RUN);
    this.#workers.forEach((worker, thread) => {
      if (Atomics.load(control, WORD.states + thread) === WORKER_LISTENS) worker.post({ kind: "run" });
    });
    await done;
  }

  /** Terminates the workers, even during a run. */
  async dispose(): Promise<void> {
    this.#fail("the program was disposed of");
    await Promise.all(this.#workers.map((worker) => worker.terminate()));
  }

  /** Starts the workers, as far as the system allows. */
  #startWorkers(threads: number, events: WorkerEvents): void {
    const lack = lackOfAddresses(threads);
    if (lack !== null) {
      this.#fail(lack);
      return;
    }
    try {
      while (this.#workers.length < threads) this.#workers.push(startWorker(events));
    } catch (error) {
      const found = `expected ${threads} but this system gave ${this.#workers.length}`;
      this.#fail(`${found}: ${(error as Error).message}`);
    }
  }

  #control(): Int32Array {
    return new Int32Array(this.#memory.memory.buffer, 0, HEAP_START / 4);
  }

  #command(kind: number): void {
    const control = this.#control();
    control[WORD.kind] = kind;
    Atomics.add(control, WORD.command, 1);
    Atomics.notify(control, WORD.command);
  }

  /** Resolves when `left` replies of a kind have come; until then the workers keep the process alive. */
  #replies(kind: WorkerReply["kind"], left: number): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#failure) {
        reject(this.#failure);
        return;
      }
      this.#keepAlive(true);
      this.#waiters.push({ kind, left, resolve, reject });
    });
  }

  #take(reply: WorkerReply): void {
    if (reply.kind === "failed") {
      this.#fail(reply.problem);
      return;
    }
    const index = this.#waiters.findIndex(({ kind }) => kind === reply.kind);
    const waiter = this.#waiters[index];
    if (!waiter || --waiter.left > 0) return;
    this.#waiters.splice(index, 1);
    if (this.#waiters.length === 0) this.#keepAlive(false);
    waiter.resolve();
  }

  /** Fails all that is pending, since a lost thread never completes it. */
  #fail(problem: string): void {
    this.#failure ??= new UnsupportedError(`WebAssembly threads: ${problem}`);
    for (const waiter of this.#waiters.splice(0)) waiter.reject(this.#failure);
    this.#keepAlive(false);
  }

  #keepAlive(isNeeded: boolean): void {
    for (const worker of this.#workers) worker.keepAlive(isNeeded);
  }
}
