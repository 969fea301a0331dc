/** Downloads that are cut, refused or changed meanwhile, by a server that is a function. */
import { describe, expect, it } from "vitest";
import { InvalidFileError } from "../errors.ts";
import { type DownloadTarget, download, type FileVersion, isSame, versionOf } from "./download.ts";

const file = Uint8Array.from({ length: 1000 }, (_, i) => (7 * i) % 256);

class Collected implements DownloadTarget {
  version: FileVersion | null = null;
  bytes: number[] = [];
  restarts = 0;
  get size() {
    return this.bytes.length;
  }
  async restart(version: FileVersion) {
    this.version = version;
    this.bytes = [];
    this.restarts++;
  }
  append(bytes: Uint8Array) {
    this.bytes.push(...bytes);
  }
}

/** A body that ends with an error after some bytes. */
function body(bytes: Uint8Array, isCut: boolean): ReadableStream<Uint8Array> {
  const parts = [bytes.slice(0, 10), bytes.slice(10)];
  return new ReadableStream({
    pull(controller) {
      const part = parts.shift();
      if (part) controller.enqueue(part);
      else if (isCut) controller.error(new TypeError("network error"));
      else controller.close();
    },
  });
}

interface Server {
  /** Where each answer is cut. */
  readonly ends?: readonly number[];
  readonly etags?: readonly string[];
  /** Instead of an ETag, and without Content-Range, as pages of other origins see it. */
  readonly dates?: readonly string[];
}

/** Answers requests in turn. */
function server({ ends = [], etags = ["one"], dates }: Server = {}) {
  const starts: number[] = [];
  const at = (values: readonly string[]) => values[Math.min(starts.length, values.length - 1)]!;
  const request = async (_: unknown, init?: RequestInit): Promise<Response> => {
    const start = Number(new Headers(init?.headers).get("range")?.match(/\d+/)?.[0] ?? 0);
    const end = ends[starts.length] ?? file.length;
    const headers = new Headers({ "content-length": `${file.length - start}` });
    if (dates) {
      if (dates.length > 0) headers.set("last-modified", at(dates));
    } else {
      headers.set("etag", at(etags));
      if (start > 0) headers.set("content-range", `bytes ${start}-${file.length - 1}/${file.length}`);
    }
    starts.push(start);
    return new Response(body(file.slice(start, end), end < file.length), { status: start > 0 ? 206 : 200, headers });
  };
  return { starts, fetch: request as typeof fetch };
}

