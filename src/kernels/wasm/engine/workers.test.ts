/** Where threads are to be had, and when those of a page have ended. */
import { setImmediate } from "node:timers/promises";
import { afterEach, expect, it, vi } from "vitest";
import { serveEngine, type WorkerReply, type WorkerRequest } from "./worker-program.ts";
import { hasThreads, startWorker, wasmThreads } from "./workers.ts";

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  Reflect.deleteProperty(process, "permission");
});

it.each([true, false])("under Node's permission model threads follow its word on workers: %s", (isAllowed) => {
  const has = (scope: string) => scope === "worker" && isAllowed;
  Object.defineProperty(process, "permission", { value: { has }, configurable: true });
  expect(hasThreads()).toBe(isAllowed);
  if (!isAllowed) expect(wasmThreads()).toBe(1);
});

it("without it Node has threads", () => {
  expect(hasThreads()).toBe(true);
});

it("a page's worker has ended when it says that it leaves the memory alone, or has failed", async () => {
  const told: string[] = [];
  const workers: FakeWorker[] = [];
  class FakeWorker {
    onmessage: ((event: { data: WorkerReply }) => void) | null = null;
    onerror: ((event: object) => void) | null = null;
    constructor() {
      workers.push(this);
    }
    postMessage = (request: WorkerRequest) => told.push(request.kind);
    terminate = () => told.push("terminate");
  }
  vi.stubGlobal("Worker", FakeWorker);
  vi.spyOn(process, "getBuiltinModule").mockReturnValue(undefined as never);
  const [running, failed] = [0, 1].map(() => startWorker({ onReply() {}, onFailure() {} }));
  const ending = running!.terminate();
  await setImmediate();
  expect(told).toEqual(["end"]);
  workers[0]!.onmessage!({ data: { kind: "done" } });
  await setImmediate();
  expect(told).toEqual(["end"]);
  workers[0]!.onmessage!({ data: { kind: "ended" } });
  await ending;
  expect(told).toEqual(["end", "terminate"]);
  workers[1]!.onerror!({});
  await failed!.terminate();
  expect(told).toEqual(["end", "terminate", "terminate"]);
});

it("a worker says so from its event loop", () => {
  const replies: string[] = [];
  let take: (request: WorkerRequest) => void = () => {};
  serveEngine({ post: ({ kind }) => replies.push(kind), listen: (listener) => (take = listener) });
  take({ kind: "end" });
  expect(replies).toEqual(["ended"]);
});
