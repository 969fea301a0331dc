/** Vectors and scores behind a channel: those of the model without one. */

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { webModules } from "../../test/support/web-modules.ts";
import { exportProgram } from "../api/export-program.ts";
import { loadProgram } from "../api/load-program.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { ContextLengthError, InvalidArgumentError, UnsupportedError } from "../errors.ts";
import { Channel } from "./channel.ts";
import { openModel } from "./client.ts";
import type { Port } from "./protocol.ts";
import { serveModel } from "./serve.ts";

const closings: (() => void)[] = [];
afterAll(() => {
  for (const close of closings) close();
});

it("makes embeddings in a worker as without one", async () => {
  const path = join(await temporaryFolder(), "bge.pte");
  const checkpoint = await loadCheckpoint(new URL("../../models/tiny-bge", import.meta.url).pathname);
  await exportProgram(checkpoint, path);
  await checkpoint.close();
  const local = await loadProgram(path);
  const { port1, port2 } = new MessageChannel();
  serveModel(port2 as unknown as Port);
  closings.push(() => port1.close());
  const file = new Blob([await readFile(path)]);
  const model = await openModel(new Channel(port1 as unknown as Port), () => port1.close(), file, {
    modules: webModules,
  });
  expect(model.facts.makes).toBe("embeddings");
  const texts = ["What is the capital of France?", "Paris", local.embedding!.encode("A bread.")];
  for (const options of [{}, { dimensions: 8 }])
    expect(await model.embed(texts, options)).toEqual(await local.embed(texts, options));
  expect(await model.embed([])).toEqual([]);
  await expect(model.embed(["x ".repeat(10_000)])).rejects.toThrow(ContextLengthError);
  await expect(model.embed(["x"], { dimensions: 0 })).rejects.toThrow(InvalidArgumentError);
  await expect(model.rank("x", ["y"])).rejects.toThrow(UnsupportedError);
  await expect(model.embed(["x"], { signal: AbortSignal.abort(new Error("mine")) })).rejects.toThrow("mine");
  await local.dispose();
});
