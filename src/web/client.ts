/** The page's half: a model in a worker, with promises and async iterators. */

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

/** How `loadModel` loads: threads, progress in bytes, an abort signal, and where the worker's script is. */
export interface LoadModelOptions {
  /** Threads of the kernels. Default: all of a few cores, half of many; one where memory cannot be shared. */
  readonly threads?: number | undefined;
  /** Called as the file is downloaded or read; `totalBytes` is 0 where the server does not say. What it throws ends the load. */
  onProgress?(doneBytes: number, totalBytes: number): void;
  /** Ends the load; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
  /** Address of worker-bundle.js, beside which answers-bundle.js, constraints-bundle.js and gguf-bundle.js are. Default: beside this module. */
  readonly worker?: URL | undefined;
}

/** How an answer in the model's conversation is generated. Functions of tools run in the page. */
export interface WebChatOptions extends Omit<PostedChatOptions, "tools">, Pick<GenerateOptions, "signal"> {
  /** Tools that the model may call. Those with `execute` are run; their results go back to the model. */
  readonly tools?: readonly ExecutableTool[] | undefined;
  /** Runs calls of tools without `execute`. Without it, an answer ends where the model waits for their results. */
  readonly onToolCall?: OnToolCall | undefined;
}

/**
 * Loads a `.pte` program, or a model in a GGUF file, into a worker of its own: from a URL (cached in the browser's private
 * file system where there is room), a File or other Blob, or a handle of one. A GGUF becomes a program with the weights as
 * they are stored, which is kept in its place. InvalidFileError, UnsupportedError, InvalidArgumentError; an abort throws the signal's reason.
 */
export async function loadModel(
  source: string | URL | Blob | FileSystemFileHandle,
  options: LoadModelOptions = {},
): Promise<WebModel> {
  options.signal?.throwIfAborted();
  // The constructor is written out so that bundlers find the worker's file.
  const worker = options.worker
    ? new Worker(options.worker, { type: "module" })
    : new Worker(new URL("./worker-bundle.js", import.meta.url), { type: "module" });
  const channel = new Channel(worker);
  // Without a message the script itself did not come.
  worker.onerror = ({ message = "cannot load worker-bundle.js, expected beside the module or where `worker` says" }) =>
    channel.fail(new UnsupportedError(`the worker failed: ${message}`));
  // The worker tidies up and says so, unless its script is still on the way.
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

/** Addresses of what the worker loads late; written out, too, for bundlers. */
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

/** How long an aborted load waits for its worker. */
const ABORT_MS = 1000;

/** Loads a model over a channel whose other end `serveModel` answers. */
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
  // The answer may have been on its way already.
  signal?.throwIfAborted();
  return new WebModel(channel, close, facts as ModelFacts);
}

/** InvalidArgumentError for what is no address, file or handle: pages without types may give anything. */
function postedSource(source: string | URL | Blob | FileSystemFileHandle): PostedSource {
  if (typeof source === "string" || source instanceof URL) {
    try {
      // Nothing is the address of the page itself.
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
 * A model that runs in a Web Worker, made by `loadModel`. It generates and chats, or makes vectors or scores of texts, without
 * blocking the page.
 */
export class WebModel {
  /** What the model says of itself. */
  readonly facts: ModelFacts;
  readonly #channel: Channel;
  readonly #close: () => void;

  constructor(channel: Channel, close: () => void, facts: ModelFacts) {
    this.#channel = channel;
    this.#close = close;
    this.facts = facts;
  }

  /** Continues a prompt; options not given are those that the model's authors recommend. */
  generate(prompt: string | readonly number[], options: GenerateOptions = {}): ResultStream<string, GenerationResult> {
    const { signal, ...posted } = options;
    return generationIn(this.#channel, { kind: "generate", prompt, options: posted }, signal);
  }

  /**
   * Adds a message of the user to the model's one conversation and streams the answer. A list of messages takes the place of
   * the conversation's, such as after one was changed; what was computed of the same beginning is used again.
   * Functions of tools that the model calls are run, and the model goes on with their results.
   * InvalidArgumentError while another answer comes, and for options that cannot be posted to a worker.
   */
  chat(content: string | readonly Message[], options: WebChatOptions = {}): Reply {
    const { signal, tools, onToolCall, ...rest } = options;
    if (tools !== undefined) checkTools(tools);
    const posted = { ...rest, ...(tools && { tools: tools.map((tool) => postedTool(tool, onToolCall)) }) };
    return replyIn(this.#channel, { kind: "chat", content, options: posted }, { signal, tools, onToolCall });
  }

  /**
   * Begins the conversation anew, not while an answer comes; `start` is a first message of the role system, or all messages
   * of a conversation that was kept.
   */
  async reset(start?: string | readonly Message[]): Promise<void> {
    await this.#channel.ask({ kind: "reset", start });
  }

  /** Messages of the conversation so far, answers and results of tools among them. */
  async messages(): Promise<Message[]> {
    return (await this.#channel.ask({ kind: "messages" })) as Message[];
  }

  /**
   * Embeddings of texts, or of their token ids, in order, of a program of embeddings. UnsupportedError for another;
   * ContextLengthError for texts longer than the model takes; an abort throws the signal's reason.
   */
  async embed(texts: readonly (string | readonly number[])[], options: EmbedOptions = {}): Promise<Float32Array[]> {
    const { signal, ...posted } = options;
    return (await this.#channel.ask({ kind: "embed", texts, options: posted }, { signal })) as Float32Array[];
  }

  /**
   * Scores of documents by how well they answer a query, in the order of the documents, of a program that is a reranker.
   * Errors are those of `embed`.
   */
  async rank(query: string, documents: readonly string[], options: RankOptions = {}): Promise<number[]> {
    const { signal, ...posted } = options;
    return (await this.#channel.ask({ kind: "rank", query, documents, options: posted }, { signal })) as number[];
  }

  /** How the model runs: threads, memory, features and kernels. */
  async stats(): Promise<ModelStats> {
    return (await this.#channel.ask({ kind: "stats" })) as ModelStats;
  }

  /** Ends the worker and frees its memory; what runs ends with an error. */
  dispose(): void {
    this.#channel.fail(new UnsupportedError("the model was disposed of"));
    this.#close();
  }
}

/** A tool as the worker needs it: its function stays in the page. */
function postedTool({ execute, ...tool }: ExecutableTool, onToolCall: OnToolCall | undefined): PostedTool {
  return { ...tool, canRun: execute !== undefined || onToolCall !== undefined };
}
