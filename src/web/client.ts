/** The page's side of the API: a model in a worker, with promises and async iterators. */

import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { ExecutableTool, OnToolCall } from "../language/conversation-tools.ts";
import type { EmbedOptions } from "../language/embedding-model.ts";
import type { Reply } from "../language/reply.ts";
import type { RankOptions } from "../language/reranker.ts";
import type { ResultStream } from "../language/result-stream.ts";
import { checkTools, type Message } from "../text/chat-messages.ts";
import type { GenerateOptions, GenerationResult } from "../text/generate.ts";
import { Channel } from "./channel.ts";
import type {
  ModelFacts,
  ModelStats,
  ModuleAddresses,
  PostedChatOptions,
  PostedSource,
  PostedTool,
  ReplyBody,
} from "./protocol.ts";
import { generationIn, replyIn } from "./streams.ts";

/** Options of `loadModel`: threads, progress in bytes, an abort signal, and the address of the worker's script. */
export interface LoadModelOptions {
  /** Number of kernel threads. Default: all cores if they are few, half of many; 1 where memory cannot be shared. */
  readonly threads?: number | undefined;
  /** Called as the file is downloaded or read; `totalBytes` is 0 if unknown. If it throws, the load ends. */
  onProgress?(doneBytes: number, totalBytes: number): void;
  /** Aborts the load, which throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Address of worker-bundle.js, whose folder also has answers-bundle.js, constraints-bundle.js and gguf-bundle.js. Default:
   * the folder of this module.
   */
  readonly worker?: URL | undefined;
}

/** Options of an answer in the model's conversation. Functions of tools run in the page. */
export interface WebChatOptions extends Omit<PostedChatOptions, "tools">, Pick<GenerateOptions, "signal"> {
  /** Tools that the model may call. Those with `execute` are run, and their results are passed to the model. */
  readonly tools?: readonly ExecutableTool[] | undefined;
  /** Runs calls of tools without `execute`. Without it, an answer ends at a call, and the model waits for its result. */
  readonly onToolCall?: OnToolCall | undefined;
}

/**
 * Loads a `.pte` program, or a model in a GGUF file, into a worker of its own: from a URL (cached in the browser's private file
 * system if there is room), a File or other Blob, or a file handle. A GGUF file is converted to a program with its weights as
 * stored, which replaces it in the cache. InvalidFileError, UnsupportedError, InvalidArgumentError; an abort throws the
 * signal's reason.
 */
export async function loadModel(
  source: string | URL | Blob | FileSystemFileHandle,
  options: LoadModelOptions = {},
): Promise<WebModel> {
  options.signal?.throwIfAborted();
  // Written out literally, so that bundlers find the worker's file.
  const worker = options.worker
    ? new Worker(options.worker, { type: "module" })
    : new Worker(new URL("./worker-bundle.js", import.meta.url), { type: "module" });
  const channel = new Channel(worker);
  // Without a message, the script itself could not be loaded.
  worker.onerror = ({ message = "cannot load worker-bundle.js, expected beside the module or where `worker` says" }) =>
    channel.fail(new UnsupportedError(`the worker failed: ${message}`));
  // The worker cleans up and replies, unless its script is still loading.
  let timer: ReturnType<typeof setTimeout> | undefined;
  const onAbort = () => {
    timer = setTimeout(() => channel.fail(new UnsupportedError("the worker does not answer")), ABORT_MS);
  };
  options.signal?.addEventListener("abort", onAbort);
  try {
    return await openModel(channel, () => worker.terminate(), source, {
      ...options,
      modules: modulesBeside(options.worker),
    });
  } catch (error) {
    worker.terminate();
    throw error;
  } finally {
    options.signal?.removeEventListener("abort", onAbort);
    clearTimeout(timer);
  }
}

/** Addresses of the worker's lazily loaded modules, also written out for bundlers. */
function modulesBeside(worker: URL | undefined): ModuleAddresses {
  if (worker)
    return {
      answers: new URL("./answers-bundle.js", worker).href,
      constraints: new URL("./constraints-bundle.js", worker).href,
      gguf: new URL("./gguf-bundle.js", worker).href,
    };
  return {
    answers: new URL("./answers-bundle.js", import.meta.url).href,
    constraints: new URL("./constraints-bundle.js", import.meta.url).href,
    gguf: new URL("./gguf-bundle.js", import.meta.url).href,
  };
}

/** Milliseconds that an aborted load waits for its worker. */
const ABORT_MS = 1000;

