/** The hub client against a local server that serves the hub's endpoints, and drops, stalls, lies and forbids. */
import { createHash } from "node:crypto";
import { access, lstat, mkdir, readdir, readFile, readlink, rename, rm, symlink, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { Random } from "../../test/support/random.ts";
import { InvalidArgumentError } from "../errors.ts";
import { claimPath } from "../path-claim.ts";
import { claimOf } from "../unfinished-file.ts";
import { HubError } from "./request.ts";
import { hubSettings, parseRepository } from "./settings.ts";
import { pullModel, wantedFiles } from "./snapshot.ts";

const COMMIT = "0123456789abcdef0123456789abcdef01234567";
const random = new Random(1);
const weights = Uint8Array.from({ length: 100_000 }, () => random.integer(0, 255));
const contents: Readonly<Record<string, Uint8Array>> = {
  "config.json": new TextEncoder().encode("{}"),
  "model.safetensors": weights,
  "README.md": new TextEncoder().encode("not wanted"),
};
const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const gitHash = (bytes: Uint8Array) => createHash("sha1").update(`blob ${bytes.length}\0`).update(bytes).digest("hex");

/** What goes wrong, and what was asked for. */
let fault: (request: IncomingMessage, response: ServerResponse, body: Uint8Array) => boolean = () => false;
let requests: string[] = [];
let siblings = Object.keys(contents);

const server = createServer((request, response) => {
  const url = request.url!;
  requests.push(`${request.method} ${url} ${request.headers.range ?? ""}`.trim());
  if (url === "/api/models/org/name/revision/main") {
    if (fault(request, response, new Uint8Array(0))) return;
    response.end(JSON.stringify({ sha: COMMIT, siblings: siblings.map((rfilename) => ({ rfilename })) }));
    return;
  }
  const name = url.replace(`/org/name/resolve/${COMMIT}/`, "");
  const body = contents[name];
  if (!body) {
    response.writeHead(404).end();
    return;
  }
  const isLarge = name.endsWith(".safetensors");
  response.setHeader("etag", `"${isLarge ? "stored-elsewhere" : gitHash(body)}"`);
  if (isLarge) {
    response.setHeader("x-linked-etag", `"${sha256(body)}"`);
    response.setHeader("x-linked-size", body.length);
  }
  if (fault(request, response, body)) return;
  const [, from, to] = /bytes=(\d+)-(\d+)/.exec(request.headers.range ?? "") ?? [];
  const part = from === undefined ? body : body.subarray(Number(from), Number(to) + 1);
  response.writeHead(from === undefined ? 200 : 206, { "content-length": part.length });
  response.end(request.method === "HEAD" ? undefined : part);
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
afterAll(() => server.close());

const folder = await temporaryFolder();
let caches = 0;
let cache = "";
beforeEach(() => {
  fault = () => false;
  requests = [];
  siblings = Object.keys(contents);
  cache = join(folder, String(++caches));
});

const settings = (changes: object = {}) => ({
  endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  cache,
  token: null,
  offline: false,
  ...changes,
});
const pull = (changes: Parameters<typeof pullModel>[1] = {}) =>
  pullModel("hf:org/name", { settings: settings(), rangeBytes: 16384, waitMs: 1, ...changes });
const isThere = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  );
const downloads = () => requests.filter((line) => line.startsWith("GET /org") && line.includes("model.safetensors"));

describe("pull", () => {
  it("lays files out as Python does, checked, and asks for nothing twice", async () => {
    const progress: [number, number][] = [];
    const snapshot = await pull({ onProgress: (done, total) => progress.push([done, total]) });
    expect(snapshot).toBe(join(cache, "models--org--name", "snapshots", COMMIT));
    expect(new Uint8Array(await readFile(join(snapshot, "model.safetensors")))).toEqual(weights);
    expect(await readlink(join(snapshot, "model.safetensors"))).toBe(`../../blobs/${sha256(weights)}`);
    expect(await readFile(join(cache, "models--org--name", "refs", "main"), "utf8")).toBe(COMMIT);
    expect(await isThere(join(snapshot, "README.md"))).toBe(false);
    expect(progress.at(-1)).toEqual([weights.length + 2, weights.length + 2]);
    expect(downloads().length).toBe(Math.ceil(weights.length / 16384));
    requests = [];
    await pull();
    expect(requests).toEqual(["GET /api/models/org/name/revision/main"]);
    expect(await pull({ settings: settings({ offline: true, endpoint: "http://127.0.0.1:1" }) })).toBe(snapshot);
  });

  it("goes on after dropped connections and errors of the server", async () => {
    let drops = 6;
    fault = (request, response, body) => {
      if (request.method !== "GET" || drops-- <= 0) return false;
      if (drops % 2 === 0) response.writeHead(503).end();
      else {
        response.writeHead(206, { "content-length": 16384 });
        response.write(body.subarray(0, 5), () => request.socket.destroy());
      }
      return true;
    };
    const snapshot = await pull({ connections: 1, tries: 10 });
    expect(new Uint8Array(await readFile(join(snapshot, "config.json")))).toEqual(contents["config.json"]);
    expect(new Uint8Array(await readFile(join(snapshot, "model.safetensors")))).toEqual(weights);
  });

  it("several at once, of one process or two, download a file once", async () => {
    const [first, ...others] = await Promise.all(Array.from({ length: 4 }, () => pull()));
    expect(others).toEqual([first, first, first]);
    expect(new Uint8Array(await readFile(join(first!, "model.safetensors")))).toEqual(weights);
    expect(downloads().length).toBe(Math.ceil(weights.length / 16384));
    const blobs = join(cache, "models--org--name", "blobs");
    expect((await readdir(blobs)).length).toBe(2);

    const blob = join(blobs, sha256(weights));
    await rename(blob, `${blob}.away`);
    await rm(join(first!, "model.safetensors"));
    const claim = await claimPath(claimOf(blob));
    requests = [];
    const told: string[] = [];
    const late = pull({ onWait: (reason) => told.push(reason) });
    await expect.poll(() => told.length, { timeout: 30_000 }).toBe(1);
    expect(told[0]).toContain(`waits for process ${process.pid} on `);
    expect(downloads()).toEqual([]);
    await rename(`${blob}.away`, blob);
    await claim.release();
    await late;
    expect(downloads()).toEqual([]);
    expect(new Uint8Array(await readFile(join(first!, "model.safetensors")))).toEqual(weights);
  });

  it("writes nothing where the cache is whole, so that it may be read-only", async () => {
    const snapshot = await pull();
    const state = async () => {
      const names = ["", ...(await readdir(cache, { recursive: true }))].sort();
      const entries = names.map(async (name) => [name, (await lstat(join(cache, name))).ctimeMs] as const);
      return Object.fromEntries(await Promise.all(entries));
    };
    const before = await state();
    expect(await pull()).toBe(snapshot);
    expect(await pull({ settings: settings({ offline: true }) })).toBe(snapshot);
    expect(await state()).toEqual(before);
    // A revision whose commit is not noted, and cannot be.
    const refs = join(cache, "models--org--name", "refs");
    await rm(refs, { recursive: true });
    await writeFile(refs, "no folder");
    expect(await pull()).toBe(snapshot);
    expect(await readFile(refs, "utf8")).toBe("no folder");
  });

  it("resumes what an interrupted download left, and leaves nothing that looks whole", async () => {
    const stop = new AbortController();
    fault = (request) => {
      if (request.headers.range?.startsWith("bytes=65536-")) stop.abort(new Error("stopped by the test"));
      return false;
    };
    await expect(pull({ connections: 1, signal: stop.signal })).rejects.toThrow("stopped by the test");
    const blobs = join(cache, "models--org--name", "blobs");
    expect(await isThere(join(blobs, sha256(weights)))).toBe(false);
    expect(await isThere(join(cache, "models--org--name", "snapshots", COMMIT, "model.safetensors"))).toBe(false);
    fault = () => false;
    requests = [];
    await pull({ connections: 1 });
    expect(downloads()[0]).toMatch(/bytes=(65536|[67]\d{4})-/);
    expect(downloads().length).toBeLessThan(5);
  });

  it.each<[string, typeof fault, RegExp]>([
    [
      "content that is not what was promised",
      (request, response, body) => {
        if (!request.headers.range || body.length < 100) return false;
        const [, from, to] = /(\d+)-(\d+)/.exec(request.headers.range)!;
        response.writeHead(206).end(new Uint8Array(Number(to) - Number(from) + 1));
        return true;
      },
      /expected checksum .* but found/,
    ],
    [
      "less than the length it told",
      (request, response, body) => {
        if (!request.headers.range || body.length < 100) return false;
        response.writeHead(206).end(body.subarray(0, 10));
        return true;
      },
      /ended \d+ bytes early/,
    ],
    [
      "more than was asked for",
      (request, response, body) => {
        if (!request.headers.range || body.length < 100) return false;
        response.writeHead(206).end(new Uint8Array(200_000));
        return true;
      },
      /sent more than the 16384 bytes/,
    ],
    [
      "nothing for a long time",
      (request, response) => {
        if (!request.headers.range) return false;
        response.writeHead(206, { "content-length": 100 });
        response.flushHeaders();
        return true;
      },
      /stalled|connection lost/,
    ],
    [
      "no access",
      (_, response) => {
        response.writeHead(401).end();
        return true;
      },
      /access denied \(401\); accept the model's terms and set HF_TOKEN/,
    ],
    [
      "no list of files",
      (request, response) => {
        if (!request.url!.startsWith("/api")) return false;
        response.end('{"sha": "../../x", "siblings": [{"rfilename": "../a"}]}');
        return true;
      },
      /expected a commit and a list of files/,
    ],
  ])("a server that gives %s", async (_, broken, message) => {
    fault = broken;
    const options = { tries: 2, stallMs: 300 };
    await expect(pull(options)).rejects.toThrow(message);
    await expect(pull(options)).rejects.toThrow(HubError);
    expect(await isThere(join(cache, "models--org--name", "snapshots", COMMIT, "model.safetensors"))).toBe(false);
  });

  it("does not follow names out of its folder", async () => {
    siblings = ["config.json", "../../model.safetensors"];
    await expect(pull({ tries: 1 })).rejects.toThrow(/expected a commit and a list of files/);
  });

  it("offline, without the model in the cache, says so", async () => {
    const offline = () => pull({ settings: settings({ offline: true }) });
    await expect(offline()).rejects.toThrow(/is not in the cache .* forbids/);
    const model = join(cache, "models--org--name");
    await mkdir(join(model, "refs"), { recursive: true });
    await mkdir(join(model, "snapshots", COMMIT), { recursive: true });
    await writeFile(join(model, "refs", "main"), COMMIT);
    await expect(offline()).rejects.toThrow(/is not in the cache .* forbids/);
    await writeFile(join(model, "snapshots", COMMIT, "config.json"), "{}");
    await symlink("../../blobs/gone", join(model, "snapshots", COMMIT, "model.safetensors"));
    await expect(offline()).rejects.toThrow(/is not in the cache .*expected safetensors.* among: config.json/);
    expect(requests).toEqual([]);
  });

  it("waits as long as a busy server asks for, and not for hours", async () => {
    let busy = 1;
    fault = (request, response) => {
      if (!request.url!.startsWith("/api") || busy-- <= 0) return false;
      response.writeHead(429, { "retry-after": "1" }).end();
      return true;
    };
    const start = performance.now();
    await pull();
    expect(performance.now() - start).toBeGreaterThan(990);
    fault = (_, response) => {
      response.writeHead(503, { "retry-after": new Date(Date.now() + 7_200_000).toUTCString() }).end();
      return true;
    };
    requests = [];
    await expect(pull()).rejects.toThrow(/status 503; the server asks to wait (7200|7199) s/);
    expect(requests.length).toBe(1);
  });

  it("a server without ranges serves files of any size, after a break, too", async () => {
    let breaks = 1;
    fault = (request, response, body) => {
      if (request.method !== "GET" || body.length < 100) return false;
      response.writeHead(200, { "content-length": body.length });
      if (request.headers.range || breaks-- <= 0) response.end(body);
      else response.write(body.subarray(0, 50_000), () => request.socket.destroy());
      return true;
    };
    let counted = 0;
    const snapshot = await pull({ onProgress: (done) => (counted = done) });
    expect(new Uint8Array(await readFile(join(snapshot, "model.safetensors")))).toEqual(weights);
    expect(counted).toBe(weights.length + 2);
    expect(downloads().filter((line) => !line.includes("bytes=")).length).toBe(2);
  });
});

describe("settings", () => {
  it("come from the environment, as Python reads them", async () => {
    const home = join(folder, "home");
    await mkdir(home);
    await writeFile(join(home, "token"), "hf_file\n");
    expect(await hubSettings({ HF_HOME: home })).toMatchObject({
      cache: join(home, "hub"),
      token: "hf_file",
      offline: false,
    });
    const given = { HF_HOME: home, HF_TOKEN: "hf_given", HF_ENDPOINT: "http://hub.test/", HF_HUB_OFFLINE: "1" };
    expect(await hubSettings({ ...given, HF_HUB_CACHE: "/c" })).toEqual({
      cache: "/c",
      token: "hf_given",
      endpoint: "http://hub.test",
      offline: true,
    });
    expect((await hubSettings({ XDG_CACHE_HOME: "/x" })).cache).toBe(join("/x", "huggingface", "hub"));
    await expect(hubSettings({ HF_ENDPOINT: "nowhere" })).rejects.toThrow(InvalidArgumentError);
  });

  it("names of repositories", () => {
    expect(parseRepository("hf:org/name@v1.0")).toEqual({ repository: "org/name", revision: "v1.0" });
    expect(parseRepository("gpt2")).toEqual({ repository: "gpt2", revision: "main" });
    for (const wrong of ["", "hf:", "a/b/c", "../b", "a/..", "a/b@../c", "a b"])
      expect(() => parseRepository(wrong), wrong).toThrow(/expected org\/name/);
  });

  it("one format of weights, the best", () => {
    const both = ["config.json", "model-00001-of-00002.safetensors", "pytorch_model.bin", "x.gguf", "original/a.pth"];
    expect(wantedFiles(both)).toEqual(["config.json", "model-00001-of-00002.safetensors"]);
    const sentences = ["modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"];
    const others = ["onnx/model.onnx", "2_Dense/pytorch_model.bin", "openvino/config.json"];
    expect(wantedFiles(["model.safetensors", ...sentences, ...others])).toEqual(["model.safetensors", ...sentences]);
    expect(wantedFiles(["model.safetensors", "1_Pooling/config.json"])).toEqual(["model.safetensors"]);
    expect(wantedFiles(["a.gguf", "README.md"])).toEqual(["a.gguf"]);
    expect(() => wantedFiles(["a.gguf", "b.gguf"])).toThrow(/one .gguf among/);
  });
});
