/** A server over a tiny model, in the process of a test. */

import { loadCompiled } from "../../src/api/load-compiled.ts";
import { loadCheckpoint } from "../../src/checkpoint/load.ts";
import type { LanguageModel } from "../../src/language/language-model.ts";
import { createServing, type ServerOptions } from "../../src/server/listen.ts";
import type { App } from "../../src/server/routes/route.ts";
import { temporaryFolder } from "./folders.ts";
import { writeTinyCheckpoint } from "./tiny-checkpoint.ts";

/** Tokens that a text of the tiny model may have. */
export const SERVED_CONTEXT = 512;

/** A loaded model of random weights. */
export async function tinyModel(
  options: { readonly contextLength?: number; readonly chatTemplate?: string } = {},
): Promise<LanguageModel> {
  const folder = await temporaryFolder();
  const { contextLength = SERVED_CONTEXT, ...given } = options;
  await writeTinyCheckpoint(folder, { config: { max_position_embeddings: contextLength }, ...given });
  const model = await loadCheckpoint(folder);
  const loaded = await loadCompiled(model);
  await model.close();
  return loaded;
}

/** What a server is given to serve a loaded model as `tiny`. */
export function tinySource(model: LanguageModel, name = "tiny") {
  return { name, bytes: 0, load: async () => model };
}

export function servedApp(options: ServerOptions): App {
  return createServing(options).app;
}

export const JSON_HEADERS = { "content-type": "application/json" };

/** Posts JSON, and gives the status and the body. */
export async function post(app: App, path: string, body: object, headers: Record<string, string> = {}) {
  const init = { method: "POST", headers: { ...JSON_HEADERS, ...headers }, body: JSON.stringify(body) };
  const response = await app.request(path, init);
  return { status: response.status, headers: response.headers, body: await response.json() };
}

/** Posts JSON, and gives the events of the stream: names and parsed data, "[DONE]" as it is. */
export async function postStream(app: App, path: string, body: object, headers: Record<string, string> = {}) {
  const init = { method: "POST", headers: { ...JSON_HEADERS, ...headers }, body: JSON.stringify(body) };
  const response = await app.request(path, init);
  return { status: response.status, events: parseEvents(await response.text()) };
}

// biome-ignore lint/suspicious/noExplicitAny: tests look into data of several APIs.
export function parseEvents(text: string): { event: string | null; data: any }[] {
  return text.split("\n\n").flatMap((block) => {
    const event = /^event: (.*)$/m.exec(block)?.[1] ?? null;
    const data = /^data: (.*)$/m.exec(block)?.[1];
    if (data === undefined) return [];
    return [{ event, data: data === "[DONE]" ? data : JSON.parse(data) }];
  });
}
