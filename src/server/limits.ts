/** Limits of a server: what a request may cost, and how long it may wait. */
import { checkWhole } from "../arguments.ts";

/** Limits of a server, each a whole number from 1. */
export interface ServerLimits {
  /** Most bytes of a request's body after decompression; more is a 413. Default: 32 MiB. */
  readonly bodyBytes: number;
  /** Most levels of lists and objects in a request's JSON; more is a 400. Default: 64. */
  readonly jsonDepth: number;
  /** Most messages of a conversation. Default: 2048. */
  readonly messages: number;
  /** Most tools of a request, including those of namespaces. Default: 1024. */
  readonly tools: number;
  /** Most texts that a request may ask for: `n` times its prompts. Default: 32. */
  readonly choices: number;
  /** Most texts that are generated at the same time, by all models together; further requests wait. Default: 32. */
  readonly running: number;
  /** Most requests that wait; one more is a 429. Default: 256. */
  readonly waiting: number;
  /** Most seconds of a request, waiting included; a 408 after that. Default: 1800. */
  readonly requestSeconds: number;
  /** Most seconds until the headers have come, and then until the body has; a 408 after that. Default: 30. */
  readonly receiveSeconds: number;
  /** Seconds after which a stream whose client reads nothing is aborted. Default: 60. */
  readonly stalledSeconds: number;
  /** Seconds without an event after which a stream sends a ping. Default: 15. */
  readonly pingSeconds: number;
  /** Most stored responses (/v1/responses); the longest unused is removed first. Default: 1024. */
  readonly responses: number;
  /** Most bytes of all stored responses. Default: 64 MiB. */
  readonly responseBytes: number;
  /**
   * Most pages (32 tokens) of the prefix cache for each key and model, in memory and as many again on disk. Default:
   * unlimited.
   */
  readonly keyPages: number;
  /** Seconds that requests under way get to end when the server is closed. Default: 30. */
  readonly drainSeconds: number;
}

/** Default limits of a server. */
export const defaultLimits: ServerLimits = {
  bodyBytes: 32 * 2 ** 20,
  jsonDepth: 64,
  messages: 2048,
  tools: 1024,
  choices: 32,
  running: 32,
  waiting: 256,
  requestSeconds: 1800,
  receiveSeconds: 30,
  stalledSeconds: 60,
  pingSeconds: 15,
  responses: 1024,
  responseBytes: 64 * 2 ** 20,
  keyPages: Number.MAX_SAFE_INTEGER,
  drainSeconds: 30,
};

/** Largest number of seconds: Node's timers have 31 bits of milliseconds. */
const SECONDS_MAX = 2_000_000;

/**
 * The default limits, overridden by those given. InvalidArgumentError, naming the limit, for anything but a whole number
 * from 1.
 */
export function completeServerLimits(limits: Partial<ServerLimits> = {}): ServerLimits {
  const given = Object.entries(limits).filter(([, value]) => value !== undefined);
  for (const [name, value] of given)
    checkWhole(`limits.${name}`, value, 1, name.endsWith("Seconds") ? SECONDS_MAX : Number.MAX_SAFE_INTEGER);
  return { ...defaultLimits, ...Object.fromEntries(given) };
}
