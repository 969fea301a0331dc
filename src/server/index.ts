/** A server of language models in the forms of OpenAI's and Anthropic's APIs, as a part of other programs. */

export { parseKeys } from "./keys.ts";
export { defaultLimits, type ServerLimits } from "./limits.ts";
export { type RunningServer, type ServerOptions, serveModels } from "./listen.ts";
export type { ListedModel, ModelSource } from "./models.ts";