describe("a download", () => {
  it("asks for the rest after a cut, and says how far it is", async () => {
    const { starts, fetch } = server({ ends: [300, 700] });
    const target = new Collected();
    const progress: number[] = [];
    await download("http://host/a.pte", target, {
      fetch,
      onProgress(done, total) {
        expect(total).toBe(1000);
        progress.push(done);
      },
    });
    expect(target.bytes).toEqual([...file]);
    expect(starts).toEqual([0, 300, 700]);
    expect(progress.at(-1)).toBe(1000);
    expect([...progress].sort((a, b) => a - b)).toEqual(progress);
  });

  it("begins again when the rest is of another file", async () => {
    const { starts, fetch } = server({ ends: [300], etags: ["one", "two"] });
    const target = new Collected();
    await download("http://host/a.pte", target, { fetch });
    expect(target.bytes).toEqual([...file]);
    expect(starts).toEqual([0, 300, 0]);
  });

  it("begins again when the server sends another part than the one that was asked for", async () => {
    const starts: (string | null)[] = [];
    const fetch = async (_: unknown, init?: RequestInit) => {
      const range = new Headers(init?.headers).get("range");
      starts.push(range);
      const part = range ? { "content-range": "bytes 200-999/1000" } : { "content-length": "1000" };
      const bytes = range ? file.slice(200) : starts.length === 1 ? file.slice(0, 300) : file;
      return new Response(body(bytes, starts.length === 1), {
        status: range ? 206 : 200,
        headers: { etag: "one", ...part },
      });
    };
    const target = new Collected();
    await download("http://host/a.pte", target, { fetch: fetch as typeof globalThis.fetch });
    expect(target.bytes).toEqual([...file]);
    expect(starts).toEqual([null, "bytes=300-", null]);
  });

  it("tells files without ETags apart by their dates, and does not join those that have neither", async () => {
    const same = server({ ends: [300, 700], dates: ["Monday"] });
    const replaced = server({ ends: [300], dates: ["Monday", "Tuesday"] });
    const unknown = server({ ends: [300], dates: [] });
    for (const { fetch } of [same, replaced, unknown]) {
      const target = new Collected();
      await download("http://host/a.pte", target, { fetch });
      expect(target.bytes).toEqual([...file]);
    }
    expect(same.starts).toEqual([0, 300, 700]);
    expect(replaced.starts).toEqual([0, 300, 0]);
    expect(unknown.starts).toEqual([0, 0]);
    const [monday, tuesday] = ["Monday", "Tuesday"].map((date) =>
      versionOf(new Response("", { headers: { "content-length": "1000", "last-modified": date } })),
    );
    expect(isSame(monday!, tuesday!)).toBe(false);
  });

  it("ends when attempts begin anew and never come further", async () => {
    const { starts, fetch } = server({ ends: Array(30).fill(600), dates: [] });
    await expect(download("http://host/a.pte", new Collected(), { fetch })).rejects.toThrow(/cut at byte 600/);
    expect(starts).toEqual([0, 0, 0, 0]);
  });

  it("does not go on with bytes that were compressed, whether the server may say so or not", async () => {
    for (const hidden of [false, true]) {
      const starts: (string | null)[] = [];
      const fetch = async (_: unknown, init?: RequestInit) => {
        starts.push(new Headers(init?.headers).get("range"));
        const headers = { "content-length": "400", etag: "one", ...(hidden ? {} : { "content-encoding": "gzip" }) };
        return new Response(body(starts.length === 1 ? file.slice(0, 300) : file, starts.length === 1), { headers });
      };
      const target = new Collected();
      await download("http://host/a.pte", target, { fetch: fetch as typeof globalThis.fetch });
      expect(target.bytes).toEqual([...file]);
      expect(starts).toEqual([null, hidden ? "bytes=300-" : null]);
    }
  });

  it("is given up when nothing comes", async () => {
    const refused = async () => {
      throw new TypeError("refused");
    };
    const result = download("http://host/a.pte", new Collected(), { fetch: refused });
    await expect(result).rejects.toThrow(
      new InvalidFileError("http://host/a.pte", "the download was cut at byte 0: refused"),
    );
  });

  it("refuses an answer that is no success", async () => {
    const missing = async () => new Response("", { status: 404 });
    await expect(download("http://host/a.pte", new Collected(), { fetch: missing })).rejects.toThrow(/404/);
  });

  it("ends with the signal's reason", async () => {
    const reason = new Error("enough");
    const { fetch } = server();
    const signal = AbortSignal.abort(reason);
    const aborted: typeof fetch = async (input, init) => {
      init?.signal?.throwIfAborted();
      return fetch(input, init);
    };
    await expect(download("http://host/a.pte", new Collected(), { fetch: aborted, signal })).rejects.toBe(reason);
  });

  it("ends at once when who watches it refuses it", async () => {
    const { starts, fetch } = server();
    const target = new Collected();
    const problem = new Error("too large");
    const totals: number[] = [];
    const watch = (totalBytes: number, refuse: (error: Error) => void) => ({
      take() {
        totals.push(totalBytes);
        refuse(problem);
      },
    });
    await expect(download("http://host/a.pte", target, { fetch, watch })).rejects.toBe(problem);
    expect([starts, target.size, totals]).toEqual([[0], 10, [file.length]]);
  });
});
