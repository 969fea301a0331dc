/** What a page and its worker say to each other. Requests of one number are answered until `end` or `error`. */
import {
  ContextLengthError,
  InvalidArgumentError,
  InvalidFileError,
  LimitError,
  LowbitError,
  UnsupportedError,
} from "../errors.ts";
import type { ChatResult } from "../language/chat-options.ts";
import type { SendOptions } from "../language/conversation.ts";
import type { EmbedOptions } from "../language/embedding-model.ts";
import type { ConversationEvent } from "../language/reply.ts";
import type { RankOptions } from "../language/reranker.ts";
import type { Message, Tool, ToolCall } from "../text/chat-messages.ts";
import type { GenerateOptions, GenerationResult } from "../text/generate.ts";

/** Options of a generation that can be posted. */
type PostedOptions = Omit<GenerateOptions, "signal">;

/** Options of embeddings, and of scores, that can be posted. */
type PostedEmbedOptions = Omit<EmbedOptions, "signal">;
type PostedRankOptions = Omit<RankOptions, "signal">;

/** A tool without its function. */
export interface PostedTool extends Tool {
  /** Whether the page runs calls of it. */
  readonly canRun: boolean;
}

/** Options of an answer that can be posted. */
export interface PostedChatOptions extends Omit<SendOptions, "signal" | "tools" | "schema"> {
  /** Tools that the model may call. */
  readonly tools?: readonly PostedTool[] | undefined;
  /** JSON schema of the answer's text; `answer.value` is its value. */
  readonly schema?: Readonly<Record<string, unknown>> | undefined;
}

/** A model's file; strings are absolute URLs. */
export type PostedSource = string | Blob | FileSystemFileHandle;

/** What a model says of itself once it is loaded. */
export interface ModelFacts {
  /** Name of the program's file. */
  readonly name: string;
  /** What the model makes of texts: more text, vectors (`embed`), or scores of documents (`rank`). */
  readonly makes: "text" | "embeddings" | "scores";
  /** Tokens that the context holds. */
  readonly contextLength: number;
  /** Whether the model came with a chat template. */
  readonly hasChatTemplate: boolean;
  /** Whether the model's chat template has thinking, which options turn on and off. */
  readonly canThink: boolean;
  /** Whether the model's chat template has tools. */
  readonly takesTools: boolean;
  /** How the model samples where options do not say. */
  readonly samplingDefaults: PostedOptions;
  /** Whether the file is in the browser's cache; null for a file of the user's own. */
  readonly isCached: boolean | null;
}

/** How the model runs. */
export interface ModelStats {
  /** Threads of the kernels. */
  readonly threads: number;
  /** Bytes of weights, of scratch, and of one conversation's state. */
  readonly memory: { readonly constants: number; readonly scratch: number; readonly state: number };
  /** Features of WebAssembly that the kernels use. */
  readonly features: string;
  /** Kernels that have run so far, by operator. */
  readonly kernels: readonly (readonly [operator: string, kernels: readonly string[]])[];
}

/** Addresses of modules that the worker loads when they are first needed. */
export interface ModuleAddresses {
  /** Address of answers-bundle.js. */
  readonly answers: string;
  /** Address of constraints-bundle.js. */
  readonly constraints: string;
  /** Address of gguf-bundle.js. */
  readonly gguf: string;
}

export type RequestBody =
  | {
      readonly kind: "load";
      readonly source: PostedSource;
      readonly threads: number | undefined;
      readonly modules: ModuleAddresses;
    }
  | { readonly kind: "generate"; readonly prompt: string | readonly number[]; readonly options: PostedOptions }
  | { readonly kind: "chat"; readonly content: string | readonly Message[]; readonly options: PostedChatOptions }
  | { readonly kind: "reset"; readonly start: string | readonly Message[] | undefined }
  | { readonly kind: "messages" }
  | {
      readonly kind: "embed";
      readonly texts: readonly (string | readonly number[])[];
      readonly options: PostedEmbedOptions;
    }
  | {
      readonly kind: "rank";
      readonly query: string;
      readonly documents: readonly string[];
      readonly options: PostedRankOptions;
    }
  | { readonly kind: "stats" }
  /** What the function of a call gave, or threw. */
  | { readonly kind: "called"; readonly text: string }
  | { readonly kind: "failed"; readonly error: PostedError }
  | { readonly kind: "abort" };

/** `id` of an abort, and of what a call came to, is that of the request that it belongs to. */
export type Request = RequestBody & { readonly id: number };

export type ReplyBody =
  | { readonly kind: "progress"; readonly doneBytes: number; readonly totalBytes: number }
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "event"; readonly event: ConversationEvent }
  /** The page is asked to run a function; the model waits. */
  | { readonly kind: "call"; readonly call: ToolCall; readonly args: Record<string, unknown> }
  | { readonly kind: "end"; readonly value: Answer }
  | { readonly kind: "error"; readonly error: PostedError };

export type Reply = ReplyBody & { readonly id: number };

/** What a request came to. */
export type Answer =
  | ModelFacts
  | ModelStats
  | GenerationResult
  | ChatResult
  | readonly Message[]
  | readonly Float32Array[]
  | readonly number[]
  | null;

/** One end of the channel: a worker, its global scope, or a port. */
export interface Port {
  /** Sends a message to the other end. */
  postMessage(message: unknown): void;
  /** Called with each message of the other end. */
  onmessage: ((event: MessageEvent) => void) | null;
}

/** An error as data: classes do not survive posting. */
export interface PostedError {
  /** Name of the error's class. */
  readonly name: string;
  /** Message of the error. */
  readonly message: string;
  /** File of an InvalidFileError; null for other errors. */
  readonly file: string | null;
}

/** Under names of their own: bundlers give classes others. */
const known = { ContextLengthError, InvalidArgumentError, UnsupportedError };
const ofFiles = { LimitError, InvalidFileError };

export function postedError(error: unknown): PostedError {
  const { name = "Error", message = String(error), file = null } = error as Partial<InvalidFileError>;
  const found = Object.entries({ ...known, ...ofFiles }).find(([, type]) => error instanceof type);
  // Modules that are loaded late have classes of their own, under these names.
  const isOfFile = error instanceof InvalidFileError || name in ofFiles;
  return { name: found?.[0] ?? name, message, file: isOfFile ? file : null };
}

/** The error again, of its class where it is one of lowbit's. */
export function errorOf({ name, message, file }: PostedError): Error {
  if (file !== null) {
    const type = name === "LimitError" ? LimitError : InvalidFileError;
    return new type(file, message.slice(file.length + 2));
  }
  const type = Object.entries(known).find(([known]) => known === name)?.[1];
  return type ? new type(message) : new LowbitError(`${name}: ${message}`);
}
