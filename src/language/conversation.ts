/** A conversation: messages, the template that renders them, and the session that keeps what was computed. */
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import type { ChatTemplate, Message } from "../text/chat-template.ts";
import { encodeChat } from "../text/encode-chat.ts";
import { type GenerateOptions, generate } from "../text/generate.ts";
import type { SamplerOptions } from "../text/sampler.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { withDefaults } from "./generation-settings.ts";
import type { SessionDecoder } from "./session-decoder.ts";
import { type Generation, TokenStream } from "./token-stream.ts";

/** What a conversation needs of the model that answers. */
export interface ConversingModel {
  /** Name of the model, for messages. */
  readonly name: string;
  /** Tokenizer of the model. */
  readonly tokenizer: Tokenizer;
  /** Chat template of the model; null where it has none and cannot converse. */
  readonly template: ChatTemplate | null;
  /** How the model samples where options do not say. */
  readonly samplingDefaults: SamplerOptions;
  /** Ids of the tokens that end an answer. */
  readonly eosIds: readonly number[];
  /** Texts that end an answer. */
  readonly stopStrings: readonly string[];
  /** Makes a decoder with a session of its own. */
  createDecoder(): SessionDecoder;
}

/**
 * A conversation in the model's own chat template. It keeps its messages, and the keys and values of what was computed
 * already.
 * @example
 * const chat = llm.createConversation();
 * for await (const piece of chat.send("Hello!")) process.stdout.write(piece);
 */
export class Conversation {
  /** Messages so far, the answers included. */
  readonly messages: Message[] = [];
  readonly #model: ConversingModel;
  readonly #decoder: SessionDecoder;
  /** Ids whose keys and values the session holds. */
  #ids: number[] = [];
  #isAnswering = false;

  constructor(model: ConversingModel) {
    this.#model = model;
    this.#decoder = model.createDecoder();
  }

  /**
   * Adds a user message and streams the answer, of which what was read becomes a message when the iteration has ended.
   * An error before any of it was read takes the user message back. InvalidArgumentError while another answer is read.
   */
  send(content: string, options: GenerateOptions = {}): Generation {
    const message: Message = { role: "user", content };
    this.messages.push(message);
    return new TokenStream(this.#generate(options), ({ text, failed }) => {
      if (!failed || text !== "") this.messages.push({ role: "assistant", content: text });
      else if (this.messages.includes(message)) this.messages.splice(this.messages.indexOf(message), 1);
    });
  }

  /** Starts over; `system` is a first message of that role. InvalidArgumentError while an answer is read. */
  reset(system?: string): void {
    this.#checkIdle();
    this.messages.length = 0;
    this.#ids = [];
    this.#decoder.rewind(0);
    if (system) this.messages.push({ role: "system", content: system });
  }

  /** Runs the rendered conversation, of which the part that the session holds already is not computed again. */
  async *#generate(options: GenerateOptions): ReturnType<typeof generate> {
    const { tokenizer, template, samplingDefaults, eosIds, stopStrings } = this.#model;
    if (!template)
      throw new UnsupportedError(`${this.#model.name}: has no chat template; use generate with a plain prompt`);
    this.#checkIdle();
    const { contextLength } = this.#decoder;
    const ids = encodeChat(tokenizer, template, this.messages, { addGenerationPrompt: true, contextLength });
    const kept = Math.min(commonLength(this.#ids, ids), this.#decoder.position, ids.length - 1);
    this.#decoder.rewind(kept);
    this.#ids = ids;
    const settings = withDefaults<GenerateOptions>({ ...samplingDefaults, eosIds, stop: stopStrings }, options);
    const tokens = generate(this.#decoder, tokenizer, ids.slice(kept), { ...settings, contextIds: ids.slice(0, kept) });
    this.#isAnswering = true;
    try {
      for (let next = await tokens.next(); ; next = await tokens.next()) {
        if (next.done) return next.value;
        this.#ids.push(next.value.id);
        yield next.value;
      }
    } finally {
      await tokens.return(undefined as never);
      this.#isAnswering = false;
    }
  }

  /** Two answers at once would write over each other's keys and values. */
  #checkIdle(): void {
    if (this.#isAnswering)
      throw new InvalidArgumentError(
        "conversation: expected the answer under way to be read to its end, or left, first",
      );
  }
}

function commonLength(a: readonly number[], b: readonly number[]): number {
  let i = 0;
  while (i < a.length && i < b.length && a[i] === b[i]) i++;
  return i;
}
