/** The client and the worker's half over a message channel: the same text as without, aborts, errors as their classes. */

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { webModules } from "../../test/support/web-modules.ts";
import { exportProgram } from "../api/export-program.ts";
import { loadProgram } from "../api/load-program.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { ContextLengthError, InvalidArgumentError, InvalidFileError, UnsupportedError } from "../errors.ts";
import { Channel } from "./channel.ts";
import { type LoadModelOptions, loadModel, openModel, type WebModel } from "./client.ts";
import type { Port, Reply, Request } from "./protocol.ts";
import { serveModel } from "./serve.ts";

const folder = await temporaryFolder();
const path = join(folder, "tiny.pte");
const options = { temperature: 0, maxTokens: 12, ignoreEos: true };
/** How long a test waits for the worker, on a machine that is busy. */
const PATIENCE = { timeout: 60_000 };
const closings: (() => void)[] = [];
let file: Blob;

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

beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  const model = await loadCheckpoint(folder);
  await exportProgram(model, path);
  await model.close();
  file = new Blob([await readFile(path)]);
});
afterAll(() => {
  for (const close of closings) close();
});

describe("a model behind a channel", () => {
  it("writes what it writes without one", async () => {
    const local = await loadProgram(path);
    const model = await open(file);
    const generation = model.generate("Hello", options);
    expect(await textOf(generation)).toBe(await textOf(local.generate("Hello", options)));
    expect(await generation.result).toMatchObject({ finishReason: "length", generatedTokens: 12 });
    const conversation = local.createConversation();
    for (const message of ["One", "Two"])
      expect(await textOf(model.chat(message, options))).toBe(await textOf(conversation.send(message, options)));
    await model.reset();
    conversation.reset();
    expect(await textOf(model.chat("Two", options))).toBe(await textOf(conversation.send("Two", options)));
    local.dispose();
  });

  it.each([
    [undefined, "Undefined"],
    [null, "Null"],
    [new ArrayBuffer(8), "ArrayBuffer"],
    [{}, "Object"],
    [" ", '" "'],
    ["http://[bad", '"http://\\[bad"'],
  ])("is not loaded from %s", async (source, found) => {
    const loading = open(source as Blob);
    await expect(loading).rejects.toThrow(InvalidArgumentError);
    await expect(loading).rejects.toThrow(new RegExp(`^source: expected an address.* but found ${found}$`));
  });

  it("is not loaded when who watches the load refuses it", async () => {
    const refusal = new RangeError("mine");
    const onProgress = vi.fn(() => {
      throw refusal;
    });
    await expect(open(file, { onProgress })).rejects.toBe(refusal);
    expect(onProgress).toHaveBeenCalledOnce();
  });

  it("answers once to an iteration, and takes no second", async () => {
    const model = await open(file);
    const answer = model.chat("Hello", options);
    await textOf(answer);
    const result = await answer.result;
    await expect(textOf(answer)).rejects.toThrow(/^generation: expected one iteration/);
    expect(await answer.result).toBe(result);
  });

  it("says how it runs", async () => {
    const model = await open(file);
    await textOf(model.generate("Hello", options));
    const { threads, memory, kernels } = await model.stats();
    expect(threads).toBeGreaterThan(0);
    expect(memory.constants).toBeGreaterThan(1000);
    expect(kernels.map(([operator]) => operator)).toContain("aten::linear.out");
    expect(model.facts).toMatchObject({ contextLength: 64, hasChatTemplate: true, isCached: null });
    expect(model.facts).toMatchObject({ canThink: false, takesTools: false });
  });

  it("stops for a signal and for an iteration that ends early, and can go on", async () => {
    const model = await open(file);
    const reason = new Error("enough");
    const controller = new AbortController();
    const stopped = textOf(model.generate("Hello", { ...options, maxTokens: 50, signal: controller.signal }));
    controller.abort(reason);
    await expect(stopped).rejects.toBe(reason);
    for await (const _ of model.generate("Hello", { ...options, maxTokens: 50 })) break;
    expect(await textOf(model.generate("Hello", options))).not.toBe("");
  });

  it("gives nothing after a stop, however much has come before it was looked at", async () => {
    const model = await open(file);
    const controller = new AbortController();
    const reason = new Error("enough");
    const pieces: string[] = [];
    const read = async () => {
      for await (const piece of model.generate("Hello", { ...options, signal: controller.signal })) {
        pieces.push(piece);
        // Meanwhile the others come.
        await model.stats();
        controller.abort(reason);
      }
    };
    await expect(read()).rejects.toBe(reason);
    expect(pieces).toHaveLength(1);
  });

  it("is not computed on in the worker once that has been told to stop", async () => {
    const replies: Reply[] = [];
    const port: Port = {
      onmessage: null,
      postMessage(message) {
        replies.push(message as Reply);
        if ((message as Reply).kind === "text") tell({ kind: "abort", id: 2 });
      },
    };
    const tell = (data: Request) => port.onmessage!({ data } as MessageEvent);
    const ended = (id: number) =>
      vi.waitUntil(
        () => replies.find((reply) => reply.id === id && (reply.kind === "end" || reply.kind === "error")),
        PATIENCE,
      );
    serveModel(port);
    tell({ kind: "load", source: file, threads: 1, modules: webModules, id: 1 });
    await ended(1);
    tell({ kind: "generate", prompt: "Hello", options: { ...options, maxTokens: 50 }, id: 2 });
    await ended(2);
    expect(replies.filter(({ id }) => id === 2).map(({ kind }) => kind)).toEqual(["text", "error"]);
  });

  it("names a file whose handle gives it no more", async () => {
    const replies: Reply[] = [];
    const port: Port = { onmessage: null, postMessage: (reply) => replies.push(reply as Reply) };
    const getFile = () => Promise.reject(new DOMException("not allowed", "NotAllowedError"));
    const source = { name: "mine.pte", getFile } as unknown as FileSystemFileHandle;
    serveModel(port);
    port.onmessage!({
      data: { kind: "load", source, threads: 1, modules: webModules, id: 1 } satisfies Request,
    } as MessageEvent);
    await vi.waitUntil(() => replies.length > 0, PATIENCE);
    const message = "mine.pte: cannot be read: not allowed";
    expect(replies).toEqual([{ kind: "error", id: 1, error: { name: "InvalidFileError", message, file: "mine.pte" } }]);
  });

  it("gives errors as their classes", async () => {
    await expect(open(new Blob([new Uint8Array(100)]))).rejects.toThrow(InvalidFileError);
    const model = await open(file);
    await expect(textOf(model.generate(Array(100).fill(1), options))).rejects.toThrow(ContextLengthError);
    const waiting = textOf(model.generate("Hello", options));
    model.dispose();
    await expect(waiting).rejects.toThrow(UnsupportedError);
    await expect(model.stats()).rejects.toThrow(UnsupportedError);
  });
});

