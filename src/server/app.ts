/** The server as a function from requests to responses, without a listening socket. */
import { OpenAPIHono } from "@hono/zod-openapi";
import { cors } from "hono/cors";
import { HTTPException } from "hono/http-exception";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { ApiError, apiFormOf, type ErrorStatus, errorBody } from "./errors.ts";
import type { ApiKeys, Owner } from "./keys.ts";
import { addPage, type Page } from "./page.ts";
import { newRecord } from "./request-record.ts";
import { addChat } from "./routes/chat.ts";
import { addCompletions } from "./routes/completions.ts";
import { addEmbeddings } from "./routes/embeddings.ts";
import { addManagement } from "./routes/management.ts";
import { addMessages } from "./routes/messages.ts";
import { addModels } from "./routes/models.ts";
import { addOllama } from "./routes/ollama.ts";
import { addOllamaModels } from "./routes/ollama-models.ts";
import { addOperations } from "./routes/operations.ts";
import { addResponses } from "./routes/responses.ts";
import type { App } from "./routes/route.ts";
import { addTokens } from "./routes/tokens.ts";
import type { ServerContext, ServerEnv, Serving } from "./serving.ts";
import { WARNING_HEADER, warningHeader } from "./warnings.ts";

export interface AppOptions {
  readonly keys: ApiKeys;
  /** Origins of web pages that may send requests, or "*"; empty for none. */
  readonly origins: readonly string[];
  /** Whether the server is reached from this machine only. If so, hosts and origins are checked against DNS rebinding. */
  readonly isLocal: boolean;
  /** Host names that a local server accepts beside those of this machine, or "*". */
  readonly hosts: readonly string[];
  readonly isReady: () => boolean;
  /** Files of the chat page; empty for none. */
  readonly page: Page;
}

export function createApp(serving: Serving, options: AppOptions): App {
  const app: App = new OpenAPIHono<ServerEnv>({
    defaultHook: (result) => {
      if (!result.success) throw invalidBody(result.error.issues);
    },
  });
  app.onError((thrown, c) => {
    const record = c.get("record");
    const error = serving.failure(asApiError(thrown), record);
    const headers = error.retryAfter === null ? {} : { "retry-after": String(error.retryAfter) };
    return c.json(errorBody(error, apiFormOf(c.req.path), record.id), error.status as ContentfulStatusCode, headers);
  });
  app.notFound((c) => {
    throw new ApiError(404, `${c.req.method} ${c.req.path.slice(0, 200)}: no such endpoint`, {
      code: "no_such_endpoint",
    });
  });
  addGuards(app, serving, options);
  addOperations(app, serving, options.isReady);
  addPage(app, options.page);
  addModels(app, serving);
  addCompletions(app, serving);
  addChat(app, serving);
  addMessages(app, serving);
  addResponses(app, serving);
  addEmbeddings(app, serving);
  addTokens(app, serving);
  addManagement(app, serving);
  addOllama(app, serving);
  addOllamaModels(app, serving);
  refuseOtherMethods(app);
  return app;
}

/** Adds the checks of every request before its body is read: host, origin, key, headers. */
function addGuards(app: App, serving: Serving, options: AppOptions): void {
  app.use(async (c, next) => {
    const record = newRecord(c.req.method, c.req.path, c.req.header("x-request-id"));
    c.set("record", record);
    c.set("limits", serving.limits);
    await next();
    record.endpoint = c.req.routePath === "/*" ? null : c.req.routePath;
    c.res.headers.set("x-request-id", record.id);
    c.res.headers.set("request-id", record.id);
    c.res.headers.set("x-content-type-options", "nosniff");
    const warning = warningHeader(record);
    if (warning !== null) c.res.headers.set(WARNING_HEADER, warning);
    if (!record.isStream) {
      record.status = c.res.status;
      serving.ended(record);
    }
  });
  if (options.origins.length > 0) {
    const exposeHeaders = ["x-request-id", "request-id", "retry-after", WARNING_HEADER];
    app.use(cors({ origin: options.origins.includes("*") ? "*" : [...options.origins], exposeHeaders }));
  }
  app.use(async (c, next) => {
    if (options.isLocal) {
      checkHost(c.req.header("host"), options.hosts);
      checkOrigin(c.req.header("origin"), options.origins);
    }
    if (!OPEN_PATHS.has(c.req.path) && !options.page.has(c.req.path)) {
      const { name, manages } = ownerOf(c, options.keys);
      c.set("owner", name);
      c.set("mayManage", manages ?? options.isLocal);
      if (serving.isDraining) throw new ApiError(503, "the server ends", { code: "server_ends", retryAfter: 1 });
    }
    await next();
  });
}

