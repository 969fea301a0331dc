/** Log probabilities of tokens, as chat completions and responses write them. */
import type { LogProbabilities, TokenProbability } from "../text/log-probabilities.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { tokenText } from "./token-text.ts";

/** Writes the log probabilities of an answer's tokens, one after the other. */
export class TokenLogprobs {
  readonly #tokenizer: Tokenizer;
  readonly #encoder = new TextEncoder();
  #last: number | undefined;

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }

  list(found: readonly LogProbabilities[]): object[] {
    return found.map((token) => {
      const written = { ...this.#write(token), top_logprobs: token.top.map((other) => this.#write(other)) };
      this.#last = token.id;
      return written;
    });
  }

  #write({ id, logprob }: TokenProbability): object {
    const token = tokenText(this.#tokenizer, id, this.#last);
    const bytes = token.startsWith("token_id:") ? null : [...this.#encoder.encode(token)];
    return { token, logprob, bytes };
  }
}
