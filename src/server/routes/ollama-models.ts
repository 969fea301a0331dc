/** /api/tags, show, ps, pull, copy, delete, version: the models of the server in Ollama's form. */
import { createHash } from "node:crypto";
import { z } from "@hono/zod-openapi";
import type { LanguageModel } from "../../language/language-model.ts";
import type { ModelFacts } from "../../model-facts.ts";
import { fillInMiddle } from "../../text/fill-in-middle.ts";
import { takesTools } from "../../text/template-input.ts";
import { canThink } from "../../text/thinking.ts";
import { bytesOf, type ListedModel } from "../models.ts";
import { requestedName, servedName, taggedName, untaggedName } from "../ollama-input.ts";
import { pulled } from "../pulling.ts";
import {
  ollamaCopyRequest,
  ollamaDeleteRequest,
  ollamaPsSchema,
  ollamaPullRequest,
  ollamaPullSchema,
  ollamaShowRequest,
  ollamaShowSchema,
  ollamaTagsSchema,
} from "../schemas/ollama.ts";
import type { Serving } from "../serving.ts";
import { LINES } from "../sse.ts";
import { checkManages } from "./management.ts";
import { type App, addGet, addPost } from "./route.ts";

/** Version of Ollama's API that is implemented: clients check it for the features that they need. */
const API_VERSION = "0.13.0";

/** Ollama reports models that stay loaded with a time far ahead, since clients parse one. */
const CENTURY_MS = 100 * 365 * 86_400_000;

export function addOllamaModels(app: App, serving: Serving): void {
  const { pool } = serving;
  const version = { path: "/api/version", summary: "The version of Ollama whose API this is." };
  addGet(app, { ...version, response: z.object({ version: z.string() }).openapi("OllamaVersion") }, (c) =>
    c.json({ version: API_VERSION }),
  );
  const tags = { path: "/api/tags", summary: "The models of this server (Ollama).", response: ollamaTagsSchema };
  addGet(app, tags, (c) =>
    c.json({
      models: pool.models.map((model) => ({
        ...listedOf(model),
        size: model.bytes,
        modified_at: model.modifiedAt.toISOString(),
        capabilities: capabilitiesOf(model),
      })),
    }),
  );
  addGet(app, { path: "/api/ps", summary: "The models in memory (Ollama).", response: ollamaPsSchema }, (c) => {
    const forever = Date.now() + CENTURY_MS;
    const loaded = pool.models.flatMap((listed) => (listed.model ? [{ ...listed, model: listed.model }] : []));
    const models = loaded.map((listed) => ({
      ...listedOf(listed),
      size: bytesOf(listed.model),
      expires_at: new Date(Math.min(listed.expiresAt, forever)).toISOString(),
      size_vram: 0,
      context_length: listed.contextLength,
    }));
    return c.json({ models });
  });
  addShow(app, serving);
  addChanges(app, serving);
}

function addShow(app: App, serving: Serving): void {
  const { pool } = serving;
  const show = { path: "/api/show", summary: "What a model is (Ollama).", response: ollamaShowSchema };
  addPost(app, { ...show, request: ollamaShowRequest }, async (c, body) => {
    const name = servedName(pool, requestedName(body));
    const find = () => pool.models.find((listed) => listed.name === name)!;
    if (find().facts || find().model) return c.json(shownOf(find()));
    return serving.answer(c, { model: name, choices: 1 }, async () => shownOf(find()));
  });
}

