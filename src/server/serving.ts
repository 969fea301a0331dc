/** State that the handlers of all endpoints share, and the life of one request: waiting, loading, answering, metrics. */
import { setMaxListeners } from "node:events";
import type { Context } from "hono";
import { deferred } from "../deferred.ts";
import { jsonText } from "../json-text.ts";
import type { LanguageModel } from "../language/language-model.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import { Admission } from "./admission.ts";
import type { UnseenPolicy } from "./contents.ts";
import { ApiError, apiFormOf, errorBody, toApiError } from "./errors.ts";
import type { ServerLimits } from "./limits.ts";
import { Metrics } from "./metrics.ts";
import { type ListedModel, ModelPool, type ModelSource } from "./models.ts";
import { type NamedPrompt, PublicPrompts } from "./named-prompts.ts";
import type { RequestRecord } from "./request-record.ts";
import type { ResponseFile } from "./response-file.ts";
import { type StreamEvent, type StreamOptions, streamResponse } from "./sse.ts";
import { StoredResponses } from "./stored-responses.ts";

/** Variables that middleware sets for handlers. */
export interface ServerEnv {
  readonly Variables: { record: RequestRecord; limits: ServerLimits; owner: string; mayManage: boolean };
}
export type ServerContext = Context<ServerEnv>;

/** Token counts of a request. */
export interface TokenCounts {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  /** Number of drafted tokens, and of those that were accepted. */
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
}

/** A request whose turn has come and whose model is loaded. */
export interface Job {
  readonly model: NonNullable<ListedModel["model"]>;
  readonly contextLength: number;
  /** Milliseconds that loading the model took. */
  readonly loadMs: number;
  /** Who shares the prefix cache of the request's prompts; undefined for everyone. */
  readonly prefixScope: PrefixScope | undefined;
  /** Aborts when the client has left, the time limit is reached or the server closes. */
  readonly signal: AbortSignal;
  /** Must be called for each piece of text. */
  wrote(): void;
  /** Must be called once, at the end. */
  took(counts: TokenCounts): void;
}

/** What admission needs to know of a request. */
export interface Demand {
  readonly model: string;
  /** Number of texts that are generated at once. */
  readonly choices: number;
}

/**
 * Downloads a model by name, such as "org/name", and gives it as a source to be served. `onProgress` is called with what is
 * being done, bytes done and bytes in all. ApiError 400 for an invalid name.
 */
export type PullModel = (
  name: string,
  options: {
    readonly signal: AbortSignal;
    readonly onProgress: (what: "downloading" | "quantizing", doneBytes: number, totalBytes: number) => void;
  },
) => Promise<ModelSource>;

export interface ServingOptions {
  readonly models: readonly ModelSource[];
  readonly limits: ServerLimits;
  readonly memoryBytes?: number | undefined;
  /** What happens to images and files that models cannot see. */
  readonly unseen: UnseenPolicy;
  /** What the holders of different keys share of the prefix cache: all of it, or the beginnings of these prompts. */
  readonly sharedPrefixes: "all" | readonly NamedPrompt[];
  /** File that stores responses beside memory; null for none. */
  readonly responseFile?: ResponseFile | null | undefined;
  /** Downloads models; null where the server offers only those it was given. */
  readonly pull: PullModel | null;
  /** Called with errors that no client caused. */
  readonly onFault: (error: unknown, record: RequestRecord) => void;
  /** Called with each request when it has been answered. */
  readonly onEnd: (record: RequestRecord) => void;
}

/** The form of an answer's stream. */
export interface AnswerStreamOptions extends Pick<StreamOptions, "ping" | "form"> {
  /** The events that report an error, given its body, and end the stream. */
  readonly failed: (body: object) => readonly StreamEvent[];
}

/** What can end a request early. */
interface Stop {
  readonly signal: AbortSignal;
  readonly abort: (reason: unknown) => void;
  readonly clear: () => void;
}

export class Serving {
  readonly limits: ServerLimits;
  readonly pool: ModelPool;
  readonly admission: Admission;
  readonly metrics: Metrics;
  readonly unseen: UnseenPolicy;
  readonly pull: PullModel | null;
  /** Stored responses that later requests can continue. */
  readonly responses: StoredResponses;
  /** Prompts that all keys share; null where keys share the whole prefix cache. */
  readonly #publicPrompts: PublicPrompts | null;
  readonly #responseFile: ResponseFile | null;
  readonly #onFault: ServingOptions["onFault"];
  readonly #onEnd: ServingOptions["onEnd"];
  readonly #end = new AbortController();
  readonly #jobs = new Set<Promise<void>>();
  #isDraining = false;

