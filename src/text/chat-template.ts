/** A model's chat template: messages to the text that the model was trained on. Rendering only; no tokens. */
import { Template } from "@huggingface/jinja";
import { InvalidArgumentError, InvalidFileError } from "../errors.ts";

/** A message as templates read it; `tool_calls`, `name` and whatever else a template knows go beside the content. */
export interface Message {
  readonly role: string;
  readonly content?: unknown;
  readonly [key: string]: unknown;
}

export interface RenderOptions {
  /** End with the opening of an answer. Default false. */
  readonly addGenerationPrompt?: boolean | undefined;
  readonly bosToken?: string | undefined;
  readonly eosToken?: string | undefined;
  /** Tool descriptions, in the form that the template expects (usually OpenAI's). */
  readonly tools?: readonly unknown[] | undefined;
  /** Any further variable of the template, such as `enable_thinking`. */
  readonly [variable: string]: unknown;
}

export class ChatTemplate {
  readonly source: string;
  readonly #name: string;
  readonly #template: Template;

  /** Parses Jinja; InvalidFileError when it does not parse. Errors call the template `name`. */
  constructor(source: string, name = "chat template") {
    this.source = source;
    this.#name = name;
    try {
      this.#template = new Template(source);
    } catch (cause) {
      throw new InvalidFileError(name, `expected a Jinja template: ${(cause as Error).message}`, { cause });
    }
  }

  /**
   * The text of a conversation, BOS included where the template writes it.
   * InvalidArgumentError when the template refuses the messages or fails on them.
   */
  render(messages: readonly Message[], options: RenderOptions = {}): string {
    const { addGenerationPrompt = false, bosToken = "", eosToken = "", tools = null, ...extra } = options;
    try {
      return this.#template.render({
        documents: null,
        ...extra,
        messages: messages.map(withoutNulls),
        tools,
        add_generation_prompt: addGenerationPrompt,
        bos_token: bosToken,
        eos_token: eosToken,
      });
    } catch (cause) {
      const problem = `does not accept these messages: ${(cause as Error).message}`;
      throw new InvalidArgumentError(`${this.#name}: ${problem}`, { cause });
    }
  }
}

/** A message without fields that are null: clients write those they do not use, and transformers drops them, too. */
function withoutNulls(message: Message): object {
  return Object.fromEntries(Object.entries(message).filter(([, value]) => (value ?? null) !== null));
}
