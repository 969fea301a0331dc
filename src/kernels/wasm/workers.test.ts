/** Where threads are to be had. */
import { afterEach, expect, it } from "vitest";
import { hasThreads, wasmThreads } from "./workers.ts";

afterEach(() => {
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
