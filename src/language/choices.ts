/** Several texts after one prompt (choices): the prompt is computed once, then all texts share steps. */
import { checkWhole } from "../arguments.ts";
import type { ComputeOptions, Decoder } from "../text/decoder.ts";
import type { GenerateOptions, GenerationResult } from "../text/generate.ts";
import type { LogProbabilities } from "../text/log-probabilities.ts";
import { mergeNumbered, type Numbered } from "./merge.ts";
import type { ProgramDecoder } from "./program-decoder.ts";
import { mapEvents } from "./result-stream.ts";

/** How several texts (choices) after one prompt are generated. All have the same options, except for the seed. */
export interface ChoicesOptions extends GenerateOptions {
  /** Number of texts, from 1 on. With a seed, text `i` is drawn with seed + i. */
  readonly n: number;
  /** Called as each text ends, after its last part and while others may go on. An error that it throws ends all texts. */
  readonly onEnd?: ((choice: number, result: GenerationResult) => void) | undefined;
}

/** A part of one of several texts. */
export interface ChoicePart {
  /** Which text it belongs to, from 0 on. */
  readonly choice: number;
  /**
   * Characters that follow those before them; "" for a token that completes no character when log probabilities are asked
   * for.
   */
  readonly text: string;
  /** Log probabilities of the token that completed the text; null unless the options ask for them. */
  readonly logprobs: LogProbabilities | null;
}

/** A limit that no step's number of tokens reaches. */
const CHOICES_MAX = 1024;

/** InvalidArgumentError for a number of texts out of range. */
export function checkChoices(n: number): void {
  checkWhole("n", n, 1, CHOICES_MAX);
}

/** The seed of text number `choice`. */
export function seedOf(seed: number | undefined, choice: number): number | undefined {
  return seed === undefined ? undefined : seed + choice;
}

/**
 * Runs `n` generations after one prompt at the same time, and gives the events of each as they come. `begin` starts one
 * from a decoder that takes the prompt's ids as usual; `onEnd` is called with each result. `decoder` is disposed of at the
 * end.
 */
export async function* runChoices<E, R>(
  decoder: ProgramDecoder,
  n: number,
  promptIds: () => readonly number[],
  begin: (decoder: Decoder, ids: readonly number[], choice: number) => AsyncGenerator<E, R, void>,
  onEnd?: ((choice: number, result: R) => void) | undefined,
): AsyncGenerator<Numbered<E>, readonly R[], void> {
  if (n === 1) {
    try {
      const text = begin(decoder, promptIds(), 0);
      const ended = (result: R) => {
        onEnd?.(0, result);
        return [result];
      };
      return yield* mapEvents(text, (value) => [{ from: 0, value }], ended);
    } finally {
      await decoder.dispose();
    }
  }
  const prompt = new SharedPrompt(decoder, n);
  const ids = await idsOrDispose(promptIds, prompt);
  const texts = Array.from({ length: n }, (_, choice) => begin(new Choice(prompt), ids, choice));
  return yield* mergeNumbered(texts, () => prompt.dispose(), onEnd);
}

async function idsOrDispose(promptIds: () => readonly number[], prompt: SharedPrompt): Promise<readonly number[]> {
  try {
    return promptIds();
  } catch (error) {
    await prompt.dispose();
    throw error;
  }
}

/** A prompt that is computed once, for the first choice that asks, and forked for the others. */
class SharedPrompt {
  readonly contextLength: number;
  readonly #first: ProgramDecoder;
  readonly #decoders: ProgramDecoder[];
  #left: number;
  #logits: Promise<Float32Array> | null = null;
  #cachedTokens = 0;

  /** `takers`: the number of choices that will take a decoder. */
  constructor(decoder: ProgramDecoder, takers: number) {
    this.contextLength = decoder.contextLength;
    this.#first = decoder;
    this.#decoders = [decoder];
    this.#left = takers;
  }

  get file(): string {
    return this.#first.file;
  }

  get vocabularySize(): number {
    return this.#first.vocabularySize;
  }

  /** Whether the program has a draft head (multi-token prediction). */
  get hasDraftHead(): boolean {
    return this.#first.draft !== undefined;
  }

  /** Tokens of the prompt that the prefix cache held. */
  get cachedTokens(): number {
    return this.#cachedTokens;
  }

  /**
   * Gives a decoder that holds the prompt, and the logits after it. The last taker gets the decoder that computed the
   * prompt.
   */
  async take(
    ids: readonly number[],
    options: ComputeOptions,
  ): Promise<{ decoder: ProgramDecoder; logits: Float32Array }> {
    this.#logits ??= this.#first.prefill(ids, options).then((logits) => {
      this.#cachedTokens = this.#first.cachedTokens ?? 0;
      return logits.slice();
    });
    const logits = await this.#logits;
    if (--this.#left === 0) return { decoder: this.#first, logits };
    const decoder = this.#first.fork();
    this.#decoders.push(decoder);
    return { decoder, logits };
  }

  async dispose(): Promise<void> {
    for (const decoder of this.#decoders) await decoder.dispose();
  }
}

/** The decoder of one text. */
class Choice implements Decoder {
  readonly contextLength: number;
  readonly draft: Decoder["draft"];
  readonly #prompt: SharedPrompt;
  #decoder: ProgramDecoder | null = null;

  constructor(prompt: SharedPrompt) {
    this.contextLength = prompt.contextLength;
    this.#prompt = prompt;
    this.draft = prompt.hasDraftHead ? async (ids, options) => this.#decoder?.draft?.(ids, options) ?? null : undefined;
  }

  get file(): string {
    return this.#prompt.file;
  }

  get position(): number {
    return this.#decoder?.position ?? 0;
  }

  get cachedTokens(): number {
    return this.#prompt.cachedTokens;
  }

  get vocabularySize(): number {
    return this.#prompt.vocabularySize;
  }

  async prefill(ids: readonly number[], options: ComputeOptions): Promise<Float32Array> {
    const { decoder, logits } = await this.#prompt.take(ids, options);
    this.#decoder = decoder;
    return logits;
  }

  step(id: number, options: ComputeOptions): Promise<Float32Array> {
    return this.#decoder!.step(id, options);
  }

  get draftRows(): number {
    return this.#decoder?.draftRows ?? 1;
  }

  allLogits(ids: readonly number[], options: ComputeOptions): Promise<Float32Array> {
    return this.#decoder!.allLogits(ids, options);
  }

  rewind(position: number): void {
    this.#decoder!.rewind(position);
  }

  get recomputed(): number {
    return this.#decoder?.recomputed ?? 0;
  }
}
