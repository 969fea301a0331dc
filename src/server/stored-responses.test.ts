/** Responses that are gone on from, for the key that asked; and what comes while they are waited for. */
import { describe, expect, it } from "vitest";
import { hi, user } from "../../test/support/asked.ts";
import { scriptedModel } from "../../test/support/scripted-model.ts";
import { JSON_HEADERS, parseEvents, post, postStream, servedApp, tinySource } from "../../test/support/served.ts";

describe("responses that are kept", () => {
  const first = { model: "tiny", input: "hi", instructions: "Brief." };
  function kept(options: object = {}) {
    const { model, asked } = scriptedModel({ events: [{ type: "text", text: "Yes." }] });
    return { served: servedApp({ models: [tinySource(model)], ...options }), asked };
  }

  it("are gone on from, without their instructions", async () => {
    const { served, asked } = kept();
    const { id } = (await post(served, "/v1/responses", first)).body;
    const { body } = await post(served, "/v1/responses", { model: "tiny", input: "more", previous_response_id: id });
    expect(body.previous_response_id).toBe(id);
    await postStream(served, "/v1/responses", {
      model: "tiny",
      input: "end",
      previous_response_id: body.id,
      stream: true,
    });
    expect(asked[2]!.messages).toEqual([
      ...hi,
      { role: "assistant", content: "Yes." },
      user("more"),
      { role: "assistant", content: "Yes." },
      user("end"),
    ]);
  });

  it("are read, listed, referred to and forgotten", async () => {
    const { served, asked } = kept();
    const { body } = await post(served, "/v1/responses", first);
    const path = `/v1/responses/${body.id}`;
    expect(await (await served.request(path)).json()).toEqual(body);
    const { data } = await (await served.request(`${path}/input_items`)).json();
    expect(data).toMatchObject([
      { type: "message", role: "user", content: [{ type: "input_text", text: "hi" }], id: expect.any(String) },
    ]);
    await post(served, "/v1/responses", {
      model: "tiny",
      input: [{ type: "item_reference", id: body.output[0].id }, user("x")],
    });
    expect(asked[1]!.messages).toEqual([{ role: "assistant", content: "Yes." }, user("x")]);
    expect(await (await served.request(path, { method: "DELETE" })).json()).toMatchObject({ deleted: true });
    expect((await served.request(path)).status).toBe(404);
    const { status, body: refused } = await post(served, "/v1/responses", { ...first, previous_response_id: body.id });
    expect([status, refused.error.code]).toEqual([400, "previous_response_not_found"]);
  });

  it("are not those that must not be stored, nor those of other keys", async () => {
    const { served } = kept({ keys: ["sk-a", "sk-b"] });
    const as = (key: string) => ({ "x-api-key": key });
    const { body } = await post(served, "/v1/responses", { ...first, store: false }, as("sk-a"));
    expect(body.store).toBe(false);
    expect((await served.request(`/v1/responses/${body.id}`, { headers: as("sk-a") })).status).toBe(404);
    const { id, output } = (await post(served, "/v1/responses", first, as("sk-a"))).body;
    expect((await served.request(`/v1/responses/${id}`, { headers: as("sk-b") })).status).toBe(404);
    for (const fields of [{ previous_response_id: id }, { input: [{ type: "item_reference", id: output[0].id }] }])
      expect((await post(served, "/v1/responses", { ...first, ...fields }, as("sk-b"))).status).toBeGreaterThanOrEqual(
        400,
      );
    expect((await post(served, "/v1/responses", { ...first, previous_response_id: id }, as("sk-a"))).status).toBe(200);
  });

  it("are bounded, and those in use are not forgotten", async () => {
    const { served } = kept({ limits: { responses: 3 } });
    const root = (await post(served, "/v1/responses", first)).body.id;
    const ids: string[] = [];
    for (let i = 0; i < 4; i++)
      ids.push((await post(served, "/v1/responses", { ...first, previous_response_id: root })).body.id);
    expect((await served.request(`/v1/responses/${root}`)).status).toBe(200);
    expect((await served.request(`/v1/responses/${ids[0]}`)).status).toBe(404);
  });

  it("count their tokens without answering", async () => {
    const { served, asked } = kept();
    const { body } = await post(served, "/v1/responses/input_tokens", first);
    expect([body, asked.length]).toEqual([{ object: "response.input_tokens", input_tokens: 7 }, 0]);
  });
});

it("pings on /v1/responses are events, numbered with the others", async () => {
  const { model } = scriptedModel({ events: [{ type: "text", text: "Yes." }] });
  const { chat } = model;
  // Pings come 1 to 1.5 s after what was written before: two by then.
  const late = (...given: Parameters<typeof chat>) => {
    const stream = chat.call(model, ...given);
    const events = (async function* () {
      await new Promise((resolve) => setTimeout(resolve, 5000));
      yield* stream;
    })();
    return Object.assign(events, { promptTokens: 7, result: stream.result });
  };
  const served = servedApp({ models: [tinySource(Object.assign(model, { chat: late }))], limits: { pingSeconds: 1 } });
  const body = JSON.stringify({ model: "tiny", input: "hi", stream: true });
  const text = await (await served.request("/v1/responses", { method: "POST", headers: JSON_HEADERS, body })).text();
  expect(text).not.toContain(": ping");
  const events = parseEvents(text);
  expect(events.map(({ data }) => data.sequence_number)).toEqual(events.map((_, i) => i));
  expect(events.filter(({ event }) => event === "response.created")).toHaveLength(1);
  expect(events.filter(({ event }) => event === "response.in_progress").length).toBeGreaterThanOrEqual(2);
  expect(events.at(-1)!.event).toBe("response.completed");
});
