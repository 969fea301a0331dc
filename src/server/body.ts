/** Reads bodies of requests: JSON of a bounded size and depth. */

import { checkNesting } from "../json-text.ts";
import { unpacked } from "./encoded-body.ts";
import { ApiError, apiFormOf } from "./errors.ts";
import type { ServerLimits } from "./limits.ts";
import type { ServerContext } from "./serving.ts";

const JSON_TYPE = /^application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i;

/**
 * Reads the body of a request, so that `c.req.json()` gives it. ApiError 400, 413 or 415 for a body that is not JSON within
 * the limits.
 */
export async function readBody(c: ServerContext, { bodyBytes, jsonDepth }: ServerLimits): Promise<void> {
  // Clients of Ollama send JSON with any content type, as curl does by default.
  if (apiFormOf(c.req.path) === "ollama") c.req.raw.headers.set("content-type", "application/json");
  else if (!JSON_TYPE.test(c.req.header("content-type") ?? ""))
    throw new ApiError(415, "expected content-type: application/json", { code: "not_json" });
  const encoding = c.req.header("content-encoding") ?? "";
  const bytes = await readBytes(c.req.raw, Number(c.req.header("content-length") ?? 0), bodyBytes);
  const text = textOf(encoding === "" ? bytes : await unpacked(bytes, encoding, bodyBytes));
  try {
    // Checked before parsing, since parsers of deep JSON overflow the stack.
    checkNesting(text, jsonDepth);
  } catch (error) {
    throw new ApiError(400, `body: ${(error as Error).message}`, { code: "too_deep" });
  }
  c.req.bodyCache.text = Promise.resolve(text) as never;
}

async function readBytes(request: Request, announced: number, most: number): Promise<Uint8Array> {
  const tooLarge = () => new ApiError(413, `the body is larger than ${most} bytes`, { code: "body_too_large" });
  if (announced > most) throw tooLarge();
  try {
    // HTTP gives no more bytes than announced, and reading them at once costs a fraction of reading a stream.
    if (announced > 0) return new Uint8Array(await request.arrayBuffer());
    let size = 0;
    const parts: Uint8Array[] = [];
    for await (const bytes of (request.body ?? []) as AsyncIterable<Uint8Array>) {
      size += bytes.length;
      if (size > most) throw tooLarge();
      parts.push(bytes);
    }
    return Buffer.concat(parts);
  } catch (cause) {
    if (cause instanceof ApiError) throw cause;
    throw new ApiError(400, "body: did not arrive whole", { cause });
  }
}

function textOf(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new ApiError(400, "body: expected UTF-8", { cause });
  }
}