function addChanges(app: App, serving: Serving): void {
  const { pool } = serving;
  const pull = { path: "/api/pull", summary: "Download a model of the hub (Ollama).", streams: true };
  addPost(app, { ...pull, request: ollamaPullRequest, response: ollamaPullSchema }, async (c, body) => {
    checkManages(c);
    const name = untaggedName(requestedName(body));
    const events = async function* (signal: AbortSignal) {
      for await (const data of pulled(serving, name, signal)) yield { data };
    };
    const how = { form: LINES, failed: (data: object) => [{ data }] };
    if (body.stream !== false) return serving.streamWork(c, events, how);
    await serving.work(c, events);
    return c.json({ status: "success" });
  });
  const nothing = z.object({});
  const copy = { path: "/api/copy", summary: "Offer a model by one more name (Ollama).", response: nothing };
  addPost(app, { ...copy, request: ollamaCopyRequest }, async (c, { source, destination }) => {
    checkManages(c);
    pool.alias(servedName(pool, source), untaggedName(destination));
    return c.json({});
  });
  const remove = { method: "delete", path: "/api/delete", summary: "Offer a model no longer (Ollama)." } as const;
  addPost(app, { ...remove, request: ollamaDeleteRequest, response: nothing }, async (c, body) => {
    checkManages(c);
    const name = servedName(pool, requestedName(body));
    await pool.remove(name);
    return c.json({});
  });
}

/** Fields of a model in lists. */
function listedOf(listed: ListedModel) {
  const { name, bytes, modifiedAt } = listed;
  const digest = createHash("sha256").update(`${name}\0${bytes}\0${modifiedAt.getTime()}`).digest("hex");
  return { name: taggedName(name), model: taggedName(name), digest, details: detailsOf(factsOf(listed)) };
}

type KnownFacts = Pick<ModelFacts, "makes" | "template"> & Partial<ModelFacts>;

/** Facts about a model: from its file or the loaded model, else those of most models. */
function factsOf({ facts, model, contextLength }: ListedModel): KnownFacts {
  if (facts) return { ...facts, contextLength };
  if (!model) return { makes: "text", template: null };
  const makes = model.embedding ? "embeddings" : model.reranker ? "scores" : "text";
  return { makes, template: model.template?.source ?? null, contextLength };
}

const UNKNOWN = "unknown";

function detailsOf({ format = "", architecture, parameters, bitsPerWeight }: KnownFacts) {
  const family = architecture ?? UNKNOWN;
  return {
    parent_model: "",
    format,
    family,
    families: [family],
    parameter_size: parameters === undefined ? "" : shortCount(parameters),
    quantization_level: bitsPerWeight == null ? "" : `${bitsPerWeight.toFixed(1)} bits`,
  };
}

/** A count in short form, such as "135M", "1.2B". */
function shortCount(count: number): string {
  const [unit, letter] = count >= 1e9 ? [1e9, "B"] : count >= 1e6 ? [1e6, "M"] : [1e3, "K"];
  return `${Number((count / unit).toPrecision(3))}${letter}`;
}

/** What a model can do, in Ollama's words. */
function capabilitiesOf(listed: ListedModel): string[] {
  const { makes, template } = factsOf(listed);
  if (makes !== "text") return makes === "embeddings" ? ["embedding"] : [];
  const source = template ?? "";
  return [
    "completion",
    ...(takesTools(source) ? ["tools"] : []),
    ...(canThink(source) ? ["thinking"] : []),
    ...(fills(listed.model) ? ["insert"] : []),
  ];
}

function fills(model: LanguageModel | null): boolean {
  return model?.hasTokenizer === true && fillInMiddle(model.tokenizer, "", "") !== null;
}

function shownOf(listed: ListedModel) {
  const facts = factsOf(listed);
  const { contextLength, parameters, architecture } = facts;
  const family = architecture ?? UNKNOWN;
  return {
    modelfile: "",
    parameters: "",
    template: facts.template ?? "",
    details: detailsOf(facts),
    model_info: {
      "general.architecture": family,
      ...(parameters !== undefined && { "general.parameter_count": parameters }),
      ...(contextLength != null && { [`${family}.context_length`]: contextLength }),
    },
    capabilities: capabilitiesOf(listed),
    modified_at: listed.modifiedAt.toISOString(),
  };
}
