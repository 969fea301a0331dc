/** The worker's side: one model, its conversation, and the running requests. */

import { InvalidArgumentError, InvalidFileError, LowbitError } from "../errors.ts";
import type { Conversation } from "../language/conversation.ts";
import type { ExecutableTool } from "../language/conversation-tools.ts";
import { type LanguageModel, loadLanguageModel } from "../language/language-model.ts";
import type { Reply as ConversationReply } from "../language/reply.ts";
import type { ResultStream } from "../language/result-stream.ts";
import type { ToolCall } from "../text/chat-messages.ts";
import type { GenerationResult } from "../text/generate.ts";
import { takesTools } from "../text/template-input.ts";
import { canThink } from "../text/thinking.ts";
import { blobSource } from "./blob-source.ts";
import { HeadCheck } from "./head-check.ts";
import { modulesAt } from "./late-modules.ts";
import { fetchModel, type StoredModel } from "./model-cache.ts";
import { openProgram } from "./opened-program.ts";
import {
  type Answer,
  type ModelFacts,
  type ModelStats,
  type Port,
  type PostedSource,
  type PostedTool,
  postedError,
  type ReplyBody,
  type Request,
} from "./protocol.ts";

/** Serves the requests that arrive at a port. */
export function serveModel(port: Port): void {
  const server = new ModelServer();
  const running = new Map<number, Task>();
  port.onmessage = async ({ data }) => {
    const request = data as Request;
    const { id } = request;
    if (request.kind === "abort") running.get(id)?.abort();
    else if (request.kind === "called") running.get(id)?.settle(request.text);
    else if (request.kind === "failed") running.get(id)?.settle(new LowbitError(request.error.message));
    else {
      const task = new Task((body) => port.postMessage({ ...body, id }));
      running.set(id, task);
      try {
        task.send({ kind: "end", value: await server.answer(request, task) });
      } catch (error) {
        task.send({ kind: "error", error: postedError(error) });
      } finally {
        running.delete(id);
      }
    }
  };
}

type Send = (body: ReplyBody) => void;

/** A request that is answered by a last reply. */
type Asked = Exclude<Request, { readonly kind: "abort" | "called" | "failed" }>;

/** A running request: its replies, its abort signal, and the page function it waits for. */
class Task {
  readonly send: Send;
  readonly #controller = new AbortController();
  #called: { resolve(text: string): void; reject(error: unknown): void } | null = null;

  constructor(send: Send) {
    this.send = send;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(): void {
    this.#controller.abort();
    this.#called?.reject(this.signal.reason);
  }

  /** Asks the page to run a tool's function and resolves with its result. */
  call(call: ToolCall, args: Record<string, unknown>): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#called = { resolve, reject };
      this.send({ kind: "call", call, args });
    });
  }

  /** Settles the call with the function's result or error. */
  settle(result: string | Error): void {
    if (typeof result === "string") this.#called?.resolve(result);
    else this.#called?.reject(result);
  }
}

class ModelServer {
  #model: LanguageModel | null = null;
  #conversation: Conversation | null = null;

