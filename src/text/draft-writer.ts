/** What writes drafts, token by token: a smaller model with a sequence of its own, or the model's own head for drafts. */
import type { PrefixScope } from "../prefix-scope.ts";
import type { ComputeOptions, Decoder } from "./decoder.ts";
import type { DraftModel } from "./draft-source.ts";

/** Reading more tokens than these at once is reading a prompt, or what another source has drafted: no cost of a draft. */
const READ_MAX = 4;

/** Logits of a token that is drafted: of as many tokens, those of the least ids, as the writer tells apart. */
export interface WrittenLogits {
  readonly logits: Float32Array;
  /** Whether it took reading a longer text first. */
  readonly hasRead: boolean;
}

/** Writes drafts for one text. */
export interface DraftWriter {
  /** Most tokens that a text may have together with its draft. */
  readonly contextLength: number;
  /** Logits behind a text; null where there is nothing to go by. They may be reused by the next call. */
  logitsBehind(text: readonly number[], options: ComputeOptions): Promise<WrittenLogits | null>;
  dispose(): Promise<void>;
}

/** Writes with a smaller model. */
export class ModelWriter implements DraftWriter {
  readonly contextLength: number;
  readonly #decoder: ReturnType<DraftModel["createDecoder"]>;
  /** Tokens that its decoder holds. */
  readonly #ids: number[] = [];

  constructor(model: DraftModel, scope: PrefixScope | undefined) {
    this.#decoder = model.createDecoder(scope);
    this.contextLength = this.#decoder.contextLength;
  }

  async logitsBehind(text: readonly number[], options: ComputeOptions): Promise<WrittenLogits> {
    const rest = this.#follow(text);
    const hasRead = rest.length > READ_MAX;
    const logits = await this.#decoder.prefill(rest, { ...options, of: hasRead ? "prompt" : "answer" });
    for (const id of rest) this.#ids.push(id);
    return { logits, hasRead };
  }

  /** Cuts its context back to what it has in common with a text; gives what it has to read. */
  #follow(text: readonly number[]): number[] {
    let common = 0;
    const most = Math.min(this.#ids.length, text.length - 1);
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

/** Writes with the head of the decoder that it drafts for. */
export class HeadWriter implements DraftWriter {
  readonly contextLength: number;
  readonly #decoder: Decoder;

  constructor(decoder: Decoder) {
    this.#decoder = decoder;
    this.contextLength = decoder.contextLength;
  }

  async logitsBehind(text: readonly number[], options: ComputeOptions): Promise<WrittenLogits | null> {
    const logits = await this.#decoder.draft!(text.slice(this.#decoder.position), options);
    return logits && { logits, hasRead: false };
  }

  async dispose(): Promise<void> {}
}
