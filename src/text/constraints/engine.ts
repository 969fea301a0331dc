/**
 * The engine that computes token masks: xgrammar, loaded when it is first needed. In Node it runs on a thread of its own, which
 * can be terminated, since nothing bounds the time that it takes for a grammar; in web pages, which have no other work, it runs
 * on the model's thread.
 */
import type { Worker } from "node:worker_threads";
import type * as Xgrammar from "@mlc-ai/web-xgrammar";
import { deferred } from "../../deferred.ts";
import { UnsupportedError } from "../../errors.ts";
import { hasThreads } from "../../kernels/wasm/engine/workers.ts";
import { warn } from "../../log.ts";
import { nodeBuiltin } from "../../node-builtin.ts";
import { loadScript, type MaskReply, type MaskRequest, type MaskVocabulary, startMasks } from "./mask-program.ts";
import { MASK_TEXT } from "./mask-text.ts";

/** An engine for one vocabulary. It takes one request at a time. */
export interface Engine {
  /** Whether it has ended by itself, as a thread does that runs out of memory. */
  readonly hasEnded: boolean;
  ask(request: MaskRequest): Promise<MaskReply>;
  /** Ends the engine, even during a request. */
  end(): void;
}

/** Starts an engine for a vocabulary. UnsupportedError where the package is missing, fails or cannot reserve address space. */
export async function startEngine(vocabulary: MaskVocabulary): Promise<Engine> {
  try {
    return (await startThread(vocabulary)) ?? (await startHere(vocabulary));
  } catch (cause) {
    const problem = isOutOfMemory(cause)
      ? "need 10 GB of addresses for a memory of WebAssembly, and fewer are left; raise the limit (ulimit -v), or start Node with --disable-wasm-trap-handler"
      : "need the package @mlc-ai/web-xgrammar beside lowbit";
    throw new UnsupportedError(`constraints: ${problem}`, { cause });
  }
}

/** Whether V8 could not reserve address space for a WebAssembly memory, which takes far more of it than bytes in use. */
function isOutOfMemory(error: unknown): boolean {
  return error instanceof Error && error.message.includes("Out of memory");
}

async function startHere(vocabulary: MaskVocabulary): Promise<Engine> {
  const answer = await startMasks(await loadPackage(), vocabulary);
  return { hasEnded: false, ask: answer, end() {} };
}

async function loadPackage(): Promise<typeof Xgrammar> {
  const inNode = packageInNode();
  if (inNode) return loadScript(inNode.require, inNode.file);
  await import("@mlc-ai/web-xgrammar");
  return (globalThis as unknown as { xgrammar: typeof Xgrammar }).xgrammar;
}

/** The package's file, and a `require` to load it with; null outside Node. */
function packageInNode(): { readonly require: NodeJS.Require; readonly file: string } | null {
  const module = nodeBuiltin<typeof import("node:module")>("node:module");
  if (!module) return null;
  const require = module.createRequire(import.meta.url);
  return { require, file: require.resolve("@mlc-ai/web-xgrammar") };
}

/** The thread's script: it reports that it is ready, then answers requests. */
const THREAD = `${MASK_TEXT}
const { parentPort, workerData } = require("node:worker_threads");
startMasks(loadScript(require, workerData.file), workerData.vocabulary).then((answer) => {
  parentPort.on("message", async (request) => parentPort.postMessage(await answer(request)));
  parentPort.postMessage("ready");
});`;

/** Starts an engine on a thread; null where there are no threads. */
async function startThread(vocabulary: MaskVocabulary): Promise<Engine | null> {
  const threads = nodeBuiltin<typeof import("node:worker_threads")>("node:worker_threads");
  const inNode = packageInNode();
  if (!threads || !inNode || !hasThreads()) return null;
  try {
    // The package's stderr is captured, since its errors repeat the text.
    const options = { eval: true, execArgv: [], stderr: true, name: "lowbit constraints" };
    const worker = new threads.Worker(THREAD, { ...options, workerData: { file: inNode.file, vocabulary } });
    return await engineOf(worker);
  } catch (error) {
    if (isOutOfMemory(error)) throw error;
    warn(`constraints: no thread can be started: ${(error as Error).message}; they are worked out on this one`);
    return null;
  }
}

/** The engine on a thread, once the thread is ready. */
async function engineOf(worker: Worker): Promise<Engine> {
  /** Result of the start or of the current request. */
  let waiting = deferred<MaskReply | "ready">();
  let hasEnded = false;
  worker.on("message", (reply: MaskReply | "ready") => waiting.resolve(reply));
  worker.on("error", (error) => waiting.reject(error));
  worker.on("exit", () => {
    hasEnded = true;
    waiting.reject(new UnsupportedError("constraint: the engine was ended"));
  });
  await waiting.promise;
  worker.unref();
  return {
    get hasEnded() {
      return hasEnded;
    },
    async ask(request) {
      waiting = deferred();
      // The thread keeps the process alive only while a request waits.
      worker.ref();
      worker.postMessage(request);
      try {
        return (await waiting.promise) as MaskReply;
      } finally {
        worker.unref();
      }
    },
    end: () => void worker.terminate(),
  };
}
