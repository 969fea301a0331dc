/** Answers files of requests through the handlers of the server, with as many at once as run together. */
import { setMaxListeners } from "node:events";
import { orAbort } from "../../abort.ts";
import { checkOutput } from "../../node-file.ts";
import { completeServerLimits, type ServerLimits } from "../limits.ts";
import { createServing } from "../listen.ts";
import type { ModelSource } from "../models.ts";
import { type BatchRequest, type BatchSummary, readRequests, summarize } from "./input.ts";
import { type BatchAnswer, BatchOutput } from "./output.ts";

/** What answers the requests of a batch. */
export interface BatchAnswerer {
  /** Answers one request. */
  answer(request: BatchRequest): Promise<BatchAnswer>;
  /** Requests that may be asked for at once and are worth it. */
  readonly concurrency: number;
  /** Told of each request when its answer is on the disk. */
  written?(request: BatchRequest): Promise<void>;
}

/** What answers requests in this process. */
export interface LocalAnswerer extends BatchAnswerer {
  /** Waits for what is under way and frees the models. */
  close(): Promise<void>;
}

/** The models that answer the requests of a batch in this process, and what requests may cost. */
export interface AnswererOptions {
  /** Models that requests may name. */
  readonly models: readonly ModelSource[];
  /** Most bytes of all loaded models. Default: what is free when one is to be loaded. */
  readonly memoryBytes?: number | undefined;
  /** What requests may cost, where it is not what `defaultLimits` has; they may take a day. */
  readonly limits?: Partial<ServerLimits> | undefined;
  /** Told of errors that are no request's. */
  readonly onFault?: ((error: unknown, requestId: string) => void) | undefined;
  /** Ends what is under way; its reason is thrown. */
  readonly signal: AbortSignal;
}

/** Nobody waits for a batch: its requests take the time that they need. */
const DAY_SECONDS = 86_400;

/** The models of this process. An abort ends what is under way; its reason is thrown. */
export function localAnswerer(options: AnswererOptions): LocalAnswerer {
  const concurrency = 2 * completeServerLimits(options.limits).running;
  setMaxListeners(0, options.signal);
  const limits = { requestSeconds: DAY_SECONDS, ...options.limits, waiting: concurrency };
  const { app, serving } = createServing({ ...options, limits, preload: [] });
  return {
    concurrency,
    async answer({ url, body }) {
      const { signal } = options;
      signal.throwIfAborted();
      const headers = { "content-type": "application/json" };
      const response = await app.request(url, { method: "POST", headers, body, signal });
      const answer = await response.text();
      signal.throwIfAborted();
      return { status_code: response.status, request_id: response.headers.get("x-request-id")!, body: answer };
    },
    close: () => serving.drain(),
  };
}

/** Where the requests of a batch are, where the answers go, and what answers them. */
export interface BatchOptions {
  /** Path of the file of requests. */
  readonly input: string;
  /** Path of the file of answers, which need not be there. */
  readonly output: string;
  /** What requests may cost, where it is not what `defaultLimits` has. */
  readonly limits?: Partial<ServerLimits> | undefined;
  /** What answers, made when the file is known to be sound. */
  readonly answerer: (summary: BatchSummary) => Promise<BatchAnswerer>;
  /** Told how many requests have an answer. */
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
  /** Ends the batch; the signal's reason is thrown. What has been written stays. */
  readonly signal?: AbortSignal | undefined;
}

/** What a batch came to. */
export interface BatchResult {
  /** Requests of the file. */
  readonly requests: number;
  /** Answered before this run. */
  readonly earlier: number;
  /** Answered with an error by this run. */
  readonly failed: number;
}

/**
 * Answers the requests of a file that have no answer in the output yet, and appends the answers as they come. A process
 * that was killed loses nothing that is in the output; what was under way is computed again.
 */
export async function runBatch(options: BatchOptions): Promise<BatchResult> {
  const limits = completeServerLimits(options.limits);
  if (options.signal) setMaxListeners(0, options.signal);
  await checkOutput(options.output, [options.input]);
  const summary = await summarize(options.input, limits);
  const output = await BatchOutput.open(options.output);
  const total = summary.requests;
  let failed = 0;
  let earlier = 0;
  try {
    options.onProgress?.(output.done.size, total);
    const answerer = await options.answerer(summary);
    const run = async (request: BatchRequest) => {
      const response = await orAbort(answerer.answer(request), options.signal);
      if (response.status_code >= 400) failed++;
      await output.write(request.custom_id, response);
      await answerer.written?.(request);
      options.onProgress?.(output.done.size, total);
    };
    const left = async function* () {
      for await (const request of readRequests(options.input, limits)) {
        options.signal?.throwIfAborted();
        if (output.done.has(request.custom_id)) earlier++;
        else yield request;
      }
    };
    await inParallel(left(), answerer.concurrency, run);
    return { requests: total, earlier, failed };
  } finally {
    await output.close();
  }
}

/** Runs work for values, some at once. An error ends it, when what is under way has ended. */
async function inParallel<T>(
  values: AsyncGenerator<T>,
  most: number,
  work: (value: T) => Promise<void>,
): Promise<void> {
  const running = new Set<Promise<void>>();
  let failure: { readonly error: unknown } | null = null;
  const begin = (value: T) => {
    const task = work(value)
      .catch((error: unknown) => {
        failure ??= { error };
      })
      .finally(() => running.delete(task));
    running.add(task);
  };
  for await (const value of values) {
    if (failure) break;
    begin(value);
    if (running.size >= most) await Promise.race(running);
  }
  await Promise.all(running);
  if (failure) throw (failure as { error: unknown }).error;
}
