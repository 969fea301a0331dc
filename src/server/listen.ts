/** A server that listens: HTTP by Node, from its start to its drained end. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener, RequestError } from "@hono/node-server";
import { checkWhole } from "../arguments.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import { createApp } from "./app.ts";
import { answerBroken } from "./broken-requests.ts";
import type { UnseenPolicy } from "./contents.ts";
import { ApiError, errorBody } from "./errors.ts";
import { newId } from "./ids.ts";
import { type ApiKey, ApiKeys } from "./keys.ts";
import { completeServerLimits, type ServerLimits } from "./limits.ts";
import type { ListedModel, ModelSource } from "./models.ts";
import { type NamedPrompt, warmPrompts } from "./named-prompts.ts";
import { type Page, readPage } from "./page.ts";
import { logLine, type RequestRecord } from "./request-record.ts";
import { ResponseFile } from "./response-file.ts";
import type { App } from "./routes/route.ts";
import { type PullModel, Serving } from "./serving.ts";

/** What a server offers, to whom, and where. */
export interface ServerOptions {
  /** Models that requests may name, at least one. */
  readonly models: readonly ModelSource[];
  /** Names of models that are loaded at once; the server is ready when they are. Default: none, or the only one. */
  readonly preload?: readonly string[] | undefined;
  /** Address to listen at. Default: 127.0.0.1, which only this machine reaches. */
  readonly host?: string | undefined;
  /** Default: 8080; 0 takes one that is free. */
  readonly port?: number | undefined;
  /**
   * Keys, of which a request must carry one; those that manage may change which models there are. Default: none, everyone may ask,
   * and who asks from this machine may manage.
   */
  readonly keys?: readonly (string | ApiKey)[] | undefined;
  /** Origins of pages that may ask, such as "https://example.com", or "*". Default: none. */
  readonly origins?: readonly string[] | undefined;
  /**
   * Names by which requests may call a server that only this machine reaches, beside those of this machine: that of a proxy in
   * front, or "*". Default: none, so that no page of another site comes in by a name that it made to mean this machine.
   */
  readonly hosts?: readonly string[] | undefined;
  /** Most bytes of all loaded models. Default: what is free when one is to be loaded. */
  readonly memoryBytes?: number | undefined;
  /** Whether the chat page is at `/`. Default: true. */
  readonly page?: boolean | undefined;
  /** What requests may cost, where it is not what `defaultLimits` has. */
  readonly limits?: Partial<ServerLimits> | undefined;
  /**
   * What becomes of images and files that a model cannot see: named in the prompt ("name"), or refused. Default: refused in
   * the last message of a user, named in results of tools and in what was said before ("auto").
   */
  readonly unseen?: UnseenPolicy | undefined;
  /**
   * What keys share of what was computed of prompts: all of it ("all"), or the beginnings of prompts of `parsePrompts`.
   * Default: nothing.
   */
  readonly sharedPrefixes?: "all" | readonly NamedPrompt[] | undefined;
  /** Prompts that models are given when they are loaded first, before the server is ready; keys share them. Default: none. */
  readonly warm?: readonly NamedPrompt[] | undefined;
  /** Downloads models that requests ask for who may manage. Default: there are none but `models`. */
  readonly pull?: PullModel | undefined;
  /**
   * Path of a file in which responses of /v1/responses are kept for the server that comes after this one. Default: none, they are kept in
   * memory.
   */
  readonly responsesFile?: string | undefined;
  /** Takes the line of each request that has ended. Default: none. */
  readonly log?: ((line: string) => void) | undefined;
  /** Told of errors that are no client's. Default: they are logged by their class and message. */
  readonly onFault?: ((error: unknown, requestId: string) => void) | undefined;
}

/** A server that listens. */
export interface RunningServer {
  /** Where it is reached, such as "http://127.0.0.1:8080". */
  readonly url: string;
  /** Whether the chat page is there: not where it was left out or not built. */
  readonly hasPage: boolean;
  /** The models and where they are now. */
  readonly models: readonly ListedModel[];
  /** Resolves when the models to be loaded first are there; rejects when one cannot be. */
  readonly ready: Promise<void>;
  /** Takes no more requests, lets those under way end, and frees everything. A second call ends them at once. */
  close(): Promise<void>;
}

const LOOPBACK: readonly string[] = ["127.0.0.1", "::1", "localhost"];
const HEADER_BYTES = 16384;
const PORT_MAX = 65535;

