/** The generate loop over anything that turns token ids into logits; knows no model, file or program. */
import { checkIds, checkOptions, checkString, checkWhole, shown } from "../arguments.ts";
import { InvalidArgumentError, UnsupportedError } from "../errors.ts";
import { nextMacrotask } from "../event-loop.ts";
import { hostCpu } from "../kernels/cpu.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import type { Constraint } from "./constraint.ts";
import type { Decoder } from "./decoder.ts";
import { Detokenizer } from "./detokenizer.ts";
import { checkDraft, type Draft } from "./draft-source.ts";
import { DraftedDecoder, type DraftSource } from "./drafted-decoder.ts";
import { ofLogits } from "./finite-logits.ts";
import { type LogProbabilities, logProbabilities, TOP_MAX } from "./log-probabilities.ts";
import { createSampler, type Sampler, type SamplerOptions } from "./sampler.ts";
import { StopMatcher } from "./stop-strings.ts";
import { promptTooLong } from "./token-budget.ts";
import { type Tokenizer, WHOLE_TEXT } from "./tokenizer.ts";

/** What has a say in each token beside the sampler, and in where the text ends. */
export interface TokenGuide {
  /** Special tokens whose text is given, too. */
  readonly shownIds: ReadonlySet<number>;
  /**
   * What may come next: one token, those whose bit (i % 32 of word i / 32) is set in a mask, or any (null). The mask may be
   * used again for the next token.
   */
  next(vocabularySize: number): Promise<number | Uint32Array | null> | number | Uint32Array | null;
  /** Whether a token that a mask has may come next: masks are made quickly, and say a little too much. */
  allows(id: number): boolean;
  /**
   * Takes a token and the text that it finishes; all the text that is left where there is an `end`: "stop" where the model or
   * a stop string has ended the text, "length" where a limit has. True where the text ends there.
   */
  take(id: number, text: string, end: "stop" | "length" | null): boolean;
}

