/** Facts about a request for its log line, without any of its content. */
import { newId } from "./ids.ts";

export interface RequestRecord {
  readonly id: string;
  /** Time of its arrival, by `performance.now()`. */
  readonly startedAt: number;
  readonly method: string;
  readonly path: string;
  /** Path of the route that serves it; null for none. */
  endpoint: string | null;
  status: number;
  isStream: boolean;
  model: string | null;
  queueMs: number | null;
  firstTokenMs: number | null;
  promptTokens: number | null;
  cachedTokens: number | null;
  generatedTokens: number | null;
  draftedTokens: number | null;
  acceptedTokens: number | null;
  /** Warnings about fields of the request that were left out. */
  readonly warnings: string[];
  /** Code of the error; its message may have contents of the request. */
  error: string | null;
}

/** Request ids that callers give, to find their requests in several logs. */
const GIVEN_ID = /^[\w-]{1,64}$/;
const PATH_MAX = 200;

export function newRecord(method: string, path: string, givenId: string | undefined): RequestRecord {
  const id = givenId !== undefined && GIVEN_ID.test(givenId) ? givenId : newId("req", "_");
  return {
    id,
    startedAt: performance.now(),
    method,
    path: path.slice(0, PATH_MAX),
    endpoint: null,
    status: 200,
    isStream: false,
    model: null,
    queueMs: null,
    firstTokenMs: null,
    promptTokens: null,
    cachedTokens: null,
    generatedTokens: null,
    draftedTokens: null,
    acceptedTokens: null,
    warnings: [],
    error: null,
  };
}

/** The log line as JSON. Fields that do not apply are left out. */
export function logLine(record: RequestRecord, time: Date): string {
  const { startedAt, isStream, endpoint: _, queueMs, firstTokenMs, warnings, ...fields } = record;
  const whole = (ms: number | null) => (ms === null ? null : Math.round(ms * 10) / 10);
  const line = {
    time: time.toISOString(),
    ...fields,
    ms: whole(performance.now() - startedAt),
    queueMs: whole(queueMs),
    firstTokenMs: whole(firstTokenMs),
    stream: isStream || null,
    warnings: warnings.length > 0 ? warnings : null,
  };
  return JSON.stringify(Object.fromEntries(Object.entries(line).filter(([, value]) => value !== null)));
}
