/** /v1/models: lists the models of the server. */
import { z } from "@hono/zod-openapi";
import { unixTime } from "../ids.ts";
import type { ListedModel } from "../models.ts";
import { modelListSchema, modelSchema } from "../schemas/models.ts";
import type { Serving } from "../serving.ts";
import { type App, addGet } from "./route.ts";

export function addModels(app: App, { pool }: Serving): void {
  const created = unixTime();
  const created_at = new Date(created * 1000).toISOString();
  const modelOf = ({ name: id, bytes, contextLength }: ListedModel) => {
    const openai = { id, object: "model", created, owned_by: "lowbit" };
    const isKnown = contextLength !== null;
    const context = isKnown ? { max_model_len: contextLength, max_input_tokens: contextLength } : {};
    const meta = { ...(bytes > 0 && { size: bytes }), ...(isKnown && { n_ctx: contextLength }) };
    const own = Object.keys(meta).length > 0 ? { meta } : {};
    return { ...openai, type: "model", display_name: id, created_at, ...own, ...context };
  };
  addGet(app, { path: "/v1/models", summary: "The models of this server.", response: modelListSchema }, (c) => {
    const data = pool.models.map(modelOf);
    const ends = { first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null };
    return c.json({ object: "list", data, has_more: false, ...ends });
  });
  const one = {
    path: "/v1/models/{model}",
    summary: "One model.",
    response: modelSchema,
    params: z.object({ model: z.string().openapi({ description: "Its name." }) }),
  };
  const answer = (name: string) => {
    pool.check(name);
    return Response.json(modelOf(pool.models.find((model) => model.name === name)!));
  };
  addGet(app, one, (c) => answer(c.req.param("model")!));
  // Hub names have a slash, which clients may leave unescaped.
  app.get("/v1/models/:org/:name", (c) => answer(`${c.req.param("org")}/${c.req.param("name")}`));
}
