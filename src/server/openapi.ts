/** The OpenAPI document of a server. */
import { version } from "../version.ts";
import type { App } from "./routes/route.ts";
import { TOKEN_ID } from "./schemas/fields.ts";
import type { Serving } from "./serving.ts";

interface Schema {
  readonly properties?: { readonly model?: object; readonly logit_bias?: object };
}

export function openapiDocument(app: App, { pool }: Serving): object {
  app.openAPIRegistry.registerComponent("securitySchemes", "bearer", { type: "http", scheme: "bearer" });
  const info = { title: "lowbit", version, description: "Language models on ordinary CPUs." };
  const document = app.getOpenAPI31Document({ openapi: "3.1.0", info, servers: [{ url: "/" }] });
  const names = pool.models.map(({ name }) => name);
  for (const [name, schema] of Object.entries((document.components?.schemas ?? {}) as Record<string, Schema>)) {
    if (!name.endsWith("Request")) continue;
    // Adds the served models and the pattern of token ids, which the generator does not know.
    Object.assign(schema.properties?.model ?? {}, { enum: names });
    Object.assign(schema.properties?.logit_bias ?? {}, { propertyNames: { pattern: TOKEN_ID.source } });
  }
  return document;
}
