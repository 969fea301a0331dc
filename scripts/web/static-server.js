/** A server of static files with the headers of cross-origin isolation, byte ranges and ETags. */
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { pipeline } from "node:stream";

const types = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".webmanifest": "application/manifest+json",
};

const isolation = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };

/**
 * Serves a folder. `isIsolated` false leaves the isolation to the page's service worker; `onRequest` may answer in the
 * server's place, and says so with true.
 * @param {string} folder
 * @param {{ isIsolated?: boolean, onRequest?: (request: import("node:http").IncomingMessage, response: import("node:http").ServerResponse) => boolean }} [options]
 */
export function staticServer(folder, { isIsolated = true, onRequest = () => false } = {}) {
  return createServer((request, response) => {
    if (onRequest(request, response)) return;
    answer(folder, request, response, isIsolated ? isolation : {}).catch((error) => {
      if (!response.headersSent) response.writeHead(error.code === "ENOENT" ? 404 : 500).end();
    });
  });
}

/**
 * Listens at a port, for this machine only, and gives the address. An error says what is wrong with the port.
 * @param {import("node:http").Server} server
 * @param {string} port
 * @returns {Promise<string>}
 */
export function listenAt(server, port) {
  return new Promise((resolve, reject) => {
    if (!/^\d+$/.test(port) || Number(port) > 65535)
      throw new Error(`PORT: expected a number from 0 to 65535 but found ${port}`);
    server.once("error", (error) =>
      reject(error.code === "EADDRINUSE" ? new Error(`PORT: ${port} is in use; name another one`) : error),
    );
    server.listen(Number(port), "127.0.0.1", () => resolve(`http://localhost:${server.address().port}/`));
  });
}

async function answer(folder, request, response, extra) {
  // normalize of an absolute path leaves no ".." at its start.
  const path = normalize(decodeURIComponent(new URL(request.url ?? "/", "http://localhost").pathname));
  const file = join(folder, path.endsWith("/") ? `${path}index.html` : path);
  const status = await stat(file);
  if (!status.isFile()) throw Object.assign(new Error("no file"), { code: "ENOENT" });
  const headers = {
    ...extra,
    "Content-Type": types[extname(file)] ?? "application/octet-stream",
    "Accept-Ranges": "bytes",
    "Cache-Control": "no-cache",
    ETag: `"${status.size}-${status.mtimeMs}"`,
  };
  const start = Number(request.headers.range?.match(/^bytes=(\d+)-$/)?.[1] ?? 0);
  if (start > 0 && start >= status.size) {
    response.writeHead(416, headers).end();
    return;
  }
  const range = start > 0 ? { "Content-Range": `bytes ${start}-${status.size - 1}/${status.size}` } : {};
  response.writeHead(start > 0 ? 206 : 200, { ...headers, ...range, "Content-Length": status.size - start });
  if (request.method === "HEAD") response.end();
  else pipeline(createReadStream(file, { start }), response, () => {});
}
