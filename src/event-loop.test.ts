/** A macrotask turn lets timers and other messages in, with setImmediate and without it. */
import { afterEach, expect, it, vi } from "vitest";

afterEach(() => vi.unstubAllGlobals());

it.each([true, false])("lets timers fire (setImmediate present: %s)", async (present) => {
  vi.resetModules();
  if (!present) vi.stubGlobal("setImmediate", undefined);
  const { nextMacrotask } = await import("./event-loop.ts");
  let fired = false;
  setTimeout(() => {
    fired = true;
  }, 1);
  for (let turn = 0; turn < 100_000 && !fired; turn++) await nextMacrotask();
  expect(fired).toBe(true);
});

it("gives a turn between many pieces of work that are shorter than a turn", async () => {
  const { takeTurn } = await import("./event-loop.ts");
  let fired = false;
  setTimeout(() => {
    fired = true;
  }, 1);
  const end = performance.now() + 10_000;
  while (!fired && performance.now() < end) await takeTurn();
  expect(fired).toBe(true);
});

it("throws the reason of an aborted signal at the turn", async () => {
  const { takeTurn } = await import("./event-loop.ts");
  const signal = AbortSignal.abort(new Error("enough"));
  const work = async () => {
    for (;;) await takeTurn(signal);
  };
  await expect(work()).rejects.toThrow("enough");
});
