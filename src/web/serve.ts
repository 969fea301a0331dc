/** The worker's half: one model, its conversation, and the generations that run. */

import { InvalidArgumentError, InvalidFileError } from "../errors.ts";
import type { Conversation } from "../language/conversation.ts";
import { type LanguageModel, loadProgramObject } from "../language/language-model.ts";
import type { Generation } from "../language/token-stream.ts";
import { readProgram } from "../program/read.ts";
import { blobSource } from "./blob-source.ts";
import { HeadCheck } from "./head-check.ts";
import { setModuleAddresses } from "./lazy-modules.ts";
import { fetchModel, type StoredModel } from "./model-cache.ts";
import {
  type ModelFacts,
  type ModelStats,
  type Port,
  type PostedSource,
  postedError,
  type ReplyBody,
  type Request,
} from "./protocol.ts";

/** Answers the requests that come to a port. */
export function serveModel(port: Port): void {
  const server = new ModelServer();
  const running = new Map<number, AbortController>();
  port.onmessage = async ({ data }) => {
    const request = data as Request;
    const { id } = request;
    const reply = (body: ReplyBody) => port.postMessage({ ...body, id });
    if (request.kind === "abort") {
      running.get(id)?.abort();
      return;
    }
    const controller = new AbortController();
    running.set(id, controller);
    try {
      reply({ kind: "end", value: await server.answer(request, reply, controller.signal) });
    } catch (error) {
      reply({ kind: "error", error: postedError(error) });
    } finally {
      running.delete(id);
    }
  };
}

type Send = (body: ReplyBody) => void;
type Answer = (ReplyBody & { kind: "end" })["value"];

class ModelServer {
  #model: LanguageModel | null = null;
  #conversation: Conversation | null = null;

  async answer(request: Request, send: Send, signal: AbortSignal): Promise<Answer> {
    switch (request.kind) {
      case "load":
        return this.#load(request, send, signal);
      case "generate":
        return stream(this.#loaded().generate(request.prompt, { ...request.options, signal }), send);
      case "chat":
        return this.#chat(request, send, signal);
      case "reset":
        this.#talk().reset(request.system);
        return null;
      case "stats":
        return statsOf(this.#loaded());
      case "abort":
        return null;
    }
  }

  async #load(
    { source, threads, modules }: Request & { kind: "load" },
    send: Send,
    signal: AbortSignal,
  ): Promise<ModelFacts> {
    if (modules) setModuleAddresses(modules);
    if (this.#model) throw new InvalidArgumentError("load: expected a worker without a model but found one with");
    const onProgress = (doneBytes: number, totalBytes: number) => send({ kind: "progress", doneBytes, totalBytes });
    const { source: file, isCached, forget } = await openSource(source, { onProgress, signal });
    const { name } = file;
    // Of a file at hand the reading is the progress; of a download it is a moment at the end.
    const progress = isCached === null ? { onProgress } : {};
    try {
      const model = await loadProgramObject(await readProgram(file), name, { threads, signal, ...progress });
      this.#model = model;
      return {
        name,
        contextLength: model.program.count("get_max_context_len", model.program.count("get_max_seq_len")),
        hasChatTemplate: model.template !== null,
        samplingDefaults: model.samplingDefaults,
        isCached,
      };
    } catch (error) {
      if (error instanceof InvalidFileError) await forget();
      throw error;
    } finally {
      await file.close();
    }
  }

  async #chat({ content, options }: Request & { kind: "chat" }, send: Send, signal: AbortSignal): Promise<Answer> {
    const talk = this.#talk();
    if (typeof content !== "string") talk.replaceMessages(content);
    const given = { ...options, signal };
    const reply = typeof content === "string" ? talk.send(content, given) : talk.reply(given);
    for await (const event of reply.events())
      send(event.type === "text" ? { kind: "text", text: event.text } : { kind: "event", event });
    return reply.answer;
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
  const name = (blob as Partial<File>).name ?? "model";
  return { source: blobSource(name, blob), isCached: null, async forget() {} };
}

/** InvalidFileError for one that was removed, or may not be read any more. */
function fileOf(handle: FileSystemFileHandle): Promise<File> {
  return handle.getFile().catch((cause: Error) => {
    throw new InvalidFileError(handle.name, `cannot be read: ${cause.message}`, { cause });
  });
}

async function stream(generation: Generation, send: Send): Promise<Answer> {
  for await (const text of generation) send({ kind: "text", text });
  return generation.result;
}

function statsOf({ program }: LanguageModel): ModelStats {
  return {
    threads: program.threads,
    memory: program.memoryUse,
    features: program.cpu.name,
    kernels: [...program.activeKernels].map(([operator, names]) => [operator, [...names]] as const),
  };
}
