/** Programs too large for this engine, told from the first bytes of their files; on WebAssembly as in pages. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { exportProgram } from "../api/export-program.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { UnsupportedError } from "../errors.ts";
import { openFile } from "../node-file.ts";
import { STATE_MEMORY } from "../program/program.ts";
import { readProgram } from "../program/read.ts";
import { saveProgram } from "../program/save.ts";
import { HeadCheck } from "./head-check.ts";

vi.hoisted(() => {
  process.env.LOWBIT_BACKEND = "wasm";
});

const folder = await temporaryFolder();
const files = { small: join(folder, "small.pte"), large: join(folder, "large.pte") };
const stateBytes = 2 ** 33;

beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  const model = await loadCheckpoint(folder);
  await exportProgram(model, files.small, { target: "executorch", maxContextLen: 64 });
  await model.close();
  const file = await openFile(files.small);
  const program = await readProgram(file);
  const methods = program.methods.map((method) => ({
    ...method,
    memorySizes: method.memorySizes.map((bytes, memory) => (memory === STATE_MEMORY ? stateBytes : bytes)),
  }));
  await saveProgram({ ...program, methods }, files.large);
  await file.close();
}, 60_000);

/** Gives a check a file in parts, with time between, until it refuses it; null when it does not. */
async function feed(path: string, totalBytes?: number): Promise<{ error: Error; bytes: number } | null> {
  const bytes = await readFile(path);
  let refusal: Error | null = null;
  const check = new HeadCheck("http://host/model.pte", totalBytes ?? bytes.length, (error) => {
    refusal = error;
  });
  for (let at = 0; at < bytes.length; at += 500) {
    check.take(bytes.subarray(at, at + 500));
    await new Promise((resolve) => setImmediate(resolve));
    if (refusal) return { error: refusal, bytes: at + 500 };
  }
  return null;
}

describe("the check of a program's head", () => {
  it("lets a program pass that fits, with and without a known size", async () => {
    expect(await feed(files.small)).toBeNull();
    expect(await feed(files.small, 0)).toBeNull();
  });

  it("says before the end of the file how much a program needs", async () => {
    const refused = await feed(files.large);
    expect(refused?.error).toBeInstanceOf(UnsupportedError);
    expect(refused?.bytes).toBeLessThan((await readFile(files.large)).length);
    const needed = Number(/needs (\d+) bytes/.exec(refused!.error.message)?.[1]);
    expect(needed).toBeGreaterThan(stateBytes);
  });
});
