/** The page's files: sent to everyone with their headers, and nothing else of their folder. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { beforeAll, describe, expect, it } from "vitest";
import { temporaryFolder } from "../../test/support/folders.ts";
import { createServing } from "./listen.ts";
import { readPage } from "./page.ts";

const folder = await temporaryFolder();
const model = { name: "small", bytes: 5, load: () => Promise.reject(new Error("not loaded here")) };
let app: ReturnType<typeof createServing>["app"];

beforeAll(async () => {
  await mkdir(join(folder, "inner"));
  await writeFile(join(folder, "index.html"), "<!doctype html>");
  await writeFile(join(folder, "main.js"), "let a;");
  await writeFile(join(folder, "secret.txt"), "secret");
  const page = await readPage(pathToFileURL(`${folder}/`));
  app = createServing({ models: [model], keys: ["sk-one"] }, page).app;
});

describe("the page", () => {
  it.each([
    ["/", "text/html; charset=utf-8", "<!doctype html>"],
    ["/index.html", "text/html; charset=utf-8", "<!doctype html>"],
    ["/main.js", "text/javascript; charset=utf-8", "let a;"],
  ])("sends %s without a key, with headers that keep others out", async (path, type, text) => {
    const response = await app.request(path);
    expect([response.status, await response.text()]).toEqual([200, text]);
    const headers = Object.fromEntries(response.headers);
    expect(headers).toMatchObject({
      "content-type": type,
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-resource-policy": "same-origin",
      "referrer-policy": "no-referrer",
      "x-content-type-options": "nosniff",
      "cache-control": "no-cache",
    });
    const policy = headers["content-security-policy"]!.split("; ");
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self'");
    expect(policy).toContain("frame-ancestors 'none'");
    // MCP servers stand where their reader says; nothing else comes from elsewhere.
    const asked = "connect-src 'self' https: http://localhost:* http://127.0.0.1:*";
    expect(policy).toContain(asked);
    expect(policy.filter((rule) => rule !== asked).join()).not.toMatch(/unsafe|https?:|\*/);
  });

  it("is not sent again to who has it", async () => {
    const etag = (await app.request("/main.js")).headers.get("etag")!;
    const again = await app.request("/main.js", { headers: { "if-none-match": etag } });
    expect([again.status, await again.text()]).toEqual([304, ""]);
    const other = await app.request("/", { headers: { "if-none-match": etag } });
    expect(other.status).toBe(200);
  });

  it.each(["/secret.txt", "/inner", "/..%2fmain.js", "/%2e%2e/package.json", "/v1/models"])(
    "opens nothing else: %s",
    async (path) => {
      expect((await app.request(path)).status).toBe(401);
    },
  );

  it("is no endpoint of other methods, and none where there is no page", async () => {
    expect((await app.request("/", { method: "POST" })).status).toBe(405);
    expect((await readPage(pathToFileURL(`${folder}/missing/`))).size).toBe(0);
    const bare = createServing({ models: [model] }).app;
    expect(await (await bare.request("/")).text()).toBe("lowbit is running");
  });

  it("finds models with their sizes", async () => {
    const response = await app.request("/v1/models", { headers: { "x-api-key": "sk-one" } });
    expect(((await response.json()) as { data: object[] }).data).toMatchObject([{ id: "small", meta: { size: 5 } }]);
  });
});