const OPEN_PATHS: ReadonlySet<string> = new Set(["/", "/health", "/ready", "/metrics", "/openapi.json"]);

function ownerOf(c: ServerContext, keys: ApiKeys): Owner {
  const owner = keys.ownerOf({ authorization: c.req.header("authorization"), apiKey: c.req.header("x-api-key") });
  if (owner !== null) return owner;
  throw new ApiError(401, "expected one of the server's API keys, in Authorization: Bearer or in x-api-key", {
    code: "invalid_api_key",
  });
}

const LOCAL_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;

/** DNS rebinding: a hostile host that resolves to 127.0.0.1 still sends its own name, with any method. */
function checkHost(host: string | undefined, allowed: readonly string[]): void {
  if (host === undefined || LOCAL_HOST.test(host) || allowed.includes("*")) return;
  if (allowed.includes(host.toLowerCase().replace(/:\d{1,5}$/, ""))) return;
  throw new ApiError(403, "host: expected localhost, 127.0.0.1, [::1] or a name of --allow-host", {
    ...{ code: "host_not_allowed" },
  });
}

/** A page of a host that rebinds DNS also sends that host as its origin. */
function checkOrigin(origin: string | undefined, allowed: readonly string[]): void {
  if (origin === undefined || allowed.includes("*") || allowed.includes(origin)) return;
  if (!LOCAL_HOST.test(origin.replace(/^https?:\/\//i, "")))
    throw new ApiError(403, "pages of this origin may not ask", { code: "origin_not_allowed" });
}

interface Issue {
  readonly code?: string;
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly expected?: string;
  /** Issues of each member of a union. */
  readonly errors?: readonly (readonly Issue[])[];
}

function invalidBody(issues: readonly Issue[]): ApiError {
  const { path, message } = deepest(issues[0]!);
  const param = path.map(String).join(".").slice(0, 200);
  return new ApiError(400, `${param === "" ? "body" : param}: ${message}`, param === "" ? {} : { param });
}

/**
 * The most telling issue: in a union, that of the member that fits the value furthest; where no member fits, the union's
 * own.
 */
function deepest(issue: Issue): Issue {
  const inner = (issue.errors ?? []).flatMap((issues) => (issues[0] ? [deepest(issues[0])] : []));
  if (inner.length === 0) return issue;
  const last = ({ path }: Issue) => Number(path.at(-1)) || 0;
  const isType = ({ code, path }: Issue) => Number(code === "invalid_type" && path.length === 0);
  // A member whose `type` matches is more telling than members of other types.
  const isKind = ({ path }: Issue) => Number(path.length === 1 && path[0] === "type");
  const best = inner.sort(
    (a, b) => isKind(a) - isKind(b) || b.path.length - a.path.length || last(b) - last(a) || isType(a) - isType(b),
  )[0]!;
  if (!isType(best)) return { ...best, path: [...issue.path, ...best.path] };
  const types = [...new Set(inner.flatMap(({ expected }) => expected ?? []))].join(" or ");
  return {
    ...best,
    path: issue.path,
    expected: types,
    message: best.message.replace(/expected [^,]*/, `expected ${types}`),
  };
}

function asApiError(error: unknown): unknown {
  if (!(error instanceof HTTPException)) return error;
  const { status, message } = error;
  return new ApiError(status as ErrorStatus, status === 415 ? "expected content-type: application/json" : message);
}

/** Answers other methods of each path with 405 and the methods that it has. */
function refuseOtherMethods(app: App): void {
  const allowed = new Map<string, Set<string>>();
  for (const { path, method } of app.routes)
    if (method !== "ALL") allowed.set(path, (allowed.get(path) ?? new Set()).add(method));
  // Paths with a parameter come last, since they match other paths, too.
  const isOpen = ([path]: readonly [string, unknown]) => Number(path.includes(":"));
  for (const [path, methods] of [...allowed].sort((a, b) => isOpen(a) - isOpen(b)))
    app.all(path, (c) => {
      c.header("allow", [...methods].join(", "));
      throw new ApiError(405, `${c.req.method}: expected ${[...methods].join(" or ")}`, { code: "method_not_allowed" });
    });
}