/** Loads a model over a channel to `serveModel`. */
export async function openModel(
  channel: Channel,
  close: () => void,
  source: string | URL | Blob | FileSystemFileHandle,
  { threads, onProgress, signal, modules }: LoadModelOptions & { readonly modules: ModuleAddresses },
): Promise<WebModel> {
  const posted = postedSource(source);
  const take = (reply: ReplyBody) => {
    if (reply.kind === "progress") onProgress?.(reply.doneBytes, reply.totalBytes);
  };
  const facts = await channel.ask({ kind: "load", source: posted, threads, modules }, { take, signal });
  // The reply may have been on its way when the load was aborted.
  signal?.throwIfAborted();
  return new WebModel(channel, close, facts as ModelFacts);
}

/**
 * Checks the source. InvalidArgumentError for anything but an address, file or handle: pages without types may pass anything.
 */
function postedSource(source: string | URL | Blob | FileSystemFileHandle): PostedSource {
  if (typeof source === "string" || source instanceof URL) {
    try {
      // An empty string would resolve to the page itself.
      if (`${source}`.trim() === "") throw new TypeError("no address");
      return new URL(source, globalThis.location?.href).href;
    } catch (cause) {
      throw new InvalidArgumentError(`source: expected an address but found ${JSON.stringify(source)}`, { cause });
    }
  }
  if (source instanceof Blob || typeof source?.getFile === "function") return source;
  const found = Object.prototype.toString.call(source).slice(8, -1);
  throw new InvalidArgumentError(`source: expected an address, a Blob, a File or a file handle but found ${found}`);
}

/**
 * A model in a Web Worker, made by `loadModel`. It generates and chats, or makes embeddings or scores, without blocking the
 * page.
 */
export class WebModel {
  /** Facts about the model. */
  readonly facts: ModelFacts;
  readonly #channel: Channel;
  readonly #close: () => void;

  constructor(channel: Channel, close: () => void, facts: ModelFacts) {
    this.#channel = channel;
    this.#close = close;
    this.facts = facts;
  }

  /** Continues a prompt. Options that are not given are those recommended by the model's authors. */
  generate(prompt: string | readonly number[], options: GenerateOptions = {}): ResultStream<string, GenerationResult> {
    const { signal, ...posted } = options;
    return generationIn(this.#channel, { kind: "generate", prompt, options: posted }, signal);
  }

  /**
   * Adds a user message to the model's conversation and streams the answer. A list of messages replaces the conversation, for
   * example after one was edited; what was computed of the common beginning is reused. Functions of tools that the model calls
   * are run, and the model continues with their results. InvalidArgumentError while another answer is generated, and for
   * options that cannot be posted to a worker.
   */
  chat(content: string | readonly Message[], options: WebChatOptions = {}): Reply {
    const { signal, tools, onToolCall, ...rest } = options;
    if (tools !== undefined) checkTools(tools);
    const posted = { ...rest, ...(tools && { tools: tools.map((tool) => postedTool(tool, onToolCall)) }) };
    return replyIn(this.#channel, { kind: "chat", content, options: posted }, { signal, tools, onToolCall });
  }

  /**
   * Starts a new conversation, not while an answer is generated; `start` is a system message, or all messages of a saved
   * conversation.
   */
  async reset(start?: string | readonly Message[]): Promise<void> {
    await this.#channel.ask({ kind: "reset", start });
  }

  /** Messages of the conversation so far, including answers and tool results. */
  async messages(): Promise<Message[]> {
    return (await this.#channel.ask({ kind: "messages" })) as Message[];
  }

  /**
   * Embeddings of texts, or of their token ids, in order, by an embedding model. UnsupportedError for another model;
   * ContextLengthError for texts longer than the model's context; an abort throws the signal's reason.
   */
  async embed(texts: readonly (string | readonly number[])[], options: EmbedOptions = {}): Promise<Float32Array[]> {
    const { signal, ...posted } = options;
    return (await this.#channel.ask({ kind: "embed", texts, options: posted }, { signal })) as Float32Array[];
  }

  /** Scores of documents for a query, in the order of the documents, by a reranker. Errors are those of `embed`. */
  async rank(query: string, documents: readonly string[], options: RankOptions = {}): Promise<number[]> {
    const { signal, ...posted } = options;
    return (await this.#channel.ask({ kind: "rank", query, documents, options: posted }, { signal })) as number[];
  }

  /** Runtime statistics: threads, memory, features and kernels. */
  async stats(): Promise<ModelStats> {
    return (await this.#channel.ask({ kind: "stats" })) as ModelStats;
  }

  /** Ends the worker and frees its memory; running requests fail. */
  dispose(): void {
    this.#channel.fail(new UnsupportedError("the model was disposed of"));
    this.#close();
  }
}

/** A tool without its function, which stays in the page. */
function postedTool({ execute, ...tool }: ExecutableTool, onToolCall: OnToolCall | undefined): PostedTool {
  return { ...tool, canRun: execute !== undefined || onToolCall !== undefined };
}
