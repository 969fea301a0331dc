/** Programs too large for this engine, told from the first bytes of their files; on WebAssembly as in pages. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { exportProgram } from "../api/compile-model.ts";
import { loadCheckpoint } from "../checkpoint/model.ts";
import { UnsupportedError } from "../errors.ts";
import { HeadCheck } from "./head-check.ts";

vi.hoisted(() => {
  process.env.LOWBIT_BACKEND = "wasm";
});

const folder = await temporaryFolder();
const files = { small: join(folder, "small.pte"), large: join(folder, "large.pte") };

beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  const config = JSON.parse(await readFile(join(folder, "config.json"), "utf8"));
  await writeFile(join(folder, "config.json"), JSON.stringify({ ...config, max_position_embeddings: 2 ** 28 }));
  for (const [path, maxContextLen] of [[files.small, 64] as const, [files.large, 2 ** 28] as const]) {
    const model = await loadCheckpoint(folder);
    await exportProgram(model, path, { target: "executorch", maxContextLen });
    await model.close();
  }
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
    // Two sessions of keys and values at 2^28 positions.
    expect(needed).toBeGreaterThan(2 * 2 ** 28);
  });
});
