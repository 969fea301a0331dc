/** What the page needs of who answers: a model in a worker of this page, or a server. */
import type { ConversationEvent, ExecutableTool, Message } from "lowbit/web";
import type { Settings } from "./settings.ts";

/** A model that can be chosen. */
export interface Offer {
  readonly name: string;
  /** Address of its file, or its name on the server. */
  readonly address: string;
  /** Bytes of its file; null where that is not known. */
  readonly bytes: number | null;
  /** Bytes of memory that it takes; null where that is not known. */
  readonly memoryBytes: number | null;
}

/** What an answer took. */
export interface Figures {
  readonly firstTokenSeconds: number;
  /** Tokens after the first, each second; null for fewer than two. */
  readonly tokensPerSecond: number | null;
  /** Tokens of the context that the conversation takes now. */
  readonly usedTokens: number;
}

/** How an answer ended. */
export interface Ending {
  readonly finishReason: "stop" | "length" | "toolCalls";
  /** What the reader should know of it; null for nothing. */
  readonly notice: string | null;
  readonly figures: Figures;
}

/** How to answer. */
export interface AnswerOptions {
  readonly settings: Settings;
  /** Whether the model may think; undefined where its template decides. */
  readonly thinking: boolean | undefined;
  readonly tools: readonly ExecutableTool[];
  readonly signal: AbortSignal;
}

/** A model that is ready. */
export interface ChatModel {
  readonly name: string;
  /** What the reader should know of how it was loaded; empty for nothing. */
  readonly notice: string;
  /** Tokens of the context; null where that is not known. */
  readonly contextLength: number | null;
  /** Whether the model's template has tools, and thinking that can be turned off; null where that is not known. */
  readonly takesTools: boolean | null;
  readonly canThink: boolean | null;
  /** Gives what comes of an answer, and returns how it ended. */
  answer(messages: readonly Message[], options: AnswerOptions): AsyncGenerator<ConversationEvent, Ending, void>;
  /** Names and values of how it runs, and kernels that ran. */
  report(): Promise<{ rows: (readonly [string, string])[]; kernels: string[] }>;
  dispose(): void;
}

/** How a model is loaded. */
export interface LoadOptions {
  readonly signal: AbortSignal;
  onProgress(doneBytes: number, totalBytes: number): void;
}

/** Who answers. */
export interface Engine {
  /** Models to choose from; an error where they cannot be known. */
  offers(): Promise<readonly Offer[]>;
  /** Makes a model ready: of an address, or a file of the reader's. */
  load(source: string | File, options: LoadOptions): Promise<ChatModel>;
}

/** What helps a conversation that is too long for its model. */
export const ROOM = ". New conversation makes room";
