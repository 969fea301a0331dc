/** What a model is asked by requests to a server. */
import type { ServerOptions } from "../../src/server/listen.ts";
import { scriptedModel, toolScript } from "./scripted-model.ts";
import { post, servedApp, tinySource } from "./served.ts";

/** A user's message, as the APIs write it. */
export const user = (content: unknown) => ({ role: "user", content });
export const hi = [user("hi")];

/** The answer to a request, and what the model of a script was asked; undefined where it was not. */
export async function asked(path: string, body: object, options: Partial<ServerOptions> = {}) {
  const { model, asked } = scriptedModel(toolScript);
  const served = servedApp({ models: [tinySource(model)], ...options });
  const fields = { model: "tiny", ...(path === "/v1/messages" && { max_tokens: 9 }) };
  const answer = await post(served, path, { ...fields, ...body });
  return { ...answer, messages: asked[0]?.messages, options: asked[0]?.options };
}
