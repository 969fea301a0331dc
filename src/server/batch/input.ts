/** Reads batch files in OpenAI's format: a JSON object a line. */
import { createHash } from "node:crypto";
import { z } from "@hono/zod-openapi";
import { InvalidFileError } from "../../errors.ts";
import { checkNesting, valueTexts } from "../../json-text.ts";
import { readLines } from "../../node-file.ts";
import type { ServerLimits } from "../limits.ts";

/** Endpoints that a line may name. */
const batchPaths = [
  "/v1/chat/completions",
  "/v1/completions",
  "/v1/responses",
  "/v1/messages",
  "/v1/embeddings",
  "/v1/rerank",
] as const;

const head = { custom_id: z.string().min(1).max(512), method: z.literal("POST"), url: z.enum(batchPaths) };

const batchLine = z.object({ ...head, body: z.looseObject({ model: z.string().min(1) }) });

/** The schema of a request. `body` stays JSON text, so that its numbers keep all digits. */
export const batchRequest = z.object({ ...head, model: z.string(), body: z.string() });

/** A request of a batch. */
export type BatchRequest = z.output<typeof batchRequest>;

/** What reading a batch file once tells about it. */
export interface BatchSummary {
  /** Number of requests in the file. */
  readonly requests: number;
  /** Names of the models that the requests use. */
  readonly models: readonly string[];
  /** SHA-256 of the file, by which a queue knows the batch. */
  readonly digest: string;
}

/** Reads the requests of a file one after the other. InvalidFileError, naming the line, for a line that is no request. */
export async function* readRequests(path: string, limits: ServerLimits): AsyncGenerator<BatchRequest> {
  let number = 0;
  for await (const line of readLines(path, limits.bodyBytes)) {
    number++;
    const text = number === 1 ? line.replace(/^\uFEFF/, "") : line;
    if (text.trim() !== "") yield parseRequest(text, `${path}, line ${number}`, limits);
  }
}

function parseRequest(line: string, place: string, { jsonDepth }: ServerLimits): BatchRequest {
  let value: unknown;
  try {
    checkNesting(line, jsonDepth);
    value = JSON.parse(line);
  } catch (cause) {
    throw new InvalidFileError(place, `expected a JSON object: ${(cause as Error).message}`, { cause });
  }
  const { success, data, error } = batchLine.safeParse(value);
  if (!success) {
    const { path, message } = error.issues[0]!;
    throw new InvalidFileError(place, `${path.join(".") || "request"}: ${message}`);
  }
  if (data.body.stream === true)
    throw new InvalidFileError(place, "body.stream: expected false: answers of a batch are whole");
  // Of a key that occurs several times, the last value counts, as in JSON.parse.
  return { ...data, model: data.body.model, body: valueTexts(line, ["body"]).at(-1)!.text };
}

/** Reads a file once and checks it: each line must be a request with a unique `custom_id`. */
export async function summarize(path: string, limits: ServerLimits): Promise<BatchSummary> {
  const ids = new Set<string>();
  const models = new Set<string>();
  const digest = createHash("sha256");
  for await (const request of readRequests(path, limits)) {
    if (ids.has(request.custom_id))
      throw new InvalidFileError(path, `custom_id ${JSON.stringify(request.custom_id)}: expected it once`);
    ids.add(request.custom_id);
    models.add(request.model);
    digest.update(JSON.stringify(request));
  }
  return { requests: ids.size, models: [...models], digest: digest.digest("hex") };
}
