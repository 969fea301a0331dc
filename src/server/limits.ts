/** What a server lets a request cost, and how it waits for others. */
import { checkWhole } from "../arguments.ts";

/** Limits of a server; each is a whole number from 1. */
export interface ServerLimits {
  /** Bytes of a request's body, unpacked where it is compressed; more is a 413. Default: 32 MiB. */
  readonly bodyBytes: number;
  /** Levels of lists and objects in a request's JSON; more is a 400. Default: 64. */
  readonly jsonDepth: number;
  /** Messages of a conversation. Default: 2048. */
  readonly messages: number;
  /** Tools of a request, those of namespaces included. Default: 1024. */
  readonly tools: number;
  /** Texts that a request may ask for, `n` times its prompts. Default: 32. */
  readonly choices: number;
  /** Texts that are generated at the same time, by all models together; others wait. Default: 32. */
  readonly running: number;
  /** Requests that wait for their turn; one more is a 429. Default: 256. */
  readonly waiting: number;
  /** Seconds that a request may take with its waiting; a 408 after that. Default: 1800. */
  readonly requestSeconds: number;
  /** Seconds in which headers, and after them the body, have to come; a 408 after that. Default: 30. */
  readonly receiveSeconds: number;
  /** Seconds that a reader of a stream may take nothing, before its computation is ended. Default: 60. */
  readonly stalledSeconds: number;
  /** Seconds between pings of a stream in which nothing else happens. Default: 15. */
  readonly pingSeconds: number;
  /** Responses that are kept to be gone on from; the longest unused is forgotten first. Default: 1024. */
  readonly responses: number;
  /** Bytes of all responses that are kept. Default: 64 MiB. */
  readonly responseBytes: number;
  /** Pages of 32 tokens of prompts that are kept for each key and model, in memory and as many on disk. Default: as many as there is room for. */
  readonly keyPages: number;
  /** Seconds that requests under way are given when the server is told to end. Default: 30. */
  readonly drainSeconds: number;
}

/** The limits of a server that is given none. */
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

/** Timers of Node have 31 bits of milliseconds. */
const SECONDS_MAX = 2_000_000;

/** The defaults with what was given in their place. InvalidArgumentError naming the limit for what is no whole number from 1. */
export function completeServerLimits(limits: Partial<ServerLimits> = {}): ServerLimits {
  const given = Object.entries(limits).filter(([, value]) => value !== undefined);
  for (const [name, value] of given)
    checkWhole(`limits.${name}`, value, 1, name.endsWith("Seconds") ? SECONDS_MAX : Number.MAX_SAFE_INTEGER);
  return { ...defaultLimits, ...Object.fromEntries(given) };
}
