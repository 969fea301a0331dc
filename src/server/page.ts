/** The chat page at `/`: files of the package, sent as they are to everyone. What it asks of the server needs a key. */
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import type { App } from "./routes/route.ts";

interface PageFile {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly headers: Readonly<Record<string, string>>;
}

/** Files of a page by their paths. */
export type Page = ReadonlyMap<string, PageFile>;

/** Where the build puts the package's page: beside the modules that were compiled. */
const PAGE_FOLDER = new URL(import.meta.url.endsWith(".ts") ? "../../dist/page/" : "../page/", import.meta.url);

const types: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".webmanifest": "application/manifest+json",
};

/**
 * The page loads what this server has, and asks nobody else but the MCP servers that its reader names; no other page shows it
 * in a frame.
 */
const POLICY = [
  "default-src 'none'",
  ...["script-src", "style-src", "img-src", "manifest-src"].map((kind) => `${kind} 'self'`),
  "connect-src 'self' https: http://localhost:* http://127.0.0.1:*",
  ...["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"],
].join("; ");

const headers = {
  "content-security-policy": POLICY,
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  // Names stay the same when the package is another one.
  "cache-control": "no-cache",
};

/** The files of a folder; none where there is no folder, as in a checkout that was not built. */
export async function readPage(folder: URL = PAGE_FOLDER): Promise<Page> {
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return [];
    throw error;
  });
  const page = new Map<string, PageFile>();
  for (const name of names) {
    const type = types[extname(name)];
    if (!type) continue;
    const bytes = new Uint8Array(await readFile(fileURLToPath(new URL(name, folder))));
    const etag = `"${createHash("sha256").update(bytes).digest("base64url").slice(0, 22)}"`;
    const file = { bytes, headers: { ...headers, "content-type": type, etag } };
    page.set(`/${name}`, file);
    if (name === "index.html") page.set("/", file);
  }
  return page;
}

/** Adds the files as they are: no other path of a folder can be asked for. Without a page, `/` says that the server runs. */
export function addPage(app: App, page: Page): void {
  for (const [path, { bytes, headers }] of page)
    app.get(path, (c) => {
      const isKnown = c.req.header("if-none-match") === headers.etag;
      return isKnown ? c.body(null, 304, headers) : c.body(bytes, 200, headers);
    });
  // Clients of Ollama look here whether a server is there.
  if (!page.has("/")) app.get("/", (c) => c.text("lowbit is running"));
}