it("a worker whose script does not come is an error that says so", async () => {
  const terminate = vi.fn();
  class Failing {
    terminate = terminate;
    onerror: ((event: object) => void) | null = null;
    postMessage() {
      this.onerror!({});
    }
  }
  vi.stubGlobal("Worker", Failing);
  await expect(loadModel(file)).rejects.toThrow(/the worker failed: cannot load worker-bundle.js/);
  expect(terminate).toHaveBeenCalledOnce();
  vi.unstubAllGlobals();
});

it("an aborted load ends although its worker never answers", async () => {
  const terminate = vi.fn();
  class Silent {
    terminate = terminate;
    postMessage() {}
  }
  vi.stubGlobal("Worker", Silent);
  const reason = new Error("enough");
  const controller = new AbortController();
  const loading = loadModel(file, { signal: controller.signal });
  controller.abort(reason);
  await expect(loading).rejects.toBe(reason);
  expect(terminate).toHaveBeenCalledOnce();
  vi.unstubAllGlobals();
});

it("a load that is aborted while its answer is on the way is an error too", async () => {
  const controller = new AbortController();
  const port: Port = {
    onmessage: null,
    postMessage(message) {
      const { id, kind } = message as Request;
      if (kind !== "load") return;
      controller.abort(new Error("too late"));
      port.onmessage!({ data: { kind: "end", id, value: null } satisfies Reply } as MessageEvent);
    },
  };
  const { signal } = controller;
  await expect(openModel(new Channel(port), () => {}, file, { signal, modules: webModules })).rejects.toThrow(
    "too late",
  );
});
