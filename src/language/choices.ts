/** Several texts after one prompt: it is computed once, then each goes on by itself, in steps that they share. */
import { checkWhole } from "../arguments.ts";
import {
  type ComputeOptions,
  type Decoder,
  type GenerateOptions,
  type GenerationResult,
  generate,
} from "../text/generate.ts";
import type { LogProbabilities } from "../text/log-probabilities.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { ProgramDecoder } from "./program-decoder.ts";
import { secondIteration } from "./token-stream.ts";

/** How several texts are generated after one prompt: as one is, so many times. */
export interface ChoicesOptions extends GenerateOptions {
  /** How many texts, from 1 on. With a seed, text `i` is drawn with seed + i. */
  readonly n: number;
}

/** A part of one of several texts. */
export interface ChoicePart {
  /** Which text it belongs to, from 0 on. */
  readonly choice: number;
  /** Characters that follow those before it; "" where a token finishes none and its probabilities are asked for. */
  readonly text: string;
  /** Log probabilities of the token that finished the text; null unless the options ask for them. */
  readonly logprobs: LogProbabilities | null;
}

/** Parts of several texts as they are generated, to be iterated over once; `results` are there when all have ended. */
export interface Choices extends AsyncIterable<ChoicePart> {
  /** How each text ended and what it took; null until all have ended by themselves. */
  readonly results: readonly GenerationResult[] | null;
}

/** What `Choices` are made from: a decoder, made when the iteration begins, and the prompt's ids. */
export interface ChoicesSource {
  readonly decoder: () => ProgramDecoder;
  readonly tokenizer: Tokenizer;
  readonly ids: (contextLength: number) => readonly number[];
}

/** More than any step has rows. */
const CHOICES_MAX = 1024;

export class ChoiceStream implements Choices {
  results: readonly GenerationResult[] | null = null;
  readonly #source: ChoicesSource;
  readonly #options: ChoicesOptions;
  #isBegun = false;

  /** InvalidArgumentError for an `n` that is none. */
  constructor(source: ChoicesSource, options: ChoicesOptions) {
    checkWhole("n", options.n, 1, CHOICES_MAX);
    this.#source = source;
    this.#options = options;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ChoicePart> {
    if (this.#isBegun) throw secondIteration();
    this.#isBegun = true;
    const { n, ...options } = this.#options;
    const prompt = new SharedPrompt(this.#source.decoder(), n);
    const results = new Array<GenerationResult>(n);
    /** What each text that has not ended gives next. */
    const coming = new Map<number, ReturnType<typeof next>>();
    const texts: ReturnType<typeof generate>[] = [];
    const next = (choice: number) => {
      const found = texts[choice]!.next().then((next) => ({ choice, next }));
      // Whoever reads the parts may do other things when it fails: it is told when it comes back.
      found.catch(() => {});
      coming.set(choice, found);
      return found;
    };
    try {
      const ids = this.#source.ids(prompt.contextLength);
      for (let choice = 0; choice < n; choice++) {
        const seed = options.seed === undefined ? undefined : options.seed + choice;
        texts.push(generate(new Choice(prompt), this.#source.tokenizer, ids, { ...options, seed }));
        next(choice);
      }
      while (coming.size > 0) {
        const part = await Promise.race(coming.values());
        const { choice } = part;
        coming.delete(choice);
        if (part.next.done) results[choice] = part.next.value;
        else next(choice);
        if (part.next.done) continue;
        const { text, logprobs } = part.next.value;
        if (text !== "" || logprobs) yield { choice, text, logprobs };
      }
      this.results = results;
    } finally {
      await prompt.dispose();
      await Promise.allSettled(texts.map((text) => text.return(undefined as never)));
    }
  }
}

/** A prompt that is computed for whoever of several asks first, and what it was computed in. */
class SharedPrompt {
  readonly contextLength: number;
  readonly #first: ProgramDecoder;
  readonly #decoders: ProgramDecoder[];
  #left: number;
  #logits: Promise<Float32Array> | null = null;

  /** `takers`: how many will ask for a decoder. */
  constructor(decoder: ProgramDecoder, takers: number) {
    this.contextLength = decoder.contextLength;
    this.#first = decoder;
    this.#decoders = [decoder];
    this.#left = takers;
  }

  /** A decoder that holds the prompt, and the logits after it. The last one gets that in which it was computed. */
  async take(
    ids: readonly number[],
    options: ComputeOptions,
  ): Promise<{ decoder: ProgramDecoder; logits: Float32Array }> {
    this.#logits ??= this.#first.prefill(ids, options).then((logits) => logits.slice());
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
  readonly #prompt: SharedPrompt;
  #decoder: ProgramDecoder | null = null;

  constructor(prompt: SharedPrompt) {
    this.contextLength = prompt.contextLength;
    this.#prompt = prompt;
  }

  get position(): number {
    return this.#decoder?.position ?? 0;
  }

  async prefill(ids: readonly number[], options: ComputeOptions): Promise<Float32Array> {
    const { decoder, logits } = await this.#prompt.take(ids, options);
    this.#decoder = decoder;
    return logits;
  }

  step(id: number, options: ComputeOptions): Promise<Float32Array> {
    return this.#decoder!.step(id, options);
  }
}
