/** The texts of generated tokens, one iteration over a running generation. */
import type { GenerationResult, generate } from "../text/generate.ts";

/** Text as it is generated; `result` is there when the generation has ended by itself. */
export interface Generation extends AsyncIterable<string> {
  readonly result: GenerationResult | null;
}

/** Tokens to their texts. `onEnd` receives the whole text when the iteration ends, also early. */
export class TokenStream implements Generation {
  result: GenerationResult | null = null;
  readonly #tokens: ReturnType<typeof generate>;
  readonly #onEnd: (text: string) => void;

  constructor(tokens: ReturnType<typeof generate>, onEnd: (text: string) => void = () => {}) {
    this.#tokens = tokens;
    this.#onEnd = onEnd;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    const tokens = this.#tokens;
    let whole = "";
    try {
      for (let next = await tokens.next(); ; next = await tokens.next()) {
        if (next.done) {
          this.result = next.value;
          return;
        }
        whole += next.value.text;
        if (next.value.text !== "") yield next.value.text;
      }
    } finally {
      await tokens.return(undefined as never);
      this.#onEnd(whole);
    }
  }
}
