import { afterEach, beforeEach, expect, it, vi } from "vitest";

let lines: string[];
beforeEach(() => {
  lines = [];
  vi.spyOn(console, "error").mockImplementation((line) => void lines.push(String(line)));
  vi.resetModules();
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

it.each<[string, string, string[]]>([
  ["info", "", ["lowbit: a", "lowbit: b"]],
  ["", "INFO", ["lowbit: a", "lowbit: b"]],
  ["", "WARNING", []],
  ["debug", "", ['lowbit: environment variable LOWBIT_LOG: expected info but found "debug"']],
])("LOWBIT_LOG=%s TORCH_CPP_LOG_LEVEL=%s", async (own, torch, expected) => {
  vi.stubEnv("LOWBIT_LOG", own);
  vi.stubEnv("TORCH_CPP_LOG_LEVEL", torch);
  const { logInfo } = await import("./log.ts");
  for (const line of ["a", "b"]) logInfo(() => line);
  expect(lines).toEqual(expected);
});
