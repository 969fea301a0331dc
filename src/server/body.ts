/** Bodies of requests: JSON of a bounded size and depth, read once. */

import { checkNesting } from "../json-text.ts";
import { ApiError } from "./errors.ts";
import type { ServerLimits } from "./limits.ts";
import type { ServerContext } from "./serving.ts";

const JSON_TYPE = /^application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i;

/** Reads the body of a request, so that `c.req.json()` gives it. ApiError 400, 413 or 415 for one that may not be read. */
export async function readBody(c: ServerContext, { bodyBytes, jsonDepth }: ServerLimits): Promise<void> {
  if (!JSON_TYPE.test(c.req.header("content-type") ?? ""))
    throw new ApiError(415, "expected content-type: application/json", { code: "not_json" });
  const text = await readText(c.req.raw, Number(c.req.header("content-length") ?? 0), bodyBytes);
  try {
    // Before anything parses it: parsers of deep JSON run out of stack.
    checkNesting(text, jsonDepth);
  } catch (error) {
    throw new ApiError(400, `body: ${(error as Error).message}`, { code: "too_deep" });
  }
  c.req.bodyCache.text = Promise.resolve(text) as never;
}

async function readText(request: Request, announced: number, most: number): Promise<string> {
  const tooLarge = () => new ApiError(413, `the body is larger than ${most} bytes`, { code: "body_too_large" });
  if (announced > most) throw tooLarge();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  try {
    // HTTP has no more than was announced, and reading it whole costs a fraction of reading a stream.
    if (announced > 0) return decoder.decode(await request.arrayBuffer());
    let size = 0;
    let text = "";
    for await (const bytes of (request.body ?? []) as AsyncIterable<Uint8Array>) {
      size += bytes.length;
      if (size > most) throw tooLarge();
      text += decoder.decode(bytes, { stream: true });
    }
    return text + decoder.decode();
  } catch (cause) {
    if (cause instanceof ApiError) throw cause;
    const isNoText =
      cause instanceof TypeError && "code" in cause && cause.code === "ERR_ENCODING_INVALID_ENCODED_DATA";
    const problem = isNoText && !request.signal.aborted ? "expected UTF-8" : "did not arrive whole";
    throw new ApiError(400, `body: ${problem}`, { cause });
  }
}