/** The server before it listens: also what answers the lines of batch files. */
export function createServing(
  options: ServerOptions,
  page: Page = new Map(),
  responseFile: ResponseFile | null = null,
) {
  const limits = completeServerLimits(options.limits);
  const { models, memoryBytes, log, origins = [], hosts = [], host = "127.0.0.1" } = options;
  if (models.length === 0) throw new InvalidArgumentError("models: expected at least one");
  const onFault = (error: unknown, { id }: RequestRecord) => options.onFault?.(error, id);
  const onEnd = (record: RequestRecord) => log?.(logLine(record, new Date()));
  const { unseen = "auto", sharedPrefixes: shared = [], warm = [], pull = null } = options;
  const sharedPrefixes = shared === "all" ? shared : [...shared, ...warm];
  const serving = new Serving({
    models,
    limits,
    memoryBytes,
    unseen,
    sharedPrefixes,
    pull,
    responseFile,
    onFault,
    onEnd,
  });
  const preload = options.preload ?? (models.length === 1 ? [models[0]!.name] : []);
  for (const name of preload) serving.pool.check(name);
  let isReady = preload.length === 0;
  const app = createApp(serving, {
    keys: new ApiKeys(options.keys ?? []),
    origins,
    isLocal: LOOPBACK.includes(host),
    hosts: hosts.map((name) => name.toLowerCase()),
    isReady: () => isReady,
    page,
  });
  const load = async () => {
    const { signal } = new AbortController();
    for (const name of preload) {
      const { model, done } = await serving.pool.use(name, signal);
      await warmPrompts(warm, name, model, signal).finally(done);
    }
    isReady = true;
  };
  return { app, serving, load };
}

function httpServer(fetch: App["fetch"], { receiveSeconds }: ServerLimits): Server {
  const options = {
    maxHeaderSize: HEADER_BYTES,
    headersTimeout: receiveSeconds * 1000,
    requestTimeout: receiveSeconds * 1000,
    connectionsCheckingInterval: Math.min(receiveSeconds * 500, 5000),
    keepAliveTimeout: 75_000,
    // Refused below with a sentence.
    requireHostHeader: false,
  };
  const errorHandler = (error: unknown) => {
    if (!(error instanceof RequestError)) throw error;
    const body = errorBody(new ApiError(400, error.message), "openai", newId("req", "_"));
    return Response.json(body, { status: 400, headers: { connection: "close" } });
  };
  const server = createServer(options, getRequestListener(fetch, { overrideGlobalObjects: false, errorHandler }));
  answerBroken(server);
  return server;
}

/** Listens. InvalidArgumentError for options that do not fit; UnsupportedError when the address cannot be listened at. */
export async function serveModels(options: ServerOptions): Promise<RunningServer> {
  checkWhole("port", options.port ?? 0, 0, PORT_MAX);
  const page = options.page === false ? undefined : await readPage();
  const { host = "127.0.0.1", port = 8080, responsesFile } = options;
  const kept = responsesFile === undefined ? null : await ResponseFile.open(responsesFile);
  const { app, serving, load } = createServing(options, page, kept);
  const server = httpServer(app.fetch, serving.limits);
  await listening(server, host, port).catch(async (error) => {
    await kept?.close();
    throw error;
  });
  const ready = load();
  ready.catch(() => {});
  let closing: Promise<void> | null = null;
  return {
    url: urlOf(server.address() as AddressInfo),
    hasPage: page?.has("/") ?? false,
    get models() {
      return serving.pool.models;
    },
    ready,
    close() {
      if (closing) serving.endNow();
      closing ??= close(server, serving);
      return closing;
    },
  };
}

/** Idle connections are closed at once, others when their request has been answered. */
async function close(server: Server, serving: Serving): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  const idle = setInterval(() => server.closeIdleConnections(), 100);
  await serving.drain();
  server.closeIdleConnections();
  const late = setTimeout(() => server.closeAllConnections(), 1000);
  await closed;
  clearTimeout(late);
  clearInterval(idle);
}

function listening(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause) => reject(new UnsupportedError(`cannot listen: ${cause.message}`, { cause })));
    server.listen(port, host, () => resolve());
  });
}

function urlOf({ address, port, family }: AddressInfo): string {
  return `http://${family === "IPv6" ? `[${address}]` : address}:${port}`;
}
