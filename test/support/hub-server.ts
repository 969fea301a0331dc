/** A hub on this machine that has one model, "org/name": the files of a folder. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";

export const HUB_COMMIT = "0123456789abcdef0123456789abcdef01234567";

export interface HubServer {
  readonly endpoint: string;
  /** What was asked for so far: "GET /org/name/…". */
  readonly requests: string[];
  close(): void;
}

export async function serveHub(folder: string): Promise<HubServer> {
  const requests: string[] = [];
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url}`);
    if (request.url === "/api/models/org/name/revision/main") {
      response.end(
        JSON.stringify({ sha: HUB_COMMIT, siblings: readdirSync(folder).map((rfilename) => ({ rfilename })) }),
      );
      return;
    }
    const [, name] = /^\/org\/name\/resolve\/(\w+\/.+)$/.exec(request.url!) ?? [];
    if (!name?.startsWith(`${HUB_COMMIT}/`)) {
      response.writeHead(404).end();
      return;
    }
    const body = readFileSync(join(folder, name.slice(HUB_COMMIT.length)));
    response.setHeader("etag", `"${createHash("sha1").update(`blob ${body.length}\0`).update(body).digest("hex")}"`);
    const [, from, to] = /bytes=(\d+)-(\d+)/.exec(request.headers.range ?? "") ?? [];
    const part = from === undefined ? body : body.subarray(Number(from), Number(to) + 1);
    response.writeHead(from === undefined ? 200 : 206, { "content-length": part.length });
    response.end(request.method === "HEAD" ? undefined : part);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    close: () => server.close(),
  };
}
