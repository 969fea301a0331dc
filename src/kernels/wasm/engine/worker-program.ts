/**
 * The program of an engine's worker threads. It imports only types, since `npm run worker-texts` turns it into the script that
 * threads are started from.
 *
 * After each command, a worker waits for the next command number for a moment, and then in its event loop, where it also
 * receives messages; it publishes which, so that the engine knows whether to post one.
 */
import type { WasmInstance, WasmMemory, WasmModule } from "./web-assembly.ts";

/** Messages to a worker. `run` only wakes it: the command is in memory. `end` is the last message. */
export type WorkerRequest =
  | { readonly kind: "start"; readonly memory: WasmMemory; readonly runner: WasmModule; readonly facts: WorkerFacts }
  | { readonly kind: "load"; readonly module: WasmModule; readonly names: readonly string[] }
  | { readonly kind: "run" }
  | { readonly kind: "end" };

/**
 * Messages from a worker. Thread 0 sends `done` when all threads are done; after `ended` the worker no longer touches the
 * memory.
 */
export type WorkerReply =
  | { readonly kind: "ready" | "loaded" | "done" | "ended" }
  | { readonly kind: "failed"; readonly problem: string };

/** Facts about a worker and its memory; indices are those of 32-bit words. */
interface WorkerFacts {
  readonly thread: number;
  readonly threads: number;
  readonly commandWord: number;
  /** Kind of the command. 0: receive messages; 1: run. */
  readonly kindWord: number;
  /**
   * Index of the worker's state. After the command's kind come its operands: plan address (two words), number of phases,
   * address of times (two words).
   */
  readonly stateWord: number;
  readonly isWide: boolean;
  /** Milliseconds that a worker waits for a command before it enters its event loop. */
  readonly lingerMs: number;
}

/** The worker's end of the channel. */
export interface WorkerPort {
  post(reply: WorkerReply): void;
  listen(take: (request: WorkerRequest) => void): void;
}

/** State of a worker that waits in its event loop. */
export const WORKER_LISTENS = 1;

export function serveEngine(port: WorkerPort): void {
  const api = (globalThis as unknown as { WebAssembly: Record<string, new (...args: unknown[]) => never> }).WebAssembly;
  const table = new api.Table!({ element: "anyfunc", initial: 0 }) as {
    grow(n: number): number;
    set(i: number, f: unknown): void;
  };
  let memory: WasmMemory;
  let facts: WorkerFacts;
  let words: Int32Array;
  let run: (...args: (number | bigint)[]) => number;
  let seen = 0;

  const instantiate = (module: WasmModule): WasmInstance["exports"] => {
    const env = { memory, table, now: () => performance.now() };
    return (new api.Instance!(module, { env }) as WasmInstance).exports;
  };
  const address = (word: number): number | bigint => {
    const low = words[word]! >>> 0;
    return facts.isWide ? BigInt(low) + (BigInt(words[word + 1]!) << 32n) : low;
  };
  const execute = () => {
    const at = facts.kindWord + 1;
    run(address(at), words[at + 2]!, facts.thread, facts.threads, address(at + 3));
    if (facts.thread === 0) port.post({ kind: "done" });
  };
  /** Runs commands until none has come for a while. */
  const work = () => {
    Atomics.store(words, facts.stateWord, 0);
    for (;;) {
      const command = Atomics.load(words, facts.commandWord);
      if (command !== seen) {
        seen = command;
        if (words[facts.kindWord] === 1) execute();
        else if (Atomics.store(words, facts.stateWord, 1) === 1) return;
      } else if (Atomics.wait(words, facts.commandWord, seen, facts.lingerMs) === "timed-out") {
        Atomics.store(words, facts.stateWord, 1);
        if (Atomics.load(words, facts.commandWord) === seen) return;
        Atomics.store(words, facts.stateWord, 0);
      }
    }
  };
  const take = (request: WorkerRequest) => {
    if (request.kind === "start") {
      ({ memory, facts } = request);
      words = new Int32Array(memory.buffer, 0, 256);
      run = instantiate(request.runner).run!;
      Atomics.store(words, facts.stateWord, 1);
      port.post({ kind: "ready" });
    } else if (request.kind === "load") {
      const exports = instantiate(request.module);
      const first = table.grow(request.names.length);
      request.names.forEach((name, i) => {
        table.set(first + i, exports[name]);
      });
      port.post({ kind: "loaded" });
    } else if (request.kind === "end") port.post({ kind: "ended" });
    else work();
  };
  port.listen((request) => {
    try {
      take(request);
    } catch (error) {
      port.post({ kind: "failed", problem: String(error) });
    }
  });
}
