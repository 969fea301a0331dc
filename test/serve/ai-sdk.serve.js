/** The provider of the AI SDK in this process, with versions 6 and 7 of the package `ai`. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import * as sdk from "ai";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { calls, openProgram } from "./ai-sdk-calls.js";
import { run } from "./process.js";

globalThis.AI_SDK_LOG_WARNINGS = false;

describe("ai 6 over lowbit/ai-sdk", () => {
  let program;
  beforeAll(async () => {
    program = await openProgram(inject("program"));
  });
  afterAll(() => program.llm.dispose());

  it.each(Object.entries(calls))("%s", (_, call) => call(sdk, program.settings, program.llm));
});

/** A Node that version 7 takes: this one, or that of the package `node-linux-…`; null without one. */
function newNode() {
  if (Number.parseInt(process.versions.node, 10) >= 22) return process.execPath;
  const file = new URL(`node_modules/node-${process.platform}-${process.arch}/bin/node`, import.meta.url);
  return existsSync(file) ? fileURLToPath(file) : null;
}

describe("ai 7 over lowbit/ai-sdk", () => {
  const node = newNode();
  const reason = node ? "" : ` (skipped: it wants Node 22, and this is ${process.version})`;

  it.skipIf(!node)(`does the same${reason}`, async () => {
    const script = fileURLToPath(new URL("ai-sdk-calls.js", import.meta.url));
    const { code, output } = await run(node, [script, inject("program")]);
    const passed = Object.keys(calls).map((name) => `passed: ${name}\n`);
    expect(output).toBe(passed.join(""));
    expect(code).toBe(0);
  });
});
