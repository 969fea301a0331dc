/** Draft writers, which draft token by token: a smaller model with a sequence of its own, or the model's own draft head. */
import type { PrefixScope } from "../prefix-scope.ts";
import type { ComputeOptions, Decoder } from "./decoder.ts";
import type { DraftModel } from "./draft-source.ts";

/**
 * Number of tokens above which a read counts as prefill (of a prompt, or of what another source drafted), not as a cost of
 * drafting.
 */
const READ_MAX = 4;

/** Logits for one drafted token, [tokens], for as many of the lowest ids as the writer's vocabulary has. */
export interface WrittenLogits {
  readonly logits: Float32Array;
  /** Whether a longer text had to be prefilled first. */
  readonly hasRead: boolean;
}

/** Drafts tokens of one text. */
export interface DraftWriter {
  /** Most tokens of a text together with its draft. */
  readonly contextLength: number;
  /**
   * Logits after a text, of which the last `drafted` tokens may be others in the next call; null where there is nothing to
   * predict from. The next call may reuse the array.
   */
  logitsBehind(text: readonly number[], drafted: number, options: ComputeOptions): Promise<WrittenLogits | null>;
  dispose(): Promise<void>;
}

/** Drafts with a smaller model. */
export class ModelWriter implements DraftWriter {
  readonly contextLength: number;
  readonly #decoder: ReturnType<DraftModel["createDecoder"]>;
  /** Tokens in the draft model's context, and how many of them are of the text for good. */
  readonly #ids: number[] = [];
  #kept = 0;

  constructor(model: DraftModel, scope: PrefixScope | undefined) {
    this.#decoder = model.createDecoder(scope);
    this.contextLength = this.#decoder.contextLength;
  }

  async logitsBehind(text: readonly number[], drafted: number, options: ComputeOptions): Promise<WrittenLogits> {
    const rest = this.#follow(text);
    const hasRead = rest.length > READ_MAX;
    const logits = await this.#decoder.prefill(rest, { ...options, of: hasRead ? "prompt" : "answer" });
    for (const id of rest) this.#ids.push(id);
    this.#kept = text.length - drafted;
    return { logits, hasRead };
  }

  /** Rewinds the context to the prefix that it shares with a text; returns the rest of the text, which is still to be read. */
  #follow(text: readonly number[]): number[] {
    const most = Math.min(this.#ids.length, text.length - 1);
    let common = Math.min(this.#kept, most);
    while (common < most && this.#ids[common] === text[common]) common++;
    if (common < this.#ids.length) {
      this.#decoder.rewind!(common);
      this.#ids.length = common;
    }
    return text.slice(common);
  }

  dispose(): Promise<void> {
    return this.#decoder.dispose();
  }
}

/** Drafts with the draft head of the target's own decoder. */
export class HeadWriter implements DraftWriter {
  readonly contextLength: number;
  readonly #decoder: Decoder;

  constructor(decoder: Decoder) {
    this.#decoder = decoder;
    this.contextLength = decoder.contextLength;
  }

  async logitsBehind(text: readonly number[], _: number, options: ComputeOptions): Promise<WrittenLogits | null> {
    const logits = await this.#decoder.draft!(text.slice(this.#decoder.position), options);
    return logits && { logits, hasRead: false };
  }

  async dispose(): Promise<void> {}
}
