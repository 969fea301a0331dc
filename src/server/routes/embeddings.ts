/** /v1/embeddings and /v1/rerank, which the models that can be loaded so far do not serve. */
import { ApiError } from "../errors.ts";
import { embeddingRequest, rerankRequest } from "../schemas/embeddings.ts";
import { openaiErrorSchema } from "../schemas/fields.ts";
import type { Serving } from "../serving.ts";
import { type App, addPost } from "./route.ts";

export function addEmbeddings(app: App, { pool }: Serving): void {
  const refuse = (name: string, what: string): never => {
    pool.check(name);
    throw new ApiError(400, `model ${name}: ${what}; it generates text`, { code: "unsupported_model", param: "model" });
  };
  const response = openaiErrorSchema;
  const embed = { path: "/v1/embeddings", summary: "Embeddings of texts.", request: embeddingRequest, response };
  addPost(app, embed, async (_, { model }) => refuse(model, "does not give embeddings"));
  const rerank = { path: "/v1/rerank", summary: "Documents by relevance.", request: rerankRequest, response };
  addPost(app, rerank, async (_, { model }) => refuse(model, "does not rank documents"));
}
