/** A listening HTTP server on Node, from start to graceful shutdown. */
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

/** Options of a server: models, keys, address, and limits. */
export interface ServerOptions {
  /** Models that requests may name, at least one. */
  readonly models: readonly ModelSource[];
  /** Names of models that are loaded at the start; the server is ready when they are. Default: none, or the only model. */
  readonly preload?: readonly string[] | undefined;
  /** Address to listen on. Default: 127.0.0.1, which only this machine reaches. */
  readonly host?: string | undefined;
  /** Port to listen on; 0 takes a free one. Default: 8080. */
  readonly port?: number | undefined;
  /**
   * API keys, one of which each request must carry. Default: none, so that everyone may send requests, and those from this
   * machine may manage models.
   */
  readonly keys?: readonly (string | ApiKey)[] | undefined;
  /** Origins of web pages that may send requests, such as "https://example.com", or "*". Default: none. */
  readonly origins?: readonly string[] | undefined;
  /**
   * Host names that a server on this machine accepts beside localhost, such as that of a proxy, or "*". Default: none,
   * which protects against DNS rebinding.
   */
  readonly hosts?: readonly string[] | undefined;
  /** Most bytes of all loaded models. Default: the memory that is free when a model is loaded. */
  readonly memoryBytes?: number | undefined;
  /** Whether to serve the chat page at `/`. Default: true. */
  readonly page?: boolean | undefined;
  /** Limits that replace those of `defaultLimits`. */
  readonly limits?: Partial<ServerLimits> | undefined;
  /**
   * What happens to images and files that a model cannot see: named in the prompt ("name"), or refused ("refuse"). Default:
   * "auto", refused in the user's newest message, and named in tool results and earlier messages.
   */
  readonly unseen?: UnseenPolicy | undefined;
  /**
   * What the holders of different keys share of the prefix cache: all of it ("all"), or the beginnings of these prompts, as
   * `parsePrompts` gives them. Default: nothing.
   */
  readonly sharedPrefixes?: "all" | readonly NamedPrompt[] | undefined;
  /**
   * Prompts that are computed after a model is first loaded, before the server is ready, and that all keys share. Default:
   * none.
   */
  readonly warm?: readonly NamedPrompt[] | undefined;
  /** Downloads a model that a client with a managing key asks for. Default: only `models` are offered. */
  readonly pull?: PullModel | undefined;
  /**
   * Path of a file that stores the responses of /v1/responses across restarts. Default: none, they are stored in memory
   * only.
   */
  readonly responsesFile?: string | undefined;
  /** Called with the log line of each request that has ended. Default: none. */
  readonly log?: ((line: string) => void) | undefined;
  /** Called with errors that no client caused. Default: they are logged by their class and message. */
  readonly onFault?: ((error: unknown, requestId: string) => void) | undefined;
}

/** A server that is listening. */
export interface RunningServer {
  /** Address of the server, such as "http://127.0.0.1:8080". */
  readonly url: string;
  /** Whether the chat page is served: not where it was turned off or not built. */
  readonly hasPage: boolean;
  /** The models, and whether each is loaded. */
  readonly models: readonly ListedModel[];
  /** Resolves when the models of `preload` are loaded; rejects when one cannot be. */
  readonly ready: Promise<void>;
  /**
   * Shuts down: refuses new requests, lets those under way end, and frees everything. A second call aborts them at once.
   */
  close(): Promise<void>;
}

const LOOPBACK: readonly string[] = ["127.0.0.1", "::1", "localhost"];
const HEADER_BYTES = 16384;
const PORT_MAX = 65535;

/** Makes the server without listening, also for answering batch files. */
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
    // The app refuses requests without a host, with an error in the form of the API.
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

/** Starts a server. InvalidArgumentError for invalid options; UnsupportedError when the address cannot be listened on. */
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

/** Closes idle connections at once, others when their request has been answered. */
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
