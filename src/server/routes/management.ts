/** /v1/models/load, unload and pull: changes which models are offered and loaded. */
import { ApiError } from "../errors.ts";
import { pulled } from "../pulling.ts";
import { managedModelSchema, modelRequest, pullRequest } from "../schemas/models.ts";
import type { ServerContext, Serving } from "../serving.ts";
import { type App, addPost } from "./route.ts";

/** ApiError 403 unless the request's key may manage models. */
export function checkManages(c: ServerContext): void {
  if (c.get("mayManage")) return;
  throw new ApiError(403, "expected a key that may manage models", { code: "may_not_manage" });
}

export function addManagement(app: App, serving: Serving): void {
  const { pool } = serving;
  const stateOf = (name: string) => {
    const { state } = pool.models.find((model) => model.name === name)!;
    return { id: name, object: "model", state };
  };
  const one = { request: modelRequest, response: managedModelSchema };
  addPost(app, { ...one, path: "/v1/models/load", summary: "Load a model." }, (c, { model: name }) => {
    checkManages(c);
    return serving.answer(c, { model: name, choices: 1 }, async () => stateOf(name));
  });
  const unload = { ...one, path: "/v1/models/unload", summary: "Put a model away when nobody uses it." };
  addPost(app, unload, async (c, { model: name }) => {
    checkManages(c);
    await pool.unload(name);
    return c.json(stateOf(name));
  });
  const pull = { path: "/v1/models/pull", summary: "Download a model of the hub, and serve it.", streams: true };
  addPost(app, { ...pull, request: pullRequest, response: managedModelSchema }, async (c, body) => {
    checkManages(c);
    const events = async function* (signal: AbortSignal) {
      for await (const data of pulled(serving, body.model, signal)) yield { data };
      if (body.stream) yield { data: "[DONE]" };
    };
    if (body.stream) return serving.streamWork(c, events, { failed: (data) => [{ data }] });
    await serving.work(c, events);
    return c.json(stateOf(body.model));
  });
}
