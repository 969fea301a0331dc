/** Answers batch files through the handlers of the server, with as many requests at once as can run. */
import { setMaxListeners } from "node:events";
import { orAbort } from "../../abort.ts";
import { checkOutput } from "../../node-file.ts";
import { completeServerLimits, type ServerLimits } from "../limits.ts";
import { createServing } from "../listen.ts";
import type { ModelSource } from "../models.ts";
import { type BatchRequest, type BatchSummary, readRequests, summarize } from "./input.ts";
import { type BatchAnswer, BatchOutput } from "./output.ts";

/** Answers the requests of a batch: in this process, or through a queue. */
export interface BatchAnswerer {
  /** Answers one request. */
  answer(request: BatchRequest): Promise<BatchAnswer>;
  /** Number of requests to have under way: more would not be faster. */
  readonly concurrency: number;
  /** Called with each request when its answer has been written to disk. */
  written?(request: BatchRequest): Promise<void>;
}

/** Answers requests with models of this process. */
export interface LocalAnswerer extends BatchAnswerer {
  /** Waits for requests under way and frees the models. */
  close(): Promise<void>;
}

/** Options of answering batches in this process: the models, and limits of requests. */
export interface AnswererOptions {
  /** Models that requests may name. */
  readonly models: readonly ModelSource[];
  /** Most bytes of all loaded models. Default: the memory that is free when a model is loaded. */
  readonly memoryBytes?: number | undefined;
  /** Limits that replace those of `defaultLimits`. A request may take a day unless `requestSeconds` is given. */
  readonly limits?: Partial<ServerLimits> | undefined;
  /** Called with errors that no request caused. */
  readonly onFault?: ((error: unknown, requestId: string) => void) | undefined;
  /** Ends requests under way; the signal's reason is thrown. */
  readonly signal: AbortSignal;
}

/** Time limit of a request, which nobody waits for: a day. */
const DAY_SECONDS = 86_400;

/** Makes an answerer with models of this process. An abort ends requests under way; the signal's reason is thrown. */
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

/** Options of `runBatch`: the files of requests and answers, and what answers the requests. */
export interface BatchOptions {
  /** Path of the file of requests. */
  readonly input: string;
  /** Path of the file of answers, which is made where there is none. */
  readonly output: string;
  /** Limits that replace those of `defaultLimits`. */
  readonly limits?: Partial<ServerLimits> | undefined;
  /** Makes the answerer, after the file of requests was checked. */
  readonly answerer: (summary: BatchSummary) => Promise<BatchAnswerer>;
  /** Called with the number of answered requests, and of all. */
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
  /** Ends the batch; the signal's reason is thrown. Answers that were written stay. */
  readonly signal?: AbortSignal | undefined;
}

/** Counts of a batch that has ended. */
export interface BatchResult {
  /** Number of requests in the file. */
  readonly requests: number;
  /** Number of requests that were answered before this run. */
  readonly earlier: number;
  /** Number of requests that this run answered with an error. */
  readonly failed: number;
}

/**
 * Answers the requests of a file that have no answer in the output yet, and appends each answer as it comes. A process that
 * is killed loses no written answer; requests that were under way are computed again by the next run.
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

/** Calls `work` for all values, at most `most` at a time. An error ends it, after the calls under way have ended. */
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
