/** The page's half: a model in a worker, with promises and async iterators. */

import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { ChatResult } from "../language/chat-options.ts";
import type { ConversationEvent } from "../language/conversation.ts";
import { secondIteration } from "../language/token-stream.ts";
import type { Message } from "../text/chat-messages.ts";
import type { GenerateOptions, GenerationResult } from "../text/generate.ts";
import {
  errorOf,
  type ModelFacts,
  type ModelStats,
  type ModuleAddresses,
  type Port,
  type PostedChatOptions,
  type PostedSource,
  type Reply,
  type ReplyBody,
  type RequestBody,
} from "./protocol.ts";

/** How `loadModel` loads: threads, progress in bytes, an abort signal, and where the worker's script is. */
export interface LoadModelOptions {
  /** Threads of the kernels. Default: all of a few cores, half of many; one where memory cannot be shared. */
  readonly threads?: number | undefined;
  /** Called as the file is downloaded or read; `totalBytes` is 0 where the server does not say. What it throws ends the load. */
  onProgress?(doneBytes: number, totalBytes: number): void;
  /** Ends the load; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
  /** Address of worker-bundle.js, beside which answers-bundle.js and constraints-bundle.js are. Default: beside this module. */
  readonly worker?: URL | undefined;
}

/** Text as it is generated, to be iterated over once; `result` is there when the generation has ended by itself. */
export interface WebGeneration extends AsyncIterable<string> {
  /** Why the generation ended and what it took; null until it has ended by itself. */
  readonly result: GenerationResult | null;
}

/** An answer, to be iterated over once: as text, or by `events` with thinking and calls of tools. */
export interface WebReply extends WebGeneration {
  /** What the answer came to; null until it has ended by itself. */
  readonly answer: ChatResult | null;
  /** All that comes. */
  events(): AsyncIterable<ConversationEvent>;
}

/**
 * Loads a `.pte` program into a worker of its own: from a URL (cached in the browser's private file system where there
 * is room), a File or other Blob, or a handle of one. InvalidFileError, UnsupportedError, InvalidArgumentError; an abort throws the signal's reason.
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
    };
  return {
    answers: new URL("./answers-bundle.js", import.meta.url).href,
    constraints: new URL("./constraints-bundle.js", import.meta.url).href,
  };
}

/** How long an aborted load waits for its worker. */
const ABORT_MS = 1000;

