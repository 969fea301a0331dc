/** The chat page at `/`: static files of the package, sent to everyone. The API calls that it makes need a key. */
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import type { App } from "./routes/route.ts";

interface PageFile {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly headers: Readonly<Record<string, string>>;
}

/** Files of the chat page by path. */
export type Page = ReadonlyMap<string, PageFile>;

/** Folder of the built page, beside the compiled modules. */
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
 * Content security policy: the page loads from this server only, connects to it and to MCP servers that the user names, and
 * is shown in no frame.
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
  // File names stay the same in other versions of the package, so browsers must revalidate.
  "cache-control": "no-cache",
};

/** Reads the files of a folder; none where the folder does not exist, as in a checkout that was not built. */
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

/**
 * Adds a route for each file, so that no other path of the folder can be requested. Without a page, `/` says that the
 * server runs.
 */
export function addPage(app: App, page: Page): void {
  for (const [path, { bytes, headers }] of page)
    app.get(path, (c) => {
      const isKnown = c.req.header("if-none-match") === headers.etag;
      return isKnown ? c.body(null, 304, headers) : c.body(bytes, 200, headers);
    });
  // Clients of Ollama request `/` to see whether a server runs.
  if (!page.has("/")) app.get("/", (c) => c.text("lowbit is running"));
}
