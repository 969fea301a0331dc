/** /api/chat, /api/generate, /api/embed: Ollama's API. */
import { type ChatOptions, withOwnStops } from "../../language/chat-options.ts";
import type { LanguageModel } from "../../language/language-model.ts";
import type { Message } from "../../text/chat-messages.ts";
import { fillInMiddle } from "../../text/fill-in-middle.ts";
import type { GenerateOptions } from "../../text/generate.ts";
import { WHOLE_TEXT } from "../../text/tokenizer.ts";
import { constrained } from "../constraint.ts";
import { withinContext } from "../context-length.ts";
import { OfferedTools } from "../offered-tools.ts";
import { type Begun, chatPart, generationPart, nanoseconds, OllamaAnswer } from "../ollama-answer.ts";
import {
  checkTools,
  keepSeconds,
  ollamaConstraint,
  ollamaMessages,
  ollamaSampling,
  ollamaThinking,
  servedName,
  unable,
  withImages,
} from "../ollama-input.ts";
import {
  type OllamaChatRequest,
  type OllamaGenerateRequest,
  ollamaChatRequest,
  ollamaChatSchema,
  ollamaEmbeddingsRequest,
  ollamaEmbeddingsSchema,
  ollamaEmbedRequest,
  ollamaEmbedSchema,
  ollamaGenerateRequest,
  ollamaGenerateSchema,
} from "../schemas/ollama.ts";
import type { Job, ServerContext, Serving } from "../serving.ts";
import { LINES } from "../sse.ts";
import { chatCounts } from "../usage.ts";
import { type Warn, warnerOf } from "../warnings.ts";
import { vectorsOf } from "./embeddings.ts";
import { checkManages } from "./management.ts";
import { type App, addPost } from "./route.ts";

export function addOllama(app: App, serving: Serving): void {
  const chat = { path: "/api/chat", summary: "Answer messages (Ollama).", streams: true, response: ollamaChatSchema };
  addPost(app, { ...chat, request: ollamaChatRequest(serving.limits) }, async (c, body) => {
    const messages = ollamaMessages(body.messages ?? [], serving.unseen);
    if (messages.length === 0) return loadOrUnload(c, serving, body, chatPart);
    const tools = offered(body, serving, warnerOf(c.get("record")));
    return answer(c, serving, body, chatPart, (job, warn) => beginChat(job, body, messages, { tools, warn }));
  });
  const generate = { path: "/api/generate", summary: "Continue a text (Ollama).", streams: true };
  addPost(
    app,
    { ...generate, request: ollamaGenerateRequest, response: ollamaGenerateSchema },
    async (c, { stream, ...body }) => {
      const { prompt, suffix, images, system, raw } = body;
      if (!prompt && !suffix && !images?.length) return loadOrUnload(c, serving, body, generationPart);
      const text = withImages(prompt ?? "", images, { path: "images", isNew: true }, serving.unseen);
      const messages: Message[] = [
        ...(system ? [{ role: "system" as const, content: system }] : []),
        { role: "user", content: text },
      ];
      return answer(c, serving, { ...body, stream }, generationPart, (job, warn) => {
        const isPlain = Boolean(raw) || Boolean(suffix) || job.model.template === null;
        if (!isPlain) return beginChat(job, body, messages, { tools: {}, warn });
        if (system) warn("system is left out: the model reads the prompt alone");
        return beginText(job, body, text, warn);
      });
    },
  );
  addEmbed(app, serving);
}

type Fields = Omit<OllamaGenerateRequest, "stream" | "prompt"> & { readonly stream?: boolean | null | undefined };
type Shape = typeof chatPart;

/** Answers with a stream of JSON lines, or with one object where `stream` is false. */
function answer(
  c: ServerContext,
  serving: Serving,
  body: Fields,
  shape: Shape,
  begin: (job: Job, warn: Warn) => Begun,
): Promise<Response> {
  const record = c.get("record");
  const warn = warnerOf(record);
  const name = servedName(serving.pool, body.model);
  const answered = new OllamaAnswer({ model: body.model, startedAt: record.startedAt, shape }, (job) => {
    keepLoaded(c, serving, name, body.keep_alive);
    checkGenerates(body.model, job.model);
    return begin(job, warn);
  });
  const demand = { model: name, choices: 1 };
  if (body.stream === false) return serving.answer(c, demand, (job) => answered.whole(job));
  return serving.stream(c, demand, (job) => answered.events(job), { form: LINES, failed: (data) => [{ data }] });
}

function checkGenerates(name: string, { embedding, reranker }: LanguageModel): void {
  if (embedding || reranker) throw unable(name, "generate");
}

/** A request without messages loads the model, or unloads it with `keep_alive` 0. */
async function loadOrUnload(c: ServerContext, serving: Serving, body: Fields, shape: Shape): Promise<Response> {
  const name = servedName(serving.pool, body.model);
  const said = { model: body.model, created_at: new Date().toISOString(), ...shape({ content: "" }), done: true };
  if (body.keep_alive != null && keepSeconds(body.keep_alive) === 0) {
    checkManages(c);
    await serving.pool.unload(name);
    return c.json({ ...said, done_reason: "unload" });
  }
  return serving.answer(c, { model: name, choices: 1 }, async () => {
    keepLoaded(c, serving, name, body.keep_alive);
    return { ...said, done_reason: "load" };
  });
}

