/** Routes for operators: /health, /ready, /metrics and /openapi.json. */
import { z } from "@hono/zod-openapi";
import { openapiDocument } from "../openapi.ts";
import type { Serving } from "../serving.ts";
import { type App, addGet } from "./route.ts";

const healthSchema = z.object({ status: z.string() }).openapi("Health");

/** Adds the routes. `isReady`: whether the models of `preload` have been loaded. */
export function addOperations(app: App, serving: Serving, isReady: () => boolean): void {
  const health = { path: "/health", summary: "Whether the server lives.", response: healthSchema, open: true };
  addGet(app, health, (c) => c.json({ status: "ok" }));
  const ready = { path: "/ready", summary: "Whether requests may come.", response: healthSchema, open: true };
  addGet(app, ready, (c) => {
    if (serving.isDraining) return c.json({ status: "draining" }, 503);
    return isReady() ? c.json({ status: "ok" }) : c.json({ status: "loading" }, 503);
  });
  const metrics = { path: "/metrics", summary: "Numbers for Prometheus.", response: z.string(), open: true };
  addGet(app, { ...metrics, type: "text/plain" }, async (c) =>
    c.text(await serving.metrics.text(), 200, { "content-type": serving.metrics.contentType }),
  );
  let document: object | null = null;
  app.get("/openapi.json", (c) => {
    document ??= openapiDocument(app, serving);
    return c.json(document);
  });
}
