/** Batches that several machines share through a queue in Redis: one adds the requests of a file, workers answer them. */
import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { InvalidArgumentError, UnsupportedError } from "../../errors.ts";
import type { BatchAnswerer } from "./batch.ts";
import { type BatchRequest, batchRequest } from "./input.ts";
import type { BatchAnswer } from "./output.ts";

/** The part of BullMQ that is used; users who want queues install it. */
interface Job {
  readonly id: string;
  readonly data: unknown;
  waitUntilFinished(events: QueueEvents): Promise<BatchAnswer>;
  remove(): Promise<void>;
}
interface QueueEvents {
  setMaxListeners(count: number): void;
  waitUntilReady(): Promise<unknown>;
  close(): Promise<void>;
  on(event: "error", listener: (error: Error) => void): void;
}
interface Queue {
  setMaxListeners(count: number): void;
  add(name: string, data: BatchRequest, options: object): Promise<Job>;
  close(): Promise<void>;
  on(event: "error", listener: (error: Error) => void): void;
}
interface Worker {
  close(force?: boolean): Promise<void>;
  on(event: "error", listener: (error: Error) => void): void;
}
interface BullMq {
  readonly Queue: new (name: string, options: object) => Queue;
  readonly QueueEvents: new (name: string, options: object) => QueueEvents;
  readonly Worker: new (name: string, work: (job: Job) => Promise<BatchAnswer>, options: object) => Worker;
}

/** Options of a queue: its Redis server, and when a silent worker loses its work. */
export interface QueueOptions {
  /** URL of the Redis server, such as "redis://host:6379". */
  readonly url: string;
  /** Called with errors of the connection, which is tried again. */
  readonly onTrouble?: ((error: Error) => void) | undefined;
  /** Milliseconds without a sign of life after which a worker's requests are given to others. Default: 30000. */
  readonly lockMs?: number | undefined;
}

const QUEUE = "lowbit-batch";
/** How often a request may lose its worker: a killed worker is no fault of the request. */
const STALLS_MAX = 1000;
const ATTEMPTS = 5;
const RETRY_MS = 1000;
const LOCK_MS = 30_000;
/** Seconds that answers stay in Redis for the process that added the requests. */
const KEPT_SECONDS = 7 * 86_400;
const KEPT = { removeOnComplete: { age: KEPT_SECONDS }, removeOnFail: { age: KEPT_SECONDS } };
/** Most requests in the queue at once, enough for many workers. */
const IN_QUEUE = 1024;

/** Imports BullMQ from where this package is installed, or else from the folder that the process was started in. */
async function loadBullMq(): Promise<BullMq> {
  const name = "bullmq";
  const here = createRequire(`${process.cwd()}/`);
  const load = () => import(name).catch(() => import(pathToFileURL(here.resolve(name)).href));
  try {
    return (await load()) as BullMq;
  } catch (cause) {
    throw new UnsupportedError("queues need the packages bullmq and ioredis: npm install bullmq ioredis", { cause });
  }
}

function connectionOf(url: string): object {
  const found = URL.canParse(url) ? new URL(url) : null;
  if (found === null || !/^rediss?:$/.test(found.protocol))
    throw new InvalidArgumentError("queue: expected an address such as redis://host:6379");
  return {
    host: found.hostname.replace(/^\[|\]$/g, ""),
    port: Number(found.port || 6379),
    ...(found.username === "" ? {} : { username: decodeURIComponent(found.username) }),
    ...(found.password === "" ? {} : { password: decodeURIComponent(found.password) }),
    ...(found.pathname.length > 1 ? { db: Number(found.pathname.slice(1)) } : {}),
    ...(found.protocol === "rediss:" ? { tls: {} } : {}),
    maxRetriesPerRequest: null,
  };
}

/**
 * Makes an answerer that hands requests to workers. A request of a batch (`digest`) is in the queue once, however often
 * added.
 */
export async function queueAnswerer(
  { url, onTrouble = () => {} }: QueueOptions,
  digest: string,
): Promise<BatchAnswerer & { close(): Promise<void> }> {
  const connection = connectionOf(url);
  const { Queue, QueueEvents } = await loadBullMq();
  const queue = new Queue(QUEUE, { connection });
  const events = new QueueEvents(QUEUE, { connection });
  for (const part of [queue, events]) {
    part.on("error", onTrouble);
    // One listener for each request under way.
    part.setMaxListeners(0);
  }
  const jobs = new Map<string, Job>();
  await events.waitUntilReady();
  return {
    concurrency: IN_QUEUE,
    async answer(request) {
      const jobId = createHash("sha256").update(`${digest}\n${request.custom_id}`).digest("hex");
      const backoff = { type: "exponential", delay: RETRY_MS };
      const job = await queue.add("request", request, { jobId, attempts: ATTEMPTS, backoff, ...KEPT });
      jobs.set(request.custom_id, job);
      try {
        return await job.waitUntilFinished(events);
      } catch (error) {
        const message = `no worker could answer: ${(error as Error).message}`;
        const body = JSON.stringify({ error: { message, type: "server_error" } });
        return { status_code: 500, request_id: jobId, body };
      }
    },
    async written({ custom_id }) {
      await jobs.get(custom_id)?.remove();
      jobs.delete(custom_id);
    },
    async close() {
      await events.close();
      await queue.close();
    },
  };
}

/** Takes requests from the queue until it is closed; closing waits for those under way. */
export async function startWorker(
  { url, onTrouble = () => {}, lockMs = LOCK_MS }: QueueOptions,
  { answer, concurrency }: BatchAnswerer,
  onAnswer: (request: BatchRequest, answer: BatchAnswer) => void = () => {},
): Promise<{ close(): Promise<void> }> {
  const connection = connectionOf(url);
  const { Worker } = await loadBullMq();
  const work = async (job: Job) => {
    const request = batchRequest.parse(job.data);
    const answered = await answer(request);
    onAnswer(request, answered);
    return answered;
  };
  const limits = { lockDuration: lockMs, stalledInterval: lockMs / 2, maxStalledCount: STALLS_MAX };
  const worker = new Worker(QUEUE, work, { connection, concurrency, ...limits });
  worker.on("error", onTrouble);
  return { close: () => worker.close() };
}