/** How text is generated: how many tokens, when to stop, how tokens are drawn, and an abort signal. */
export interface GenerateOptions extends SamplerOptions {
  /** Most tokens to generate. Default: until the context is full. */
  readonly maxTokens?: number | undefined;
  /** Texts that end the generation and are not part of it. */
  readonly stop?: readonly string[] | undefined;
  /** Ids that end the generation, besides `eosIds`. */
  readonly stopTokens?: readonly number[] | undefined;
  /** The model's end tokens. Default: the tokenizer's. */
  readonly eosIds?: readonly number[] | undefined;
  /** Go on after an end token. Default false. */
  readonly ignoreEos?: boolean | undefined;
  /**
   * Log probabilities of each token taken and of so many of the most likely ones, 0 to 100, in `result.logprobs`.
   * Default: none.
   */
  readonly logprobs?: number | undefined;
  /** Ids that the decoder's context holds already, before the prompt: penalties see them. Default none. */
  readonly contextIds?: readonly number[] | undefined;
  /**
   * Where drafts come from: "lookup" computes what followed the last tokens when they occurred before, in the prompt or in
   * the answer, beside the next token, as far as it saves time here; where nothing likely is found, "mtp" takes what the model's
   * own layer of multi-token prediction guesses, and a smaller model with the same tokens writes on; "off" computes each token alone. The text is the same. Default: lookup, where the program can.
   */
  readonly draft?: Draft | undefined;
  /** A text that is likely to come in parts, such as a file that is to be changed: drafts are found in it, too. Default: none. */
  readonly prediction?: string | undefined;
  /**
   * What the text is constrained to. The model's end tokens come where it is whole; it is cut where `maxTokens` end before.
   * Default: nothing.
   */
  readonly constraint?: Constraint | undefined;
  /** Who shares what is computed of the prompt, and whose is found. Default: all who give none. */
  readonly prefixScope?: PrefixScope | undefined;
  /** Ends the generation; the signal's reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

/** One generated token with the text that it finishes; "" while a character or a possible stop string is incomplete. */
export interface GeneratedToken {
  readonly id: number;
  readonly text: string;
  /** Null unless the options ask for them. */
  readonly logprobs: LogProbabilities | null;
}

/** What a generation came to: why it ended, how many tokens it read and wrote, and how long that took in seconds. */
export interface GenerationResult {
  /**
   * Why the generation ended: "stop" for an end token or stop string, "length" when `maxTokens` or the context is used
   * up.
   */
  readonly finishReason: "stop" | "length";
  /** Sentence that a user may want to read at the end: which limit has cut the text, and what to do about it; null when none has. */
  readonly message: string | null;
  /** The stop string that was found; null when none was. */
  readonly stopString: string | null;
  /** Tokens of the prompt that the context did not hold yet. */
  readonly promptTokens: number;
  /** Tokens among `promptTokens` that other sequences of the program had computed already. */
  readonly cachedTokens: number;
  /** Tokens generated, an end token included. */
  readonly generatedTokens: number;
  /** Tokens that were computed as drafts, before they were drawn. */
  readonly draftedTokens: number;
  /** Tokens among those that were drawn then, each of which took no step of its own. */
  readonly acceptedTokens: number;
  /** Log probabilities of each token generated; null unless the options ask for them. */
  readonly logprobs: readonly LogProbabilities[] | null;
  /** Time that the prompt took. */
  readonly prefillSeconds: number;
  /** Time from the start to the first token. */
  readonly firstTokenSeconds: number;
  /** Time of computing and sampling the tokens after the first, without the time that the consumer took. */
  readonly decodeSeconds: number;
}

/**
 * Appends a prompt to the decoder's context and generates: yields every token, returns how it went. The last token is
 * not appended. A guide may narrow what comes. Other tasks get a turn before every token, and an abort (checked then, and passed to the decoder)
 * throws `signal.reason`. ContextLengthError, before any computation, when the prompt does not fit;
 * InvalidArgumentError for options out of range.
 */
export async function* generate(
  decoder: Decoder,
  tokenizer: Tokenizer,
  promptIds: readonly number[],
  options: GenerateOptions = {},
  guide: TokenGuide | null = null,
): AsyncGenerator<GeneratedToken, GenerationResult, void> {
  checkOptions(options);
  checkIds("prompt", promptIds, "a text or token ids");
  for (const name of ["stopTokens", "eosIds", "contextIds"] as const) checkIds(name, options[name] ?? []);
  checkPrompt(decoder, promptIds);
  const history = [...(options.contextIds ?? []), ...promptIds];
  const drafted = new DraftedDecoder(decoder, history, draftSource(decoder, tokenizer, options));
  try {
    return yield* generateAfter({ decoder, drafted, history, promptIds }, tokenizer, options, guide);
  } finally {
    await drafted.end();
  }
}

/** What a text is generated with: `history` has the prompt's ids, and those before them, and gets each that is drawn. */
interface Generating {
  readonly decoder: Decoder;
  readonly drafted: DraftedDecoder;
  readonly history: number[];
  readonly promptIds: readonly number[];
}

async function* generateAfter(
  { decoder, drafted, history, promptIds }: Generating,
  tokenizer: Tokenizer,
  options: GenerateOptions,
  guide: TokenGuide | null,
): AsyncGenerator<GeneratedToken, GenerationResult, void> {
  const { signal } = options;
  const maxTokens = checkMaxTokens(options.maxTokens);
  const topCount = options.logprobs === undefined ? null : checkWhole("logprobs", options.logprobs, 0, TOP_MAX);
  const logprobs: LogProbabilities[] = [];
  const cpu = hostCpu();
  const sampler = createSampler(options, cpu);
  const start = history.length;
  const writer = new Writer(tokenizer, history, options, guide);
  const clock = new Clock();
  signal?.throwIfAborted();
  let logits = await decoder.prefill(promptIds, { signal });
  const cachedTokens = decoder.cachedTokens ?? 0;
  clock.prefilled();
  checkStopTokens(options, logits.length);

  let message: string | null = null;
  let finishReason: GenerationResult["finishReason"] | null = maxTokens === 0 ? "length" : null;
  while (finishReason === null) {
    await nextMacrotask();
    signal?.throwIfAborted();
    clock.start();
    const next = guide === null ? null : await guide.next(logits.length);
    const { id, probabilities } = ofLogits(decoder.file, logits, () => {
      const id = typeof next === "number" ? next : draw(sampler, logits, history, next, guide);
      return { id, probabilities: topCount === null ? null : logProbabilities(logits, id, topCount, cpu) };
    });
    if (probabilities) logprobs.push(probabilities);
    history.push(id);
    const isFull = drafted.position >= decoder.contextLength;
    const isLast = history.length - start >= maxTokens || isFull;
    const { text, stopped } = writer.write(id, isLast);
    clock.sampled();
    finishReason = stopped ? "stop" : isLast ? "length" : null;
    if (isFull && !stopped) message = contextFull(decoder.contextLength);
    yield { id, text, logprobs: probabilities };
    if (finishReason !== null) break;
    signal?.throwIfAborted();
    clock.start();
    logits = await drafted.step(id, { signal });
    clock.stepped();
  }
  if (finishReason === "length" && maxTokens > 0) message ??= cutShort(maxTokens);
  return {
    finishReason,
    message,
    stopString: writer.stopString,
    promptTokens: promptIds.length,
    cachedTokens,
    generatedTokens: history.length - start,
    draftedTokens: drafted.drafted,
    acceptedTokens: drafted.accepted,
    logprobs: topCount === null ? null : logprobs,
    ...clock.seconds,
  };
}

/** So many tokens are drawn in vain before all that a mask has are looked at. */
const DRAWS_MAX = 32;

/** Draws a token that a mask has and a guide allows, each with its share of what all of those have. */
function draw(
  sampler: Sampler,
  logits: Float32Array,
  history: readonly number[],
  mask: Uint32Array | null,
  guide: TokenGuide | null,
): number {
  if (!mask || !guide) return sampler.sample(logits, history);
  for (let draws = 0; ; draws++) {
    if (draws === DRAWS_MAX)
      for (let id = 0; id < logits.length; id++)
        if ((mask[id >>> 5]! >>> (id & 31)) & 1 && !guide.allows(id)) mask[id >>> 5]! &= ~(1 << (id & 31));
    if (mask.every((word) => word === 0))
      throw new UnsupportedError("constraint: no token of the model's vocabulary can go on with the text");
    const id = sampler.sample(logits, history, mask);
    if (guide.allows(id)) return id;
    mask[id >>> 5]! &= ~(1 << (id & 31));
  }
}

function contextFull(contextLength: number): string {
  return `the context of ${contextLength} tokens is full: load the program with a longer one (contextLength, --context) for a longer answer`;
}

function cutShort(maxTokens: number): string {
  return `cut after ${maxTokens} tokens, the limit (maxTokens, --max-tokens)`;
}

function checkStopTokens({ stopTokens }: GenerateOptions, vocabularySize: number): void {
  for (const id of stopTokens ?? [])
    if (id >= vocabularySize)
      throw new InvalidArgumentError(`stopTokens: expected ids below ${vocabularySize} but found ${id}`);
}

/** Tokens to the text that may be shown: decodes, ends at end tokens and stop strings. */
class Writer {
  stopString: string | null = null;
  readonly #detokenizer: Detokenizer;
  readonly #stops: StopMatcher;
  readonly #endIds: ReadonlySet<number>;
  readonly #guide: TokenGuide | null;

