/** Threads of an engine: worker_threads in Node, Web Workers in a page. */
import { UnsupportedError } from "../../../errors.ts";
import { nodeBuiltin } from "../../../node-builtin.ts";
import { quotaThreads } from "./cpu-quota.ts";
import type { WorkerReply, WorkerRequest } from "./worker-program.ts";
import { WORKER_TEXT } from "./worker-text.ts";

/** A worker thread, as the engine sees it. */
export interface EngineWorker {
  post(request: WorkerRequest): void;
  /** Whether it keeps the process alive, while a reply of it is awaited. */
  keepAlive(isNeeded: boolean): void;
  /** Resolves when it has ended. */
  terminate(): Promise<unknown>;
}

export interface WorkerEvents {
  onReply(reply: WorkerReply): void;
  onFailure(problem: string): void;
}

interface NodeWorker {
  postMessage(message: unknown): void;
  on(event: string, listener: (value: never) => void): void;
  ref(): void;
  unref(): void;
  terminate(): Promise<number>;
}

interface NodeThreads {
  readonly Worker: new (code: string, options: object) => NodeWorker;
}

interface WebWorker {
  postMessage(message: unknown): void;
  onmessage: ((event: { data: WorkerReply }) => void) | null;
  onerror: ((event: { message?: string }) => void) | null;
  terminate(): void;
}

interface Page {
  readonly Worker?: new (url: string) => WebWorker;
  readonly Blob: new (parts: string[], options: { type: string }) => object;
  readonly URL: { createObjectURL(blob: object): string; revokeObjectURL(url: string): void };
}

/**
 * Whether threads with shared memory are available: a page must be cross-origin isolated, and Node's permission model must
 * allow workers.
 */
export function hasThreads(): boolean {
  if (typeof SharedArrayBuffer === "undefined") return false;
  if (nodeBuiltin("node:worker_threads")) {
    const { permission } = process as { permission?: { has(scope: string): boolean } };
    return permission?.has("worker") ?? true;
  }
  const page = globalThis as unknown as { Worker?: unknown; crossOriginIsolated?: boolean };
  return page.Worker !== undefined && page.crossOriginIsolated === true;
}

/**
 * Default number of threads where only the number of CPUs is known: all if they are few, half of many, and no more than a
 * container may use.
 */
export function wasmThreads(): number {
  if (!hasThreads()) return 1;
  const system = nodeBuiltin<{ availableParallelism(): number }>("node:os");
  const page = globalThis as unknown as { navigator?: { hardwareConcurrency?: number } };
  const cores = system?.availableParallelism() ?? page.navigator?.hardwareConcurrency ?? 1;
  const worthHaving = cores <= 4 ? cores : Math.min(8, Math.ceil(cores / 2));
  return Math.min(worthHaving, quotaThreads());
}

/** Starts a worker that runs `serveEngine`. UnsupportedError where there are none. */
export function startWorker(events: WorkerEvents): EngineWorker {
  const threads = nodeBuiltin<NodeThreads>("node:worker_threads");
  return threads ? startNodeWorker(threads, events) : startWebWorker(events);
}

function startNodeWorker({ Worker }: NodeThreads, events: WorkerEvents): EngineWorker {
  const port =
    'const { parentPort } = require("node:worker_threads");' +
    'const port = { post: (m) => parentPort.postMessage(m), listen: (take) => parentPort.on("message", take) };';
  const worker = new Worker(`${port}${WORKER_TEXT}serveEngine(port);`, { eval: true, execArgv: [], name: "lowbit" });
  worker.on("message", events.onReply);
  worker.on("error", (error: Error) => events.onFailure(error.message));
  worker.on("exit", (code: number) => events.onFailure(`a thread has ended with ${code}`));
  let isEnding = false;
  return {
    post: (request) => worker.postMessage(request),
    keepAlive(isNeeded) {
      if (isNeeded || isEnding) worker.ref();
      else worker.unref();
    },
    terminate() {
      // Without this, Node would exit while only workers that do not keep it alive are awaited.
      isEnding = true;
      worker.ref();
      return worker.terminate();
    },
  };
}

function startWebWorker(events: WorkerEvents): EngineWorker {
  const { Worker, Blob, URL } = globalThis as unknown as Page;
  if (!Worker) throw new UnsupportedError("threads: this place has no workers");
  const port = "const port = { post: (m) => postMessage(m), listen: (take) => { onmessage = (e) => take(e.data); } };";
  const url = URL.createObjectURL(new Blob([`${port}${WORKER_TEXT}serveEngine(port);`], { type: "text/javascript" }));
  const worker = new Worker(url);
  URL.revokeObjectURL(url);
  let hasFailed = false;
  worker.onmessage = ({ data }) => events.onReply(data);
  worker.onerror = ({ message = "cannot be started; a page's policy must allow worker-src blob:" }) => {
    hasFailed = true;
    events.onFailure(message);
  };
  return {
    post: (request) => worker.postMessage(request),
    keepAlive() {},
    async terminate() {
      if (!hasFailed) await endOf(worker);
      worker.terminate();
    },
  };
}

/** Milliseconds to wait for a page's worker to end: much longer than it waits for a command before it listens. */
const END_MS = 1000;

/**
 * Resolves when a page's worker no longer waits for commands. A page cannot await the termination of a worker, and one that
 * waits in memory lives on for a while: it would be woken by the next engine that reuses the memory.
 */
function endOf(worker: WebWorker): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, END_MS);
    const end = () => {
      clearTimeout(timer);
      resolve();
    };
    worker.onmessage = ({ data }) => {
      if (data.kind === "ended") end();
    };
    worker.onerror = end;
    worker.postMessage({ kind: "end" } satisfies WorkerRequest);
  });
}