  constructor({
    models,
    limits,
    memoryBytes,
    unseen,
    sharedPrefixes,
    pull,
    responseFile = null,
    onFault,
    onEnd,
  }: ServingOptions) {
    this.#publicPrompts = sharedPrefixes === "all" ? null : new PublicPrompts(sharedPrefixes);
    this.limits = limits;
    this.unseen = unseen;
    this.pull = pull;
    this.responses = new StoredResponses(limits, responseFile);
    this.#responseFile = responseFile;
    // One listener for each request under way.
    setMaxListeners(0, this.#end.signal);
    this.pool = new ModelPool(models, { memoryBytes });
    this.admission = new Admission(limits);
    this.metrics = new Metrics(this.admission, this.pool);
    this.#onFault = onFault;
    this.#onEnd = onEnd;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** Answers a request with the JSON that `work` gives. */
  async answer(c: ServerContext, demand: Demand, work: (job: Job) => Promise<object>): Promise<Response> {
    const stop = this.#stopOf(c);
    async function* once(job: Job) {
      yield await work(job);
    }
    const values = this.#run(c, demand, stop.signal, once);
    try {
      const { value } = await values.next();
      await values.next();
      return c.body(jsonText(value), 200, { "content-type": "application/json" });
    } finally {
      stop.clear();
    }
  }

  /** Answers a request with the events of `work`, as they come. */
  async stream(
    c: ServerContext,
    demand: Demand,
    work: (job: Job) => AsyncGenerator<StreamEvent>,
    options: AnswerStreamOptions,
  ): Promise<Response> {
    const stop = this.#stopOf(c);
    return this.#streamed(c, stop, this.#run(c, demand, stop.signal, work), options);
  }

  /** Answers a request with events of work that needs no model and has no time limit. */
  async streamWork(
    c: ServerContext,
    work: (signal: AbortSignal) => AsyncGenerator<StreamEvent>,
    options: AnswerStreamOptions,
  ): Promise<Response> {
    const stop = this.#stopOf(c, { isTimed: false });
    return this.#streamed(c, stop, this.#untimed(stop, work), options);
  }

  /** Runs work without a model or time limit to its end, for an answer that is not streamed. */
  async work(c: ServerContext, work: (signal: AbortSignal) => AsyncGenerator<unknown>): Promise<void> {
    const stop = this.#stopOf(c, { isTimed: false });
    try {
      for await (const _ of this.#untimed(stop, work));
    } finally {
      stop.clear();
    }
  }

  /** Runs work that closing the server waits for. */
  async *#untimed<T>({ signal }: Stop, work: (signal: AbortSignal) => AsyncGenerator<T>): AsyncGenerator<T> {
    const { promise, resolve } = deferred();
    this.#jobs.add(promise);
    try {
      yield* work(signal);
    } catch (error) {
      throw signal.aborted ? signal.reason : error;
    } finally {
      this.#jobs.delete(promise);
      resolve();
    }
  }

  async #streamed(
    c: ServerContext,
    stop: Stop,
    work: AsyncGenerator<StreamEvent>,
    options: AnswerStreamOptions,
  ): Promise<Response> {
    const record = c.get("record");
    // The request ends when its response was begun and its events are over, in either order.
    let left = 2;
    const part = () => {
      if (--left === 0) this.ended(record);
    };
    const events = this.#tracked(work, record, () => {
      if (stop.signal.aborted) this.failure(stop.signal.reason, record);
      stop.clear();
      part();
    });
    const failed = (thrown: unknown) => options.failed(errorBody(toApiError(thrown), apiFormOf(c.req.path), record.id));
    const response = await streamResponse(events, { ...options, ...this.limits, failed, abort: stop.abort });
    record.isStream = true;
    part();
    return response;
  }

  /** The error for the client; errors that the client did not cause are also logged, once. */
  failure(thrown: unknown, record: RequestRecord): ApiError {
    const error = toApiError(thrown);
    if (record.error !== null) return error;
    record.status = error.status;
    record.error = error.code ?? `status_${error.status}`;
    if (error.status === 500) this.#onFault(error.cause ?? error, record);
    return error;
  }

  /** Must be called once, when a request has been answered. */
  ended(record: RequestRecord): void {
    const endpoint = record.endpoint ?? "other";
    this.metrics.requests.inc({ endpoint, status: record.status });
    this.metrics.requestSeconds.observe({ endpoint }, (performance.now() - record.startedAt) / 1000);
    this.#onEnd(record);
  }

  /** Runs a request: waits for its turn, loads its model, does its work and records metrics. */
  async *#run<T>(
    c: ServerContext,
    { model: name, choices }: Demand,
    signal: AbortSignal,
    work: (job: Job) => AsyncGenerator<T>,
  ): AsyncGenerator<T> {
    const record = c.get("record");
    const arrived = record.startedAt;
    this.pool.check(name);
    record.model = name;
    const { promise, resolve } = deferred();
    this.#jobs.add(promise);
    const ends = [() => this.#jobs.delete(promise), resolve];
    let file = "";
    try {
      ends.push(await this.admission.enter(choices, signal));
      record.queueMs = performance.now() - arrived;
      const loading = performance.now();
      const { model, contextLength, done } = await this.pool.use(name, signal);
      const loadMs = performance.now() - loading;
      ends.push(done);
      file = model.name;
      let last = arrived;
      const firstTokenSeconds = this.metrics.firstTokenSeconds.labels(name);
      const tokenSeconds = this.metrics.tokenSeconds.labels(name);
      const wrote = () => {
        const now = performance.now();
        const isFirst = last === arrived;
        if (isFirst) record.firstTokenMs = now - arrived;
        (isFirst ? firstTokenSeconds : tokenSeconds).observe((now - last) / 1000);
        last = now;
      };
      const prefixScope = this.#scopeOf(c.get("owner"), name, model);
      const took = (counts: TokenCounts) => this.#count(name, counts, record);
      yield* work({ model, contextLength, loadMs, prefixScope, signal, wrote, took });
    } catch (error) {
      throw signal.aborted ? signal.reason : namedAsServed(error, file, name);
    } finally {
      for (const end of ends.reverse()) end();
    }
  }

  /** Passes on events, and calls `onEnd` when they are over, for whatever reason. */
  async *#tracked<T>(events: AsyncGenerator<T>, record: RequestRecord, onEnd: () => void): AsyncGenerator<T> {
    try {
      yield* events;
    } catch (error) {
      throw this.failure(error, record);
    } finally {
      onEnd();
    }
  }

  #scopeOf(owner: string, name: string, model: LanguageModel): PrefixScope | undefined {
    if (owner === "" || !this.#publicPrompts) return undefined;
    const { keyPages } = this.limits;
    return { salt: owner, publicPrompts: this.#publicPrompts.idsFor(name, model), pages: keyPages };
  }

  #count(model: string, counts: TokenCounts, record: RequestRecord): void {
    Object.assign(record, counts);
    this.metrics.promptTokens.inc({ model }, counts.promptTokens);
    this.metrics.cachedTokens.inc({ model }, counts.cachedTokens);
    this.metrics.generatedTokens.inc({ model }, counts.generatedTokens);
    this.metrics.draftedTokens.inc({ model }, counts.draftedTokens);
    this.metrics.acceptedTokens.inc({ model }, counts.acceptedTokens);
  }

  /**
   * A signal that aborts when the client leaves, the time limit is reached or the server closes; `clear` removes its
   * timers.
   */
  #stopOf(c: ServerContext, { isTimed = true } = {}): Stop {
    const stop = new AbortController();
    setMaxListeners(0, stop.signal);
    const { requestSeconds } = this.limits;
    const late = () => stop.abort(new ApiError(408, `the request took longer than ${requestSeconds} seconds`));
    const timer = isTimed ? setTimeout(late, requestSeconds * 1000) : undefined;
    const abort = (reason: unknown) => stop.abort(reason instanceof ApiError ? reason : clientLeft());
    const left = () => abort(undefined);
    const ended = () => stop.abort(this.#end.signal.reason);
    const client = c.req.raw.signal;
    client.addEventListener("abort", left);
    this.#end.signal.addEventListener("abort", ended);
    if (client.aborted) left();
    const clear = () => {
      clearTimeout(timer);
      client.removeEventListener("abort", left);
      this.#end.signal.removeEventListener("abort", ended);
    };
    return { signal: stop.signal, abort, clear };
  }

  /** Refuses new requests, waits for those under way, aborts them after `drainSeconds`, and frees the models. */
  async drain(): Promise<void> {
    this.#isDraining = true;
    const { drainSeconds } = this.limits;
    const over = new ApiError(503, "the server ends", { code: "server_ends" });
    const timer = setTimeout(() => this.#end.abort(over), drainSeconds * 1000);
    while (this.#jobs.size > 0) await Promise.all(this.#jobs);
    clearTimeout(timer);
    await this.pool.dispose();
    await this.#responseFile?.close();
  }

  /** Aborts the requests that `drain` waits for. */
  endNow(): void {
    this.#end.abort(new ApiError(503, "the server ends", { code: "server_ends" }));
  }
}

/** The error with the model's served name in place of its path, which clients must not see. */
function namedAsServed(thrown: unknown, file: string, name: string): unknown {
  const error = toApiError(thrown);
  if (file === "" || !error.message.startsWith(file)) return thrown;
  const { code, param } = error;
  const details = { ...(code !== null && { code }), ...(param !== null && { param }), cause: thrown };
  return new ApiError(error.status, `model ${name}${error.message.slice(file.length)}`, details);
}

function clientLeft(): ApiError {
  return new ApiError(499, "the client left", { code: "client_left" });
}