  constructor(tokenizer: Tokenizer, idsBefore: readonly number[], options: GenerateOptions, guide: TokenGuide | null) {
    this.#guide = guide;
    const eosIds = options.eosIds ?? (tokenizer.eos ? [tokenizer.eos.id] : []);
    this.#endIds = new Set([...(options.stopTokens ?? []), ...(options.ignoreEos ? [] : eosIds)]);
    this.#detokenizer = new Detokenizer(tokenizer, { after: idsBefore, shownIds: guide?.shownIds });
    this.#stops = new StopMatcher(options.stop ?? []);
  }

  /** The text to show for a token; with the last one, all that was held back. */
  write(id: number, isLast: boolean): { text: string; stopped: boolean } {
    const ends = this.#endIds.has(id);
    let piece = ends ? "" : this.#detokenizer.push(id);
    if (ends || isLast) piece += this.#detokenizer.flush();
    const { text, stop } = this.#stops.push(piece);
    this.stopString = stop;
    const rest = stop === null && (ends || isLast) ? this.#stops.flush() : "";
    let all = text + rest;
    const end = ends || stop !== null ? "stop" : isLast ? "length" : null;
    const guided = this.#guide?.take(id, all, end) ?? false;
    if (guided && stop === null) all += this.#stops.flush();
    return { text: all, stopped: ends || stop !== null || guided };
  }
}

/** Sums up the seconds of the phases. */
class Clock {
  readonly seconds = { prefillSeconds: 0, firstTokenSeconds: 0, decodeSeconds: 0 };
  readonly #begin = performance.now();
  #start = this.#begin;
  #isFirst = true;

  prefilled(): void {
    this.seconds.prefillSeconds = this.#elapsed(this.#begin);
  }

  start(): void {
    this.#start = performance.now();
  }

  sampled(): void {
    if (this.#isFirst) this.seconds.firstTokenSeconds = this.#elapsed(this.#begin);
    else this.stepped();
    this.#isFirst = false;
  }

  stepped(): void {
    this.seconds.decodeSeconds += this.#elapsed(this.#start);
  }

  #elapsed(since: number): number {
    return (performance.now() - since) / 1000;
  }
}

function draftSource(decoder: Decoder, tokenizer: Tokenizer, options: GenerateOptions): DraftSource {
  const { draft = "lookup", prediction = "" } = options;
  checkDraft(draft, { name: decoder.file ?? "the model", tokenizer, hasDraftHead: decoder.draft !== undefined });
  checkString("prediction", prediction);
  const ids = prediction === "" ? [] : tokenizer.encode(prediction, { ...WHOLE_TEXT, addSpecialTokens: false });
  return { draft, prediction: ids, tokens: tokenizer.vocabSize, drawing: options };
}

function checkMaxTokens(maxTokens: number = Number.POSITIVE_INFINITY): number {
  if (maxTokens !== Number.POSITIVE_INFINITY && !(Number.isInteger(maxTokens) && maxTokens >= 0))
    throw new InvalidArgumentError(`maxTokens: expected a whole number from 0 but found ${shown(maxTokens)}`);
  return maxTokens;
}

function checkPrompt(decoder: Decoder, promptIds: readonly number[]): void {
  const { position, contextLength } = decoder;
  if (promptIds.length === 0)
    throw new InvalidArgumentError(
      "prompt: expected at least one token; a tokenizer without BOS gives none for no text",
    );
  if (position + promptIds.length <= contextLength) return;
  const before = position === 0 ? "" : ` after ${position} that it already holds`;
  throw promptTooLong(`${promptIds.length} tokens${before}`, contextLength);
}
