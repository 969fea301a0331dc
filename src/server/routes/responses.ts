/** OpenAI's /v1/responses. Responses are stored, and can be continued, unless `store` is false. */
import { z } from "@hono/zod-openapi";
import { ApiError } from "../errors.ts";
import { newId } from "../ids.ts";
import { thinkingOptions } from "../model-options.ts";
import { ResponseAnswer } from "../response-answer.ts";
import { conversationOf, promptOptions, responseTools } from "../responses-input.ts";
import {
  deletedSchema,
  type InputItem,
  inputTokensRequest,
  inputTokensSchema,
  itemListSchema,
  type ResponsePrompt,
  responseRequest,
  responseSchema,
} from "../schemas/responses.ts";
import type { ServerContext, Serving } from "../serving.ts";
import type { StoredResponse } from "../stored-response.ts";
import { warnerOf } from "../warnings.ts";
import { type App, addGet, addPost } from "./route.ts";

export function addResponses(app: App, serving: Serving): void {
  const route = {
    path: "/v1/responses",
    summary: "Answer input. The response is kept for a while, unless store is false.",
    request: responseRequest(serving.limits),
    response: responseSchema,
    streams: true,
  };
  addPost(app, route, async (c, body) => {
    const input = { own: ownItems(body), all: allItems(body, serving, c.get("owner")) };
    const answer = new ResponseAnswer(body, input, {
      ...{ serving, warn: warnerOf(c.get("record")), owner: c.get("owner") },
    });
    const demand = { model: body.model, choices: 1 };
    if (!body.stream) return serving.answer(c, demand, (job) => answer.whole(job));
    const failed = (data: object) => answer.failed(data);
    return serving.stream(c, demand, (job) => answer.events(job), { failed, ping: () => answer.ping() });
  });
  const count = {
    path: "/v1/responses/input_tokens",
    summary: "The tokens that input is.",
    request: inputTokensRequest(serving.limits),
    response: inputTokensSchema,
  };
  addPost(app, count, async (c, body) => {
    const warn = warnerOf(c.get("record"));
    const items = allItems(body, serving, c.get("owner"));
    const messages = conversationOf(body.instructions ?? null, items, { policy: serving.unseen, warn });
    const options = promptOptions(body, responseTools(body, serving.limits.tools, warn));
    return serving.answer(c, { model: body.model, choices: 1 }, async ({ model }) => {
      const thinking = thinkingOptions({ effort: body.reasoning?.effort }, model.template, warn);
      const tokens = model.encodeChat(messages, { ...options, ...thinking }).length;
      return { object: "response.input_tokens", input_tokens: tokens };
    });
  });
  addKept(app, serving);
}

/** Input items of a request, each with an id; references to items of earlier responses stay references. */
function ownItems({ input }: ResponsePrompt): InputItem[] {
  return itemsOf(input).map((item) => ({ ...item, id: item.id ?? newId("item", "_") }) as InputItem);
}

function itemsOf(input: ResponsePrompt["input"]): readonly InputItem[] {
  return typeof input === "string" ? [{ type: "message", role: "user", content: input }] : input;
}

/**
 * All items of the conversation, including those of the response that is continued. ApiError for responses that are not
 * stored.
 */
function allItems(body: ResponsePrompt, { responses, limits }: Serving, owner: string): InputItem[] {
  const { input, previous_response_id: id } = body;
  const before = id ? responses.itemsOf(id, owner) : [];
  if (before === null)
    throw new ApiError(400, `Previous response with id '${id}' not found: it was not stored, or is forgotten.`, {
      ...{ code: "previous_response_not_found", param: "previous_response_id" },
    });
  const found = [...before, ...itemsOf(input)].map((item, index) => {
    if (item.type !== "item_reference") return item;
    const kept = responses.itemOf(item.id as string, owner);
    if (kept) return kept;
    const param = `input.${index - before.length}`;
    throw new ApiError(404, `${param}: Item with id '${item.id}' not found: it was not stored, or is forgotten.`, {
      param,
    });
  });
  if (found.length > limits.messages)
    throw new ApiError(400, `input: expected at most ${limits.messages} items, those of earlier responses included`, {
      ...{ param: "input" },
    });
  return found;
}

/** Adds the endpoints of stored responses. */
function addKept(app: App, { responses }: Serving): void {
  const params = z.object({ id: z.string().openapi({ description: "Id of a response." }) });
  const kept = (c: ServerContext): StoredResponse => {
    const id = c.req.param("id")!;
    const found = responses.get(id, c.get("owner"));
    if (found) return found;
    throw new ApiError(404, `Response with id '${id.slice(0, 100)}' not found.`, { param: "id" });
  };
  const one = { path: "/v1/responses/{id}", params };
  addGet(app, { ...one, summary: "A response that is kept.", response: responseSchema }, (c) =>
    Response.json(kept(c).body),
  );
  addGet(app, { ...one, method: "delete", summary: "Forget a response.", response: deletedSchema }, (c) => {
    const { id, owner } = kept(c);
    responses.delete(id, owner);
    return Response.json({ id, object: "response", deleted: true });
  });
  const items = { path: "/v1/responses/{id}/input_items", params, summary: "What a response was asked." };
  addGet(app, { ...items, response: itemListSchema }, (c) => {
    const data = kept(c).input.map(itemAsListed);
    const ends = { first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null };
    return Response.json({ object: "list", data, ...ends, has_more: false });
  });
}

/** An item as OpenAI lists it: content of messages as a list of parts. */
function itemAsListed(item: InputItem): InputItem {
  const { content, role } = item as { readonly content?: unknown; readonly role?: string };
  if (typeof content !== "string" || role === undefined) return item;
  const type = role === "assistant" ? "output_text" : "input_text";
  return { ...item, type: "message", status: "completed", content: [{ type, text: content }] } as InputItem;
}
