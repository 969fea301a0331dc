/**
 * Messages between a page and its worker. A request is answered by replies with its number, the last of which is `end` or
 * `error`.
 */
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
  /** Whether the page can run its calls. */
  readonly canRun: boolean;
}

/** Options of an answer that can be posted. */
export interface PostedChatOptions extends Omit<SendOptions, "signal" | "tools" | "schema"> {
  /** Tools that the model may call. */
  readonly tools?: readonly PostedTool[] | undefined;
  /** JSON schema of the answer's text; `answer.value` is its value. */
  readonly schema?: Readonly<Record<string, unknown>> | undefined;
}

/** A model's file; a string is an absolute URL. */
export type PostedSource = string | Blob | FileSystemFileHandle;

/** Facts about a loaded model. */
export interface ModelFacts {
  /** Name of the program's file. */
  readonly name: string;
  /** What the model makes: text, embeddings (`embed`), or scores of documents (`rank`). */
  readonly makes: "text" | "embeddings" | "scores";
  /** Context length in tokens. */
  readonly contextLength: number;
  /** Whether the model has a chat template. */
  readonly hasChatTemplate: boolean;
  /** Whether the chat template supports thinking, which options turn on and off. */
  readonly canThink: boolean;
  /** Whether the chat template supports tools. */
  readonly takesTools: boolean;
  /** Sampling options that are used where a call gives none. */
  readonly samplingDefaults: PostedOptions;
  /** Whether the file is in the browser's cache; null for the user's own file. */
  readonly isCached: boolean | null;
}

/** Runtime statistics of a model. */
export interface ModelStats {
  /** Number of kernel threads. */
  readonly threads: number;
  /** Bytes of weights, of scratch memory, and of one conversation's state. */
  readonly memory: { readonly constants: number; readonly scratch: number; readonly state: number };
  /** WebAssembly features that the kernels use. */
  readonly features: string;
  /** Kernels used so far, by operator. */
  readonly kernels: readonly (readonly [operator: string, kernels: readonly string[]])[];
}

/** Addresses of the worker's lazily loaded modules. */
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
  /** Result, or error, of a function that the page ran for a call. */
  | { readonly kind: "called"; readonly text: string }
  | { readonly kind: "failed"; readonly error: PostedError }
  | { readonly kind: "abort" };

/** A request with its number. An abort or a call's result has the number of the request that it belongs to. */
export type Request = RequestBody & { readonly id: number };

export type ReplyBody =
  | { readonly kind: "progress"; readonly doneBytes: number; readonly totalBytes: number }
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "event"; readonly event: ConversationEvent }
  /** Asks the page to run a function; the model waits. */
  | { readonly kind: "call"; readonly call: ToolCall; readonly args: Record<string, unknown> }
  | { readonly kind: "end"; readonly value: Answer }
  | { readonly kind: "error"; readonly error: PostedError };

export type Reply = ReplyBody & { readonly id: number };

/** Result of a request. */
export type Answer =
  | ModelFacts
  | ModelStats
  | GenerationResult
  | ChatResult
  | readonly Message[]
  | readonly Float32Array[]
  | readonly number[]
  | null;

/** One end of the channel: a worker, its global scope, or a message port. */
export interface Port {
  /** Sends a message to the other end. */
  postMessage(message: unknown): void;
  /** Called with each message of the other end. */
  onmessage: ((event: MessageEvent) => void) | null;
}

/** An error as plain data, since classes are lost by posting. */
export interface PostedError {
  /** Name of the error's class. */
  readonly name: string;
  /** Message of the error. */
  readonly message: string;
  /** File of an InvalidFileError; null for other errors. */
  readonly file: string | null;
}

/** By literal names, since bundlers rename classes. */
const known = { ContextLengthError, InvalidArgumentError, UnsupportedError };
const ofFiles = { LimitError, InvalidFileError };

export function postedError(error: unknown): PostedError {
  const { name = "Error", message = String(error), file = null } = error as Partial<InvalidFileError>;
  const found = Object.entries({ ...known, ...ofFiles }).find(([, type]) => error instanceof type);
  // Lazily loaded modules have their own copies of the classes, with these names.
  const isOfFile = error instanceof InvalidFileError || name in ofFiles;
  return { name: found?.[0] ?? name, message, file: isOfFile ? file : null };
}

/** Recreates a posted error, with its class if it is one of lowbit's. */
export function errorOf({ name, message, file }: PostedError): Error {
  if (file !== null) {
    const type = name === "LimitError" ? LimitError : InvalidFileError;
    return new type(file, message.slice(file.length + 2));
  }
  const type = Object.entries(known).find(([known]) => known === name)?.[1];
  return type ? new type(message) : new LowbitError(`${name}: ${message}`);
}
