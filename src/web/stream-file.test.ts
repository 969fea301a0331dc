/** A program loaded from an answer as it comes: the same weights, held once, over cuts; never of two files. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { writeTinyCheckpoint } from "../../test/support/tiny-checkpoint.ts";
import { exportProgram } from "../api/export-program.ts";
import { loadCheckpoint } from "../checkpoint/load.ts";
import { InvalidFileError } from "../errors.ts";
import { readProgram } from "../program/read.ts";
import { LoadedProgram } from "../runtime/program.ts";
import { ArrivingFile } from "./arriving-file.ts";
import { blobSource } from "./blob-source.ts";
import { streamFile } from "./stream-file.ts";

vi.hoisted(() => {
  process.env.LOWBIT_BACKEND = "wasm";
});

const url = "http://host/tiny.pte";
const folder = await temporaryFolder();
let file: Uint8Array<ArrayBuffer>;

beforeAll(async () => {
  await writeTinyCheckpoint(folder);
  const path = join(folder, "tiny.pte");
  const model = await loadCheckpoint(folder);
  await exportProgram(model, path);
  await model.close();
  file = new Uint8Array(await readFile(path));
}, 60_000);

interface Server {
  /** Where each answer is cut. */
  readonly ends?: readonly number[];
  readonly validators?: readonly string[];
  readonly hasRanges?: boolean;
}

/** Answers requests in turn, in parts of 4000 bytes. */
function server({ ends = [], validators = ["one"], hasRanges = true }: Server) {
  const log = { starts: [] as number[], sentBytes: 0 };
  const request = async (_: unknown, init?: RequestInit): Promise<Response> => {
    const asked = Number(new Headers(init?.headers).get("range")?.match(/\d+/)?.[0] ?? 0);
    const start = hasRanges ? asked : 0;
    const end = ends[log.starts.length] ?? file.length;
    const validator = validators[Math.min(log.starts.length, validators.length - 1)]!;
    log.starts.push(asked);
    let at = start;
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        if (at < end) {
          controller.enqueue(file.slice(at, Math.min(end, at + 4000)));
          log.sentBytes += Math.min(end, at + 4000) - at;
          at += 4000;
        } else if (end < file.length) controller.error(new TypeError("network error"));
        else controller.close();
      },
    });
    const headers = {
      "content-length": `${file.length - start}`,
      ...(validator ? { "last-modified": validator } : {}),
    };
    return new Response(body, { status: start > 0 ? 206 : 200, headers });
  };
  return { log, fetch: request as typeof fetch };
}

async function load(options: Server): Promise<LoadedProgram> {
  const source = await streamFile(url, server(options));
  try {
    return await LoadedProgram.load(await readProgram(source), { threads: 1 });
  } finally {
    await source.close();
  }
}

async function expectWhole(loaded: LoadedProgram): Promise<void> {
  const source = blobSource("tiny.pte", new Blob([file]));
  const { constants } = await LoadedProgram.load(await readProgram(source), { threads: 1 });
  expect(loaded.constants.map((bytes) => [...bytes])).toEqual(constants.map((bytes) => [...bytes]));
}

describe("a file read while it comes", () => {
  it("has the weights of the file, over cuts, with and without byte ranges", async () => {
    const ends = [30_000, 60_001];
    expect(file.length).toBeGreaterThan(60_001);
    await expectWhole(await load({}));
    await expectWhole(await load({ ends }));
    await expectWhole(await load({ ends, hasRanges: false }));
  });

  it("holds no weights that were read", async () => {
    let most = 0;
    const { append } = ArrivingFile.prototype;
    vi.spyOn(ArrivingFile.prototype, "append").mockImplementation(async function (this: ArrivingFile, bytes) {
      await append.call(this, bytes);
      most = Math.max(most, this.bufferedBytes);
    });
    await load({});
    vi.restoreAllMocks();
    expect(most).toBeLessThan(file.length / 2);
  });

  it("is never joined of two files", async () => {
    const message = /cut at byte 30000 and the rest is not known to be of the same file/;
    await expect(load({ ends: [30_000], validators: ["one", "two"] })).rejects.toThrow(message);
    await expect(load({ ends: [30_000], validators: [""] })).rejects.toThrow(message);
  });

  it("says at once what is wrong with the answer, and later where the file ends", async () => {
    const missing = async () => new Response("", { status: 404 });
    await expect(streamFile(url, { fetch: missing })).rejects.toThrow(/404/);
    const short = async () => new Response(file.slice(0, 30_000));
    const source = await streamFile(url, { fetch: short });
    await expect(readProgram(source).then((program) => LoadedProgram.load(program, { threads: 1 }))).rejects.toThrow(
      new InvalidFileError(url, "ends at byte 30000; it is truncated or damaged"),
    );
  });

  it("asks for no more than is read, and for nothing once it is closed or aborted", async () => {
    const { log, fetch } = server({});
    const controller = new AbortController();
    const source = await streamFile(url, { fetch, signal: controller.signal });
    await source.read(0, 100);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(log.sentBytes).toBeLessThan(20_000);
    const reason = new Error("enough");
    const aborting: typeof globalThis.fetch = async (_, init) => {
      init?.signal?.throwIfAborted();
      return new Promise((_, reject) => init?.signal?.addEventListener("abort", () => reject(init.signal?.reason)));
    };
    const waiting = streamFile(url, { fetch: aborting, signal: controller.signal });
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    await source.close();
  });
});
