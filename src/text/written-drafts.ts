/** Drafts that something writes, a smaller model or the model's own head: as long as they are worth what they cost. */
import { hostCpu } from "../kernels/cpu.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import type { ComputeOptions } from "./decoder.ts";
import { Backoff } from "./draft-length.ts";
import type { DraftWriter } from "./draft-writer.ts";
import { logProbabilities } from "./log-probabilities.ts";
import { createSampler, type Sampler, type SamplerOptions } from "./sampler.ts";
import { averageChance, averaged, type StepCosts } from "./step-costs.ts";

/** Probabilities that writers give tokens are counted in so many classes. */
const CLASSES = 8;
/** Drafts until the mean of their gains says something. */
const TRIALS = 3;

/**
 * The share of the newest token in chances, and of the newest step in the speed: with more, tokens of which 0.7 come true would now
 * and then be taken for such that are worth nothing, which costs a tenth of what they gain.
 */
const NEWEST = 0.1;

/** How often tokens of a kind come true. */
class Chance {
  value: number;
  #count = 0;

  constructor(value: number) {
    this.value = value;
  }

  note(hasComeTrue: boolean): void {
    // The first ones say more.
    const share = Math.max(NEWEST, 1 / (2 + this.#count++));
    this.value = averageChance(this.value, hasComeTrue, share);
  }
}

/** How the tokens to come are drawn, and who shares what a drafting model has read. */
export interface DraftingOptions extends SamplerOptions {
  readonly prefixScope?: PrefixScope | undefined;
}

/** Takes the likeliest token after all penalties, which the tokens to come are drawn with. */
function samplerFor(size: number, options: DraftingOptions): Sampler {
  const { prefixScope: _, logitBias = {}, suppressTokens = [], ...rest } = options;
  return createSampler({
    ...rest,
    temperature: 0,
    logitBias: Object.fromEntries(Object.entries(logitBias).filter(([id]) => Number(id) < size)),
    suppressTokens: suppressTokens.filter((id) => id < size),
  });
}

/** A draft under way: what it is expected to give for what it costs. */
interface Outlook {
  /** Tokens of the step that will count, the drawn one included. */
  readonly expected: number;
  /** The chance that all so far are accepted. */
  readonly share: number;
  /** Rows that the next step is expected to compute again. */
  readonly again: number;
  readonly rows: number;
}

const NONE: Outlook = { expected: 1, share: 1, again: 0, rows: 1 };

/** Drafts for one text. */
export class WrittenDrafts {
  readonly #createWriter: () => DraftWriter;
  /** Ids from here on only make up a round number of logits. */
  readonly #tokens: number;
  readonly #options: DraftingOptions;
  readonly #costs: StepCosts;
  /** Made for the first draft. */
  #writer: DraftWriter | null = null;
  /** Made when it is known of how many tokens the writer gives logits. */
  #sampler: Sampler | null = null;
  /** By the probability that the writer gives a token: the chance that it comes. */
  readonly #chances = Array.from({ length: CLASSES }, (_, i) => new Chance((i + 0.5) / CLASSES));
  readonly #backoff = new Backoff();
  /** Classes of the tokens of the last draft, and what making it took. */
  #classes: number[] = [];
  #draftedMs = 0;
  /** Milliseconds of writing a token; 0 until it was measured. */
  #tokenMs = 0;
  /** Tokens a millisecond of steps with drafts. */
  #speed = 0;
  #trials = 0;
  /** Whether accepted tokens are computed again with the next ones where others of their step were not. */
  #computesAgain = false;
  readonly #any = new Chance(0.5);

  constructor(createWriter: () => DraftWriter, tokens: number, costs: StepCosts, options: DraftingOptions) {
    this.#createWriter = createWriter;
    this.#tokens = tokens;
    this.#costs = costs;
    this.#options = options;
  }

  /** How often its tokens are accepted. */
  get chance(): number {
    return this.#any.value;
  }

  /** What may come behind `history`, at most `most` tokens: as many as are worth what they cost; none while they are not. */
  async next(history: readonly number[], most: number, options: ComputeOptions): Promise<readonly number[]> {
    this.#classes = [];
    // A step without drafts is what those with them are compared with.
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
    // What was written in vain is a cost, too.
    if (draft.length === 0) this.#noteSpeed(1 / (this.#costs.of(1) + this.#draftedMs));
    return draft;
  }

  /** `isTrial`: whether a token is drafted whatever is known of it and its costs, which others may have put off. */
  async #write(
    writer: DraftWriter,
    history: readonly number[],
    { room, isTrial, ...options }: ComputeOptions & { readonly room: number; readonly isTrial: boolean },
  ): Promise<readonly number[]> {
    const text = [...history];
    let outlook = NONE;
    this.#draftedMs = 0;
    while (text.length - history.length < room) {
      const isForced = isTrial && outlook.rows === 1;
      // What is likely to be in vain is not written.
      if (!isForced && this.#gain(this.#longer(outlook, this.chance), this.#tokenMs) < this.#gain(outlook, 0)) break;
      const start = performance.now();
      const written = await writer.logitsBehind(text, options);
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

  /** Tokens a millisecond, where writing takes so many more than it took so far. */
  #gain({ expected, again, rows }: Outlook, moreMs: number): number {
    const step = this.#costs.of(rows);
    const againMs = rows > 1 ? (again * (step - this.#costs.of(1))) / (rows - 1) : 0;
    return expected / (step + againMs + this.#draftedMs + moreMs);
  }

  /** Notes how many tokens of the last draft were accepted, what the step took that computed them, and what it computes again. */
  noteAccepted(accepted: number, stepMs: number, recomputed: number): void {
    for (const [i, own] of this.#classes.slice(0, accepted + 1).entries()) {
      this.#chances[own]!.note(i < accepted);
      this.#any.note(i < accepted);
    }
    this.#computesAgain ||= recomputed > 0;
    const againMs = this.#costs.of(1 + recomputed) - this.#costs.of(1);
    this.#noteSpeed((accepted + 1) / (stepMs + againMs + this.#draftedMs));
  }

  /** The first ones count alike, so that no single one ends drafts. */
  #noteSpeed(speed: number): void {
    this.#trials++;
    if (this.#trials > TRIALS) this.#speed = averaged(this.#speed, speed, NEWEST);
    else this.#speed = ((this.#trials - 1) * this.#speed + speed) / this.#trials;
  }

  async dispose(): Promise<void> {
    await this.#writer?.dispose();
  }
}