  async answer(request: Asked, task: Task): Promise<Answer> {
    const { signal } = task;
    switch (request.kind) {
      case "load":
        return this.#load(request, task);
      case "generate":
        return streamText(this.#loaded().generate(request.prompt, { ...request.options, signal }), task.send);
      case "chat":
        return streamEvents(this.#reply(request, task), task.send);
      case "reset":
        this.#talk().reset(request.start);
        return null;
      case "messages":
        return this.#talk().messages;
      case "embed":
        return this.#loaded().embed(request.texts, { ...request.options, signal });
      case "rank":
        return this.#loaded().rank(request.query, request.documents, { ...request.options, signal });
      case "stats":
        return statsOf(this.#loaded());
    }
  }

  #reply({ content, options: { tools, ...rest } }: Request & { kind: "chat" }, task: Task): ConversationReply {
    const options = {
      ...rest,
      signal: task.signal,
      ...(tools && { tools: tools.map((tool) => toolInPage(tool, task)) }),
    };
    const conversation = this.#talk();
    if (typeof content === "string") return conversation.send(content, options);
    conversation.reset(content);
    return conversation.reply(options);
  }

  async #load({ source, threads, modules }: Request & { kind: "load" }, { send, signal }: Task): Promise<ModelFacts> {
    const late = modulesAt(modules);
    if (this.#model) throw new InvalidArgumentError("load: expected a worker without a model but found one with");
    const onProgress = (doneBytes: number, totalBytes: number) => send({ kind: "progress", doneBytes, totalBytes });
    const file = await openSource(source, { onProgress, signal });
    const { name } = file.source;
    const { isCached } = file;
    let { close, forget } = { ...file, close: () => file.source.close() };
    try {
      const { program, isMadeNow, ...opened } = await openProgram(file, late, { onProgress, signal });
      ({ close, forget } = opened);
      // A local file's progress is reading it; of a download, reading takes only a moment at the end.
      const progress = isCached === null || isMadeNow ? { onProgress } : {};
      const model = await loadLanguageModel(program, name, late, { threads, signal, ...progress });
      this.#model = model;
      return {
        name,
        makes: model.makes,
        contextLength: model.program.count("get_max_context_len", model.program.count("get_max_seq_len")),
        hasChatTemplate: model.template !== null,
        canThink: canThink(model.template?.source ?? ""),
        takesTools: takesTools(model.template?.source ?? ""),
        samplingDefaults: model.samplingDefaults,
        isCached,
      };
    } catch (error) {
      if (postedError(error).file !== null) await forget();
      throw error;
    } finally {
      await close();
    }
  }

  #loaded(): LanguageModel {
    if (!this.#model) throw new InvalidArgumentError("expected a loaded model but found none");
    return this.#model;
  }

  #talk(): Conversation {
    this.#conversation ??= this.#loaded().createConversation();
    return this.#conversation;
  }
}

interface OpenOptions {
  onProgress(doneBytes: number, totalBytes: number): void;
  readonly signal: AbortSignal;
}

async function openSource(source: PostedSource, options: OpenOptions): Promise<StoredModel> {
  if (typeof source === "string") {
    const watch = (totalBytes: number, refuse: (error: Error) => void) => new HeadCheck(source, totalBytes, refuse);
    return fetchModel(source, { ...options, watch });
  }
  const blob = source instanceof Blob ? source : await fileOf(source);
  const { name = "model", lastModified } = blob as Partial<File>;
  // Only one program of the user's own files is cached, the latest.
  const version = { validator: `${name} ${lastModified}`, byteLength: blob.size };
  const origin = lastModified === undefined ? null : { key: "program of the user's own file", version };
  return { source: blobSource(name, blob), isCached: null, origin, async forget() {} };
}

/** The file of a handle. InvalidFileError if it was removed or is no longer readable. */
function fileOf(handle: FileSystemFileHandle): Promise<File> {
  return handle.getFile().catch((cause: Error) => {
    throw new InvalidFileError(handle.name, `cannot be read: ${cause.message}`, { cause });
  });
}

/** A tool whose function, if there is one, runs in the page. */
function toolInPage({ canRun, ...tool }: PostedTool, task: Task): ExecutableTool {
  return canRun ? { ...tool, execute: (args, { call }) => task.call(call, args) } : tool;
}

async function streamText(generation: ResultStream<string, GenerationResult>, send: Send): Promise<Answer> {
  for await (const text of generation) send({ kind: "text", text });
  return generation.result;
}

async function streamEvents(reply: ConversationReply, send: Send): Promise<Answer> {
  for await (const event of reply.events()) send({ kind: "event", event });
  return reply.answer;
}

function statsOf({ program }: LanguageModel): ModelStats {
  return {
    threads: program.threads,
    memory: program.memoryUse,
    features: program.cpu.name,
    kernels: [...program.activeKernels].map(([operator, names]) => [operator, [...names]] as const),
  };
}
