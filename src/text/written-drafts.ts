/** Drafts by a writer, a smaller model or the model's own draft head: as long as they are worth their cost. */
import { hostCpu } from "../kernels/cpu.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import type { ComputeOptions } from "./decoder.ts";
import { Backoff } from "./draft-length.ts";
import type { DraftWriter } from "./draft-writer.ts";
import { logProbabilities } from "./log-probabilities.ts";
import { createSampler, type Sampler, type SamplerOptions } from "./sampler.ts";
import { averageChance, averaged, NEWEST_OUTCOME, type StepCosts } from "./step-costs.ts";

/** Number of classes into which the writer's token probabilities are divided. */
const CLASSES = 8;
/** Number of drafts before their average speed is meaningful. */
const TRIALS = 3;

/** Estimate of the probability that a drafted token is accepted. */
class Chance {
  value: number;
  #count = 0;

  constructor(value: number) {
    this.value = value;
  }

  note(hasComeTrue: boolean): void {
    // The first outcomes weigh more.
    const share = Math.max(NEWEST_OUTCOME, 1 / (2 + this.#count++));
    this.value = averageChance(this.value, hasComeTrue, share);
  }
}

/** Sampler options of the text, and the prefix-caching scope of the draft model. */
export interface DraftingOptions extends SamplerOptions {
  readonly prefixScope?: PrefixScope | undefined;
}

/** A greedy sampler with the text's own penalties. */
function samplerFor(size: number, options: DraftingOptions): Sampler {
  const { prefixScope: _, logitBias = {}, suppressTokens = [], ...rest } = options;
  return createSampler({
    ...rest,
    temperature: 0,
    logitBias: Object.fromEntries(Object.entries(logitBias).filter(([id]) => Number(id) < size)),
    suppressTokens: suppressTokens.filter((id) => id < size),
  });
}

/** Expected gain of a draft in progress. */
interface Outlook {
  /** Expected number of tokens that the step yields, the drawn one included. */
  readonly expected: number;
  /** Probability that all tokens so far are accepted. */
  readonly share: number;
  /** Expected number of tokens that the next step must compute again. */
  readonly again: number;
  readonly rows: number;
}

const NONE: Outlook = { expected: 1, share: 1, again: 0, rows: 1 };

/** Makes drafts for one text. */
export class WrittenDrafts {
  readonly #createWriter: () => DraftWriter;
  /** Number of real tokens; ids from it on only pad the vocabulary. */
  readonly #tokens: number;
  readonly #options: DraftingOptions;
  readonly #costs: StepCosts;
  /** Created for the first draft. */
  #writer: DraftWriter | null = null;
  /** Created when the number of the writer's logits is known. */
  #sampler: Sampler | null = null;
  /** By class of the probability that the writer gives a token: how often such tokens are accepted. */
  readonly #chances = Array.from({ length: CLASSES }, (_, i) => new Chance((i + 0.5) / CLASSES));
  readonly #backoff = new Backoff();
  /** Tokens of the text, the first `known` of them drawn, and those of the last draft. */
  readonly #text: number[] = [];
  #known = 0;
  /** Classes of the last draft's tokens, and the milliseconds that drafting took. */
  #classes: number[] = [];
  #draftedMs = 0;
  /** Milliseconds to draft one token; 0 until measured. */
  #tokenMs = 0;
  /** Tokens per millisecond in steps with drafts. */
  #speed = 0;
  #trials = 0;
  /** Whether accepted tokens must be computed again with the next step when others of their step were rejected. */
  #computesAgain = false;
  readonly #any = new Chance(0.5);

  constructor(createWriter: () => DraftWriter, tokens: number, costs: StepCosts, options: DraftingOptions) {
    this.#createWriter = createWriter;
    this.#tokens = tokens;
    this.#costs = costs;
    this.#options = options;
  }

  /** Probability that a drafted token is accepted. */
  get chance(): number {
    return this.#any.value;
  }

  /** Drafts at most `most` tokens after `history`: as many as pay for their cost, perhaps none. */
  async next(history: readonly number[], most: number, options: ComputeOptions): Promise<readonly number[]> {
    this.#classes = [];
    // Steps without drafts are the baseline, so one is measured first.
    if (!this.#costs.knows(1) || this.#backoff.skips()) return [];
    this.#writer ??= this.#createWriter();
    const room = Math.min(most, this.#writer.contextLength - history.length);
    if (room < 1) return [];
    const isTrial = this.#trials < TRIALS;
    // Without tokens there is no news of their chances: they are tried again, or would never come.
    if (!isTrial && (this.#speed < 1 / this.#costs.of(1) || !this.#isWorthOne())) {
      this.#backoff.begin();
      this.#trials = 0;
      return [];
    }
    if (!isTrial) this.#backoff.reset();
    const draft = await this.#write(this.#writer, history, { room, isTrial, ...options });
    // A draft that was abandoned has cost time, too.
    if (draft.length === 0) this.#noteSpeed(1 / (this.#costs.of(1) + this.#draftedMs));
    return draft;
  }

  /**
   * Drafts tokens while the expected speed grows. `isTrial`: drafts one token whatever the estimates say, which other work on
   * the machine may have distorted.
   */
  async #write(
    writer: DraftWriter,
    history: readonly number[],
    { room, isTrial, ...options }: ComputeOptions & { readonly room: number; readonly isTrial: boolean },
  ): Promise<readonly number[]> {
    const text = this.#text;
    text.length = this.#known;
    while (this.#known < history.length) text.push(history[this.#known++]!);
    let outlook = NONE;
    this.#draftedMs = 0;
    while (text.length - history.length < room) {
      const isForced = isTrial && outlook.rows === 1;
      // Stops before writing a token that would lower the expected speed.
      if (!isForced && this.#gain(this.#longer(outlook, this.chance), this.#tokenMs) < this.#gain(outlook, 0)) break;
      const start = performance.now();
      const written = await writer.logitsBehind(text, text.length - history.length, options);
      if (!written) break;
      this.#sampler ??= samplerFor(written.logits.length, this.#options);
      const id = this.#sampler.sample(written.logits, text);
      if (id >= this.#tokens) break;
      const { logprob } = logProbabilities(written.logits, id, 0, hostCpu());
      const own = Math.min(CLASSES - 1, Math.floor(CLASSES * Math.exp(logprob)));
      if (!written.hasRead) this.#tookMs(performance.now() - start);
      const longer = this.#longer(outlook, this.#chances[own]!.value);
      if (!isForced && this.#gain(longer, 0) < this.#gain(outlook, 0)) break;
      text.push(id);
      this.#classes.push(own);
      outlook = longer;
    }
    return text.slice(history.length);
  }

  /** Whether a token is expected to save more than it takes. */
  #isWorthOne(): boolean {
    this.#draftedMs = 0;
    return this.#gain(this.#longer(NONE, this.chance), this.#tokenMs) >= this.#gain(NONE, 0);
  }

  #tookMs(milliseconds: number): void {
    this.#draftedMs += milliseconds;
    this.#tokenMs = this.#tokenMs === 0 ? milliseconds : averaged(this.#tokenMs, milliseconds);
  }

  #longer({ expected, share, again, rows }: Outlook, chance: number): Outlook {
    const lost = this.#computesAgain ? share * (1 - chance) * rows : 0;
    return { expected: expected + share * chance, share: share * chance, again: again + lost, rows: rows + 1 };
  }

  /** Expected tokens per millisecond of the step, if drafting takes `moreMs` beyond its time so far. */
  #gain({ expected, again, rows }: Outlook, moreMs: number): number {
    const step = this.#costs.of(rows);
    const againMs = rows > 1 ? (again * (step - this.#costs.of(1))) / (rows - 1) : 0;
    return expected / (step + againMs + this.#draftedMs + moreMs);
  }

  /**
   * Records how many tokens of the last draft were accepted, the milliseconds of the step that computed them, and how many must
   * be recomputed.
   */
  noteAccepted(accepted: number, stepMs: number, recomputed: number): void {
    for (const [i, own] of this.#classes.slice(0, accepted + 1).entries()) {
      this.#chances[own]!.note(i < accepted);
      this.#any.note(i < accepted);
    }
    this.#computesAgain ||= recomputed > 0;
    const againMs = this.#costs.of(1 + recomputed) - this.#costs.of(1);
    this.#noteSpeed((accepted + 1) / (stepMs + againMs + this.#draftedMs));
  }

  /** Records a speed. The first few are averaged equally, so that no single one ends drafting. */
  #noteSpeed(speed: number): void {
    this.#trials++;
    if (this.#trials > TRIALS) this.#speed = averaged(this.#speed, speed, NEWEST_OUTCOME);
    else this.#speed = ((this.#trials - 1) * this.#speed + speed) / this.#trials;
  }

  async dispose(): Promise<void> {
    await this.#writer?.dispose();
  }
}
