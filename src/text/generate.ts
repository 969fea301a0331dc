/** The generate loop over any decoder; it knows no model, file or program. */
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

/** Influences which token comes next, beside the sampler, and where the text ends. */
export interface TokenGuide {
  /** Special tokens whose text is emitted, too. */
  readonly shownIds: ReadonlySet<number>;
  /**
   * Restricts the next token: to one id, to a mask (a set bit, i % 32 of word i / 32, allows id i), or not at all (null). The
   * mask may be reused for the next token.
   */
  next(vocabularySize: number): Promise<number | Uint32Array | null> | number | Uint32Array | null;
  /** Whether a token that the mask allows may come next: masks are made quickly, and allow a little too much. */
  allows(id: number): boolean;
  /**
   * Takes a drawn token and the text that it completes. With an `end`, the text is all that is left: "stop" where the model or
   * a stop string ended the text, "length" where a limit did. Returns true to end the text here.
   */
  take(id: number, text: string, end: "stop" | "length" | null): boolean;
}

/** How text is generated: how many tokens, when to stop, how tokens are drawn, and an abort signal. */
export interface GenerateOptions extends SamplerOptions {
  /** Most tokens to generate. Default: until the context is full. */
  readonly maxTokens?: number | undefined;
  /** Stop strings, which end the generation and are not part of its text. */
  readonly stop?: readonly string[] | undefined;
  /** Token ids that end the generation, beside `eosIds`. */
  readonly stopTokens?: readonly number[] | undefined;
  /** The model's end tokens. Default: the tokenizer's. */
  readonly eosIds?: readonly number[] | undefined;
  /** Whether to continue after an end token. Default false. */
  readonly ignoreEos?: boolean | undefined;
  /**
   * Number of most likely tokens, 0 to 100, whose log probabilities are in `result.logprobs` beside that of the drawn token.
   * Default: no log probabilities.
   */
  readonly logprobs?: number | undefined;
  /** Ids already in the decoder's context, before the prompt, which penalties count. Default none. */
  readonly contextIds?: readonly number[] | undefined;
  /**
   * Source of drafts, tokens computed ahead in the step of the next token wherever that saves time. "lookup" drafts what
   * followed an earlier occurrence of the last tokens in the prompt or answer. Where lookup finds nothing probable, "mtp"
   * drafts with the model's own multi-token prediction layer, and a smaller model with the same tokens drafts itself. "off": no
   * drafts. The text does not depend on it. Default: "lookup", where the program supports it.
   */
  readonly draft?: Draft | undefined;
  /** A text parts of which are likely to come, such as a file to be edited: drafts are looked up in it, too. Default: none. */
  readonly prediction?: string | undefined;
  /**
   * A constraint on the text. The model's end tokens can come only where the text is complete; `maxTokens` may cut it before.
   * Default: none.
   */
  readonly constraint?: Constraint | undefined;
  /**
   * Scope of prefix caching: only generations with the same scope share computed prompts. Default: one scope for all who give
   * none.
   */
  readonly prefixScope?: PrefixScope | undefined;
  /** Aborts the generation, which throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** One generated token with the text that it completes; "" while a character or a possible stop string is incomplete. */
export interface GeneratedToken {
  readonly id: number;
  readonly text: string;
  /** Null unless the options ask for them. */
  readonly logprobs: LogProbabilities | null;
}

/** Result of a generation: why it ended, how many tokens it read and wrote, and the seconds that took. */
export interface GenerationResult {
  /**
   * Why the generation ended: "stop" for an end token or stop string, "length" when `maxTokens` or the context is used
   * up.
   */
  readonly finishReason: "stop" | "length";
  /** A sentence to show to users: which limit cut the text, and what to do about it; null when none did. */
  readonly message: string | null;
  /** The stop string that ended the text; null when none did. */
  readonly stopString: string | null;
  /** Tokens of the prompt that were not yet in the context. */
  readonly promptTokens: number;
  /** Tokens of `promptTokens` that prefix caching found in other sequences of the program. */
  readonly cachedTokens: number;
  /** Tokens generated, an end token included. */
  readonly generatedTokens: number;
  /** Number of drafted tokens. */
  readonly draftedTokens: number;
  /** Number of drafted tokens that were accepted, each of which saved a step. */
  readonly acceptedTokens: number;
  /** Log probabilities of each token generated; null unless the options ask for them. */
  readonly logprobs: readonly LogProbabilities[] | null;
  /** Seconds of prefill. */
  readonly prefillSeconds: number;
  /** Seconds from the start to the first token. */
  readonly firstTokenSeconds: number;
  /** Seconds of computing and sampling the tokens after the first, without the time that the consumer took. */
  readonly decodeSeconds: number;
}

/**
 * Appends a prompt to the decoder's context and generates: yields every token and returns the result. The last token is not
 * appended to the context. A guide may restrict the tokens. Other tasks get a turn before every token; an abort, checked then
 * and passed to the decoder, throws `signal.reason`. ContextLengthError, before any computation, when the prompt does not fit;
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

/** State of one generation. `history` has the ids of the context, the prompt and the answer; each drawn token is appended. */
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

/** Number of draws refused by a guide before all tokens of the mask are checked. */
const DRAWS_MAX = 32;

/** Draws a token that the mask has and the guide allows, with its probability among all such tokens. */
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

/** Turns tokens into text to emit: decodes them, and stops at end tokens and stop strings. */
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

  /** Text to emit for a token; for the last one, all that was withheld. */
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

/** Measures the seconds of prefill and decode. */
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
  return { draft, prediction: ids, tokenizer, drawing: options };
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
