/** A model's chat template: renders messages to the text format that the model was trained on. No tokens here. */
import { checkString, unexpected } from "../arguments.ts";
import { InvalidArgumentError, InvalidFileError, LimitError, UnsupportedError } from "../errors.ts";
import { completeLimits } from "./limits.ts";
import { TemplateFault } from "./template/faults.ts";
import { DEFAULT_LIMITS, type TemplateLimits } from "./template/limits.ts";
import { Template } from "./template/template.ts";

export type { TemplateLimits };

/** A message as templates read it; `tool_calls`, `name` and whatever else a template knows stand beside the content. */
export interface TemplateMessage {
  /** Who speaks: usually "system", "user", "assistant" or "tool". */
  readonly role: string;
  /** What is said: a string, or another form that the template knows. */
  readonly content?: unknown;
  readonly [key: string]: unknown;
}

/** Variables of a chat template beside the messages. */
export interface RenderOptions {
  /** Whether the text ends with the header of the model's next answer. Default false. */
  readonly addGenerationPrompt?: boolean | undefined;
  /** Text of the BOS token. Default: none. */
  readonly bosToken?: string | undefined;
  /** Text of the EOS token. Default: none. */
  readonly eosToken?: string | undefined;
  /** Tool descriptions, in the form that the template expects (usually OpenAI's). */
  readonly tools?: readonly unknown[] | null | undefined;
  /** Any further variable of the template, such as `enable_thinking`. */
  readonly [variable: string]: unknown;
}

/**
 * A Jinja template that renders as jinja2 3.1.6 does with transformers' settings: sandboxed, with Python's values and methods,
 * `tojson`, `raise_exception`, `strftime_now`, `{% break %}`, `{% continue %}` and `{% generation %}`.
 *
 * Templates come from strangers, so parsing and each rendering have limits of steps, characters, depth and time.
 */
export class ChatTemplate {
  /** The template's Jinja text. */
  readonly source: string;
  readonly #name: string;
  readonly #template: Template;
  #limits: TemplateLimits;

  /**
   * Parses Jinja. Errors call the template `name`, and say the line where it is known.
   *
   * @param limits Limits that differ from the defaults: 10 million steps, 16,777,216 characters, 200 levels and 2000
   * milliseconds.
   * @throws InvalidFileError when the source does not parse.
   * @throws LimitError when the source exceeds a limit.
   * @throws UnsupportedError when it includes other templates or uses a feature that only Python has.
   * @throws InvalidArgumentError when a limit is unknown or no positive number.
   */
  constructor(source: string, name = "chat template", limits: Partial<TemplateLimits> = {}) {
    checkString("source", source);
    checkString("name", name);
    this.source = source;
    this.#name = name;
    this.#limits = completeLimits(limits, DEFAULT_LIMITS);
    try {
      this.#template = new Template(source, this.#limits);
    } catch (cause) {
      throw this.#error(cause, "expected a Jinja template: ");
    }
  }

  /**
   * Limits of a rendering. Assign those that differ from the defaults, for a model's template too:
   * `model.template.limits = { milliseconds: 500 }`; the others become the defaults.
   *
   * @throws InvalidArgumentError when one is unknown or no positive number.
   */
  get limits(): TemplateLimits {
    return this.#limits;
  }

  set limits(limits: Partial<TemplateLimits>) {
    this.#limits = completeLimits(limits, DEFAULT_LIMITS);
  }

  /**
   * Renders a conversation, with BOS where the template writes it.
   *
   * @throws InvalidArgumentError when the template refuses the messages, or when they contain values that JSON does not have.
   * @throws InvalidFileError when the template fails otherwise.
   * @throws LimitError when a limit is exceeded.
   */
  render(messages: readonly TemplateMessage[], options: RenderOptions = {}): string {
    if (typeof options !== "object" || options === null) throw unexpected("options", "an object", options);
    if (!Array.isArray(messages)) throw unexpected("messages", "a list of messages", messages);
    for (const message of messages)
      if (typeof message !== "object" || message === null) throw unexpected("messages", "objects", message);
    const { addGenerationPrompt = false, bosToken = "", eosToken = "", tools = null, ...extra } = options;
    const variables = {
      documents: null,
      ...extra,
      messages: messages.map(withoutNulls),
      tools,
      add_generation_prompt: addGenerationPrompt,
      bos_token: bosToken,
      eos_token: eosToken,
    };
    try {
      return this.#template.render(variables, this.#limits);
    } catch (cause) {
      throw this.#error(cause, "");
    }
  }

  /** Converts a template's fault to an error of the library. */
  #error(cause: unknown, expected: string): unknown {
    if (!(cause instanceof TemplateFault)) return cause;
    const { kind, message, line } = cause;
    if (kind === "TemplateError")
      return new InvalidArgumentError(`${this.#name}: does not accept these messages: ${message}`, { cause });
    if (kind === "ArgumentError") return new InvalidArgumentError(`${this.#name}: ${message}`, { cause });
    const where = line === undefined ? "" : `line ${line}: `;
    if (kind === "UnsupportedError")
      return new UnsupportedError(`${this.#name}: ${where}${message}`, { file: this.#name, cause });
    if (kind === "LimitError") return new LimitError(this.#name, `${expected}${where}${message}`, { cause });
    const what = kind.startsWith("Template") ? message : `${kind}: ${message}`;
    return new InvalidFileError(this.#name, `${expected}${where}${what}`, { cause });
  }
}

/** A message without its null fields: clients write those that they do not use, and transformers drops them, too. */
function withoutNulls(message: TemplateMessage): object {
  return Object.fromEntries(Object.entries(message).filter(([, value]) => (value ?? null) !== null));
}