/** Loads a model over a channel whose other end `serveModel` answers. */
export async function openModel(
  channel: Channel,
  close: () => void,
  source: string | URL | Blob | FileSystemFileHandle,
  { threads, onProgress, signal, modules }: LoadModelOptions & { readonly modules?: ModuleAddresses } = {},
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

/** A model that runs in a Web Worker, made by `loadModel`. It generates and chats without blocking the page. */
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
  generate(prompt: string | readonly number[], options: GenerateOptions = {}): WebGeneration {
    const { signal, ...posted } = options;
    return new TextStream(this.#channel, { kind: "generate", prompt, options: posted }, signal);
  }

  /**
   * Adds a message to the model's one conversation and streams the answer. A list of messages takes the place of the
   * conversation so far; what was computed of the same beginning is used again. An answer ends where the model calls tools:
   * their results are messages of the next list. InvalidArgumentError while another answer comes.
   */
  chat(
    content: string | readonly Message[],
    options: PostedChatOptions & Pick<GenerateOptions, "signal"> = {},
  ): WebReply {
    const { signal, ...posted } = options;
    return new TextStream(this.#channel, { kind: "chat", content, options: posted }, signal);
  }

  /** Begins the conversation anew, not while an answer comes; `system` is a first message of that role. */
  async reset(system?: string): Promise<void> {
    await this.#channel.ask({ kind: "reset", system });
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

type Answer = (ReplyBody & { kind: "end" })["value"];

interface Question {
  take(reply: ReplyBody): void;
  resolve(answer: Answer): void;
  reject(error: unknown): void;
}

interface AskOptions {
  /** Called with each answer that is not the last. */
  take?(reply: ReplyBody): void;
  /** Ends the request; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** Questions to a port, each with an answer. */
export class Channel {
  readonly #port: Port;
  readonly #questions = new Map<number, Question>();
  #last = 0;
  #failure: Error | null = null;

  constructor(port: Port) {
    this.#port = port;
    port.onmessage = ({ data }) => this.#take(data as Reply);
  }

  /** Resolves with the answer; `take` gets what comes before it. An abort rejects with the signal's reason, once it has ended. */
  ask(body: RequestBody, { take = () => {}, signal }: AskOptions = {}): Promise<Answer> {
    const id = ++this.#last;
    const onAbort = () => this.#port.postMessage({ kind: "abort", id });
    return new Promise<Answer>((resolve, reject) => {
      if (this.#failure) throw this.#failure;
      signal?.throwIfAborted();
      this.#questions.set(id, { take, resolve, reject });
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#port.postMessage({ ...body, id });
    })
      .catch((error) => {
        throw signal?.aborted ? signal.reason : error;
      })
      .finally(() => signal?.removeEventListener("abort", onAbort));
  }

  /** Ends all questions, those to come, too. */
  fail(error: Error): void {
    this.#failure ??= error;
    for (const { reject } of this.#questions.values()) reject(this.#failure);
    this.#questions.clear();
  }

  #take(reply: Reply): void {
    const question = this.#questions.get(reply.id);
    if (!question) return;
    if (reply.kind === "end" || reply.kind === "error") this.#questions.delete(reply.id);
    if (reply.kind === "end") question.resolve(reply.value);
    else if (reply.kind === "error") question.reject(errorOf(reply.error));
    else this.#give(question, reply);
  }

  /** An error of who gets what comes ends the question, and its work. */
  #give(question: Question, reply: Reply): void {
    try {
      question.take(reply);
    } catch (error) {
      this.#questions.delete(reply.id);
      this.#port.postMessage({ kind: "abort", id: reply.id });
      question.reject(error);
    }
  }
}

/** A generation in the worker, which begins with its iteration and ends when that ends early. */
class TextStream implements WebReply {
  result: GenerationResult | null = null;
  answer: ChatResult | null = null;
  readonly #channel: Channel;
  readonly #body: RequestBody;
  readonly #signal: AbortSignal | undefined;
  #isBegun = false;

  constructor(channel: Channel, body: RequestBody, signal: AbortSignal | undefined) {
    this.#channel = channel;
    this.#body = body;
    this.#signal = signal;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    for await (const event of this.events()) if (event.type === "text") yield event.text;
  }

  async *events(): AsyncGenerator<ConversationEvent> {
    if (this.#isBegun) throw secondIteration();
    this.#isBegun = true;
    const events: ConversationEvent[] = [];
    let wake = () => {};
    let isEnded = false;
    const take = (reply: ReplyBody) => {
      if (reply.kind === "text") events.push({ type: "text", text: reply.text });
      if (reply.kind === "event") events.push(reply.event);
      wake();
    };
    const stop = new AbortController();
    const signal = this.#signal ? AbortSignal.any([this.#signal, stop.signal]) : stop.signal;
    const answer = this.#channel.ask(this.#body, { take, signal });
    const ended = answer.then(
      () => {},
      () => {},
    );
    void ended.then(() => {
      isEnded = true;
      wake();
    });
    try {
      // What has come already is not given after an abort.
      while (!signal.aborted && (!isEnded || events.length > 0)) {
        if (events.length > 0) yield events.shift()!;
        else
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
      }
      const result = await answer;
      signal.throwIfAborted();
      this.#finish(result);
    } finally {
      stop.abort();
      await ended;
    }
  }

  #finish(result: Answer): void {
    if (this.#body.kind === "chat") this.answer = result as ChatResult;
    this.result = this.answer?.generation ?? (result as GenerationResult);
  }
}
