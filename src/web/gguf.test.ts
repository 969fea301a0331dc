/** GGUF files behind a channel, as pages load them: the same text as of the program that Node makes. */

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { webModules } from "../../test/support/web-modules.ts";
import { loadCompiled } from "../api/load-compiled.ts";
import { saveGguf } from "../api/save-gguf.ts";
import { memorySource } from "../byte-source.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { InvalidFileError, UnsupportedError } from "../errors.ts";
import { Channel } from "./channel.ts";
import { type LoadModelOptions, openModel, type WebModel } from "./client.ts";
import { openGguf } from "./gguf.ts";
import type { Port } from "./protocol.ts";
import { serveModel } from "./serve.ts";

const folder = await temporaryFolder();
const path = join(await temporaryFolder(), "tiny.gguf");
const options = { temperature: 0, maxTokens: 12, ignoreEos: true };
const closings: (() => void)[] = [];
let bytes: Uint8Array<ArrayBuffer>;

function open(source: Blob, loading: LoadModelOptions = {}): Promise<WebModel> {
  const { port1, port2 } = new MessageChannel();
  serveModel(port2 as unknown as Port);
  const close = () => port1.close();
  closings.push(close);
  return openModel(new Channel(port1 as unknown as Port), close, source, { ...loading, modules: webModules });
}

async function textOf(stream: AsyncIterable<string>): Promise<string> {
  let text = "";
  for await (const piece of stream) text += piece;
  return text;
}

/** The program of a file of a name, which messages between ports do not keep in Node. */
function programOf(name: string, bytes: Uint8Array) {
  const file = { source: memorySource(name, bytes), isCached: null, origin: null, async forget() {} };
  return openGguf(file, { signal: new AbortController().signal, onProgress() {} });
}

beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  const model = await loadCheckpoint(folder);
  await saveGguf(model, path);
  await model.close();
  bytes = new Uint8Array(await readFile(path));
});
afterAll(() => {
  for (const close of closings) close();
});

describe("a GGUF in a page", () => {
  it("answers as the program that Node makes of it, whatever its name", async () => {
    const checkpoint = await loadCheckpoint(path);
    const local = await loadCompiled(checkpoint);
    const expected = await textOf(local.generate("Hello", options));
    await local.dispose();
    await checkpoint.close();
    const progress: number[] = [];
    const model = await open(new Blob([bytes]), { onProgress: (done) => progress.push(done) });
    expect(await textOf(model.generate("Hello", options))).toBe(expected);
    expect(model.facts.isCached).toBe(null);
    expect(progress.length).toBeGreaterThan(0);
  });

  it("is refused in one of several files, cut, and of no known architecture", async () => {
    const part = programOf("http://x/tiny-00001-of-00002.gguf", bytes);
    await expect(part).rejects.toThrow(UnsupportedError);
    await expect(part).rejects.toThrow(/tiny-00001-of-00002.gguf: is one of 2 files.*lowbit quantize/);
    const cut = programOf("cut.gguf", bytes.subarray(0, bytes.length / 2));
    await expect(cut).rejects.toThrow(InvalidFileError);
    await expect(cut).rejects.toThrow(/^cut\.gguf: /);
    await expect(open(new Blob([bytes.subarray(0, 10)]))).rejects.toThrow(InvalidFileError);
    const other = bytes.slice();
    const at = Buffer.from(other).indexOf("llama", Buffer.from(other).indexOf("general.architecture"));
    other.set(Buffer.from("lllll"), at);
    await expect(programOf("other.gguf", other)).rejects.toThrow(/lllll/);
  });

  it("stops being loaded when the load is aborted", async () => {
    const controller = new AbortController();
    const reason = new Error("mine");
    const onProgress = () => controller.abort(reason);
    await expect(open(new Blob([bytes]), { signal: controller.signal, onProgress })).rejects.toBe(reason);
  });
});
