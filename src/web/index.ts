/** lowbit in a page: a model in a worker. Re-exports only. */
export {
  ContextLengthError,
  InvalidArgumentError,
  InvalidFileError,
  LimitError,
  LowbitError,
  UnsupportedError,
} from "../errors.ts";
export type { ChatResult } from "../language/chat-options.ts";
export type { ExecutableTool } from "../language/conversation-tools.ts";
export type { EmbedOptions } from "../language/embedding-model.ts";
export { type McpClient, mcpTools } from "../language/mcp-tools.ts";
export type { ConversationEvent, Reply } from "../language/reply.ts";
export type { RankOptions } from "../language/reranker.ts";
export type { ResultStream } from "../language/result-stream.ts";
export type { Message, ToolCall } from "../text/chat-messages.ts";
export type { GenerateOptions, GenerationResult } from "../text/generate.ts";
export { type LoadModelOptions, loadModel, type WebChatOptions, type WebModel } from "./client.ts";
export type { ModelFacts, ModelStats } from "./protocol.ts";