/** Applies `keep_alive`, where the key may manage models. */
function keepLoaded(c: ServerContext, { pool }: Serving, name: string, keep: string | number | null | undefined): void {
  if (keep == null) return;
  if (c.get("mayManage")) pool.keep(name, keepSeconds(keep));
  else warnerOf(c.get("record"))("keep_alive is left out: the key may not manage models");
}

function offered({ tools }: OllamaChatRequest, { limits }: Serving, warn: Warn): Pick<ChatOptions, "tools"> {
  const list = new OfferedTools(limits.tools, warn);
  for (const tool of tools ?? []) list.addFunction(tool.function);
  return list.options(null);
}

type Generation = Omit<Fields, "stream">;

/** Options that /api/chat and /api/generate share. */
function generationOptions(body: Generation, { prefixScope, signal }: Job, warn: Warn): GenerateOptions {
  const { options, format, logprobs, top_logprobs } = body;
  return {
    ...ollamaSampling(options, warn),
    ...constrained(ollamaConstraint(format)),
    ...(logprobs && { logprobs: top_logprobs ?? 0 }),
    ...{ prefixScope, signal },
  };
}

function beginChat(
  job: Job,
  body: Generation,
  messages: readonly Message[],
  { tools, warn }: { readonly tools: Pick<ChatOptions, "tools">; readonly warn: Warn },
): Begun {
  const { model, contextLength } = job;
  if (model.template === null) throw unable(body.model, "chat");
  checkTools(body.model, tools.tools ?? [], model);
  const given = {
    ...{ ...generationOptions(body, job, warn), ...tools },
    ...ollamaThinking(body.model, body.think, model, warn),
  };
  const stream = model.chat(messages, withOwnStops(model, given));
  const count = () => model.encodeChat(messages, given).length;
  return {
    events: withinContext(stream, "ollama", contextLength, count),
    async end() {
      const result = await stream.result;
      return { generation: result.generation, counts: chatCounts([result]) };
    },
  };
}

/** Continues a plain prompt, or fills in the text between it and the suffix. */
function beginText(job: Job, body: Generation, prompt: string, warn: Warn): Begun {
  const { model, contextLength } = job;
  const { tokenizer } = model;
  const filled = body.suffix ? fillInMiddle(tokenizer, prompt, body.suffix) : null;
  if (body.suffix && !filled) throw unable(body.model, "insert");
  const ids = filled?.ids ?? tokenizer.encode(prompt, { ...WHOLE_TEXT, contextLength });
  const stopTokens = filled?.stopTokens ?? [];
  const stream = model.generateChoices(ids, { ...generationOptions(body, job, warn), stopTokens, n: 1 });
  async function* events() {
    for await (const { text, logprobs } of stream)
      yield { type: "text" as const, text, ...(logprobs && { logprobs: [logprobs] }) };
  }
  return {
    events: withinContext(events(), "ollama", contextLength, () => ids.length),
    async end() {
      const [generation] = await stream.result;
      return { generation: generation!, counts: { ...generation!, promptTokens: ids.length } };
    },
  };
}

function addEmbed(app: App, serving: Serving): void {
  const embed = { path: "/api/embed", summary: "Embeddings of texts (Ollama)." };
  addPost(app, { ...embed, request: ollamaEmbedRequest, response: ollamaEmbedSchema }, (c, body) => {
    const name = servedName(serving.pool, body.model);
    const { startedAt } = c.get("record");
    return serving.answer(c, { model: name, choices: 1 }, async (job) => {
      keepLoaded(c, serving, name, body.keep_alive);
      const { input, dimensions } = body;
      const texts = typeof input === "string" ? [input] : (input ?? []);
      const given = { ...{ name: body.model, dimensions }, truncate: body.truncate ?? true };
      const { vectors, promptTokens } = await vectorsOf(job, texts.filter(Boolean), given);
      return {
        model: body.model,
        embeddings: vectors.map((vector) => Array.from(vector)),
        total_duration: nanoseconds((performance.now() - startedAt) / 1000),
        load_duration: nanoseconds(job.loadMs / 1000),
        prompt_eval_count: promptTokens,
      };
    });
  });
  const one = { path: "/api/embeddings", summary: "The vector of a text (Ollama's older form)." };
  addPost(app, { ...one, request: ollamaEmbeddingsRequest, response: ollamaEmbeddingsSchema }, (c, body) => {
    const name = servedName(serving.pool, body.model);
    return serving.answer(c, { model: name, choices: 1 }, async (job) => {
      keepLoaded(c, serving, name, body.keep_alive);
      const given = { name: body.model, truncate: body.truncate ?? true };
      const { vectors } = await vectorsOf(job, body.prompt ? [body.prompt] : [], given);
      return { embedding: Array.from(vectors[0] ?? []) };
    });
  });
}
