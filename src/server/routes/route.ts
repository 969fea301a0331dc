/** Adds endpoints to the app: path, schemas of requests and responses, and handler. */
import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import { readBody } from "../body.ts";
import { type ApiForm, apiFormOf } from "../errors.ts";
import { anthropicErrorSchema, ollamaErrorSchema, openaiErrorSchema } from "../schemas/fields.ts";
import type { ServerContext, ServerEnv } from "../serving.ts";

export type App = OpenAPIHono<ServerEnv>;

const STATUSES = {
  ...{ 400: "The request is wrong.", 401: "The key is missing or wrong." },
  ...{ 403: "The key may not do this.", 404: "No such model." },
} as const;
const LOADED = { 408: "Too late.", 413: "The body is too large.", 415: "The body is no JSON." } as const;
const BUSY = { 429: "Too many wait.", 503: "The server ends." } as const;

const errorSchemas: Readonly<Record<ApiForm, z.ZodType>> = {
  ...{ openai: openaiErrorSchema, anthropic: anthropicErrorSchema, ollama: ollamaErrorSchema },
};

function errorResponses(path: string) {
  const schema = errorSchemas[apiFormOf(path)];
  const all = Object.entries({ ...STATUSES, ...LOADED, ...BUSY });
  return Object.fromEntries(
    all.map(([status, description]) => [status, { description, content: { "application/json": { schema } } }]),
  );
}

/** A server-sent event. */
const eventSchema = z.object({ event: z.string().optional(), data: z.string() });

const EVENTS = { "text/event-stream": { schema: eventSchema } };

/** Adds an endpoint that takes JSON. */
export function addPost<S extends z.ZodType>(
  app: App,
  { method = "post", path, summary, request, response, streams = false }: PostRoute<S>,
  serve: (c: ServerContext, body: z.output<S>) => Promise<Response>,
): void {
  const form = apiFormOf(path) === "ollama" ? { "application/x-ndjson": { schema: response } } : EVENTS;
  const stream = streams ? form : {};
  const route = createRoute({
    method,
    path,
    summary,
    security: [{ bearer: [] }],
    middleware: async (c: ServerContext, next: () => Promise<void>) => {
      await readBody(c, c.get("limits"));
      await next();
    },
    request: { body: { required: true, content: { "application/json": { schema: request } } } },
    responses: {
      200: { description: "The answer.", content: { "application/json": { schema: response }, ...stream } },
      ...errorResponses(path),
    },
  });
  // Handlers give whole responses; tests check these against the schemas.
  app.openapi(route, ((c: ServerContext) => serve(c, c.req.valid("json" as never) as z.output<S>)) as never);
}

interface PostRoute<S extends z.ZodType> {
  /** HTTP method. Default: post. */
  readonly method?: "post" | "delete";
  readonly path: string;
  readonly summary: string;
  readonly request: S;
  readonly response: z.ZodType;
  /** Whether the response may be a stream of events. */
  readonly streams?: boolean;
}

/** Adds an endpoint without a body. `params`: schema of the path's parameters. */
export function addGet(
  app: App,
  { method = "get", path, summary, response, open = false, params, type = "application/json" }: GetRoute,
  serve: (c: ServerContext) => Response | Promise<Response>,
): void {
  const { 404: notFound, ...other } = errorResponses(path);
  const failures = open ? {} : { 401: other[401]! };
  const route = createRoute({
    method,
    path,
    summary,
    ...(open ? {} : { security: [{ bearer: [] }] }),
    ...(params ? { request: { params } } : {}),
    responses: {
      200: { description: "The answer.", content: { [type]: { schema: response } } },
      ...failures,
      ...(params ? { 404: notFound! } : {}),
      ...(path === "/ready" ? { 503: { description: "Not ready.", content: { [type]: { schema: response } } } } : {}),
    },
  });
  app.openapi(route, serve as never);
}

interface GetRoute {
  /** HTTP method. Default: get. */
  readonly method?: "get" | "delete";
  readonly path: string;
  readonly summary: string;
  readonly response: z.ZodType;
  /** Whether the endpoint needs no key. */
  readonly open?: boolean;
  readonly params?: z.ZodObject;
  readonly type?: string;
}
