/** Prompts that the operator of a server names: their beginnings are shared in the prefix cache by all keys. */
import { InvalidFileError, LowbitError } from "../errors.ts";
import type { LanguageModel } from "../language/language-model.ts";
import { chatMessages, chatTools } from "./chat-input.ts";
import { completeServerLimits, type ServerLimits } from "./limits.ts";
import { conversationOf, messageTools, promptOptions, thinkingOf } from "./messages-input.ts";
import { thinkingOptions } from "./model-options.ts";
import { chatRequest } from "./schemas/chat.ts";
import { countTokensRequest } from "./schemas/messages.ts";

/** A prompt that all keys share, for one model or all. */
export interface NamedPrompt {
  /** Name of the model that the prompt is for; null for all. */
  readonly model: string | null;
  /** Gives the prompt's token ids, up to where an answer begins. Throws as `encodeChat`. */
  idsFor(model: LanguageModel): number[];
}

const PATHS = ["/v1/chat/completions", "/v1/messages"] as const;

/**
 * Parses a file of prompts: each line is a body of /v1/chat/completions, or a line of OpenAI's batch format with `url`
 * (also /v1/messages) and `body`. InvalidFileError, with the line, for anything else.
 */
export function parsePrompts(text: string, file: string, given: Partial<ServerLimits> = {}): NamedPrompt[] {
  const limits = completeServerLimits(given);
  return text.split(/\r?\n/).flatMap((line, i) => {
    if (line.trim() === "") return [];
    const place = `${file}, line ${i + 1}`;
    const { url = PATHS[0], body, ...rest } = parseObject(line, place);
    if (!PATHS.some((path) => path === url))
      throw new InvalidFileError(place, `url: expected ${PATHS.join(" or ")} but found ${JSON.stringify(url)}`);
    const request = (body ?? rest) as { model?: unknown };
    const model = typeof request.model === "string" ? request.model : null;
    return [promptOf(place, url === "/v1/messages", { ...request, model: model ?? "any" }, limits, model)];
  });
}

function parseObject(line: string, place: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(line);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch (cause) {
    throw new InvalidFileError(place, "expected a request as JSON", { cause });
  }
  throw new InvalidFileError(place, "expected a request, which is a JSON object");
}

function promptOf(
  place: string,
  isMessages: boolean,
  request: object,
  limits: ServerLimits,
  model: string | null,
): NamedPrompt {
  const parsed = (isMessages ? countTokensRequest(limits) : chatRequest(limits)).safeParse(request);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new InvalidFileError(place, `${issue!.path.join(".")}: ${issue!.message}`);
  }
  const warn = () => {};
  return {
    model,
    idsFor(loaded) {
      const { template } = loaded;
      if (isMessages) {
        const body = countTokensRequest(limits).parse(request);
        const messages = conversationOf(body, { text: JSON.stringify(body), policy: "name", warn });
        const options = promptOptions(body, messageTools(body, limits.tools, warn));
        return loaded.encodeChat(messages, { ...options, ...thinkingOptions(thinkingOf(body), template, warn) });
      }
      const body = chatRequest(limits).parse(request);
      const { tools } = chatTools(body, limits.tools, warn).options(null);
      const { templateOptions, ...thinking } = thinkingOptions({ effort: body.reasoning_effort }, template, warn);
      const variables = { ...templateOptions, ...body.chat_template_kwargs };
      return loaded.encodeChat(chatMessages(body.messages, "name"), { tools, ...thinking, templateOptions: variables });
    },
  };
}

/** Token ids of the shared prompts, encoded once for each model. */
export class PublicPrompts {
  readonly #prompts: readonly NamedPrompt[];
  readonly #ids = new WeakMap<LanguageModel, number[][]>();

  constructor(prompts: readonly NamedPrompt[]) {
    this.#prompts = prompts;
  }

  /**
   * Ids of the prompts for the model served as `name`. Prompts that it cannot read, such as with tools it lacks, are left
   * out.
   */
  idsFor(name: string, model: LanguageModel): readonly number[][] {
    const known = this.#ids.get(model) ?? this.#prompts.flatMap((prompt) => idsOf(prompt, name, model));
    this.#ids.set(model, known);
    return known;
  }
}

function idsOf(prompt: NamedPrompt, name: string, model: LanguageModel): number[][] {
  if (prompt.model !== null && prompt.model !== name) return [];
  try {
    return [prompt.idsFor(model)];
  } catch (error) {
    if (error instanceof LowbitError) return [];
    throw error;
  }
}

/** Computes prompts ahead, so that they are in the prefix cache. Prompts longer than the context are left out. */
export async function warmPrompts(
  prompts: readonly NamedPrompt[],
  name: string,
  model: LanguageModel,
  signal: AbortSignal,
): Promise<void> {
  for (const prompt of prompts) {
    if (prompt.model !== null && prompt.model !== name) continue;
    const decoder = model.createDecoder();
    try {
      await decoder.prefill(prompt.idsFor(model).slice(0, decoder.contextLength), { signal });
    } finally {
      await decoder.dispose();
    }
  }
}
