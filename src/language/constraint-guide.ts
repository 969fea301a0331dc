/** Generates text after a plain prompt under a constraint. */
import type { Decoder } from "../text/decoder.ts";
import { type GenerateOptions, generate, type TokenGuide } from "../text/generate.ts";
import { type ConstrainedText, type ConstrainingModel, constrainText } from "./constrained-text.ts";

/** Generates after a prompt, under the constraint of the options where they have one. */
export async function* generateConstrained(
  model: ConstrainingModel,
  decoder: Decoder,
  ids: readonly number[],
  { constraint, ...options }: GenerateOptions,
): ReturnType<typeof generate> {
  const { tokenizer } = model;
  const vocabularySize = decoder.vocabularySize ?? tokenizer.vocabSize;
  const constrained = await constrainText(model, vocabularySize, { constraint, eosIds: options.eosIds });
  try {
    return yield* generate(decoder, tokenizer, ids, options, constrained && new ConstraintGuide(constrained));
  } finally {
    constrained?.dispose();
  }
}

class ConstraintGuide implements TokenGuide {
  readonly shownIds: ReadonlySet<number> = new Set();
  readonly #text: ConstrainedText;

  constructor(text: ConstrainedText) {
    this.#text = text;
  }

  next(): Promise<number | Uint32Array> {
    return this.#text.next();
  }

  allows(id: number): boolean {
    return this.#text.allows(id);
  }

  take(id: number, text: string): boolean {
    this.#text.accept(id, text);
    return this.#text.isEnded;
  }
}
