/** The texts of generated tokens, one iteration over a running generation. */
import { InvalidArgumentError } from "../errors.ts";
import type { GenerationResult, generate } from "../text/generate.ts";

/** Text as it is generated, to be iterated over once; `result` is there when the generation has ended by itself. */
export interface Generation extends AsyncIterable<string> {
  /** Why the generation ended and what it took; null until it has ended by itself. */
  readonly result: GenerationResult | null;
}

/** What a second iteration over a generation throws. */
export function secondIteration(): InvalidArgumentError {
  return new InvalidArgumentError("generation: expected one iteration but found another; begin a new generation");
}

/** Tokens to their texts. */
export class TokenStream implements Generation {
  result: GenerationResult | null = null;
  readonly #tokens: ReturnType<typeof generate>;
  #isBegun = false;

  constructor(tokens: ReturnType<typeof generate>) {
    this.#tokens = tokens;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    if (this.#isBegun) throw secondIteration();
    this.#isBegun = true;
    const tokens = this.#tokens;
    try {
      for (let next = await tokens.next(); ; next = await tokens.next()) {
        if (next.done) {
          this.result = next.value;
          return;
        }
        if (next.value.text !== "") yield next.value.text;
      }
    } finally {
      await tokens.return(undefined as never);
    }
  }
}
