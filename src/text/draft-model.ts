/** Drafts of a smaller model with the same tokens: it writes on, and the larger one computes what it wrote in one step. */
import { hostCpu } from "../kernels/cpu.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import type { ComputeOptions, Decoder } from "./decoder.ts";
import { Backoff } from "./draft-length.ts";
import type { DraftModel } from "./draft-source.ts";
import { logProbabilities } from "./log-probabilities.ts";
import { createSampler, type Sampler, type SamplerOptions } from "./sampler.ts";
import { averageChance, type StepCosts } from "./step-costs.ts";

/** Probabilities of the drafting model are counted in so many classes. */
const CLASSES = 8;
/** Drafts until the mean of their gains says something. */
const TRIALS = 3;
/** More tokens that a draft begins with reading are a prompt, or a draft of another source: no cost of this draft. */
const READ_MAX = 4;

/** How the tokens to come are drawn, and who shares what the drafting model has read. */
export interface DraftingOptions extends SamplerOptions {
  readonly prefixScope?: PrefixScope | undefined;
}

/** What a draft is written with. */
interface Writer {
  readonly decoder: ReturnType<DraftModel["createDecoder"]>;
  /** Takes the likeliest token after all penalties, which the tokens to come are drawn with. */
  readonly sampler: Sampler;
}

function writerOf(model: DraftModel, { prefixScope, ...options }: DraftingOptions): Writer {
  const decoder = model.createDecoder(prefixScope);
  const size = decoder.vocabularySize ?? model.tokenizer.vocabSize;
  const { logitBias = {}, suppressTokens = [] } = options;
  const sampler = createSampler({
    ...options,
    temperature: 0,
    logitBias: Object.fromEntries(Object.entries(logitBias).filter(([id]) => Number(id) < size)),
    suppressTokens: suppressTokens.filter((id) => id < size),
  });
  return { decoder, sampler };
}

/** Drafts for one text. */
export class ModelDrafts {
  readonly #model: DraftModel;
  readonly #options: DraftingOptions;
  readonly #costs: StepCosts;
  /** Made for the first draft. */
  #writer: Writer | null = null;
  /** Tokens that its decoder holds. */
  readonly #ids: number[] = [];
  /** By the probability that the drafting model gives a token: the chance that it comes. */
  readonly #chances = Array.from({ length: CLASSES }, (_, i) => (i + 0.5) / CLASSES);
  readonly #backoff = new Backoff();
  /** Classes of the tokens of the last draft, and what making it took. */
  #classes: number[] = [];
  #draftedMs = 0;
  /** Tokens a millisecond of steps with drafts. */
  #speed = 0;
  #trials = 0;
  /** How often its tokens are accepted. */
  chance = 0.5;

  constructor(model: DraftModel, costs: StepCosts, options: DraftingOptions) {
    this.#model = model;
    this.#costs = costs;
    this.#options = options;
  }

  /** What may come behind `history`, at most `most` tokens: as many as are worth what they cost; none while they are not. */
  async next(history: readonly number[], most: number, options: ComputeOptions): Promise<readonly number[]> {
    this.#classes = [];
    // A step without drafts is what those with them are compared with.
    if (!this.#costs.knows(1) || this.#backoff.skips()) return [];
    this.#writer ??= writerOf(this.#model, this.#options);
    const room = Math.min(most, this.#writer.decoder.contextLength - history.length);
    if (room < 1) return [];
    if (this.#trials < TRIALS) return this.#write(this.#writer, history, room, options);
    if (this.#speed < 1 / this.#costs.of(1)) {
      this.#backoff.begin();
      this.#trials = 0;
      return [];
    }
    this.#backoff.reset();
    return this.#write(this.#writer, history, room, options);
  }

  async #write(
    { decoder, sampler }: Writer,
    history: readonly number[],
    most: number,
    options: ComputeOptions,
  ): Promise<readonly number[]> {
    const text = [...history];
    let [expected, share] = [1, 1];
    let rest = this.#follow(decoder, history);
    this.#draftedMs = 0;
    while (text.length - history.length < most) {
      const start = performance.now();
      const logits = await decoder.prefill(rest, options);
      for (const read of rest) this.#ids.push(read);
      const id = sampler.sample(logits, text);
      // Logits beyond the tokens only make up a round number.
      if (id >= this.#model.tokenizer.vocabSize) break;
      const { logprob } = logProbabilities(logits, id, 0, hostCpu());
      const own = Math.min(CLASSES - 1, Math.floor(CLASSES * Math.exp(logprob)));
      if (rest.length <= READ_MAX) this.#draftedMs += performance.now() - start;
      const chance = share * this.#chances[own]!;
      const rows = text.length - history.length + 1;
      const gain = (expected + chance) / (this.#costs.of(rows + 1) + this.#draftedMs);
      if (gain < expected / (this.#costs.of(rows) + this.#draftedMs)) break;
      text.push(id);
      this.#classes.push(own);
      [expected, share] = [expected + chance, chance];
      rest = [id];
    }
    return text.slice(history.length);
  }

  /** Cuts its context back to what it has in common with a text; gives what it has to read. */
  #follow(decoder: Decoder, history: readonly number[]): number[] {
    let common = 0;
    const most = Math.min(this.#ids.length, history.length - 1);
    while (common < most && this.#ids[common] === history[common]) common++;
    if (common < this.#ids.length) {
      decoder.rewind!(common);
      this.#ids.length = common;
    }
    return history.slice(common);
  }

  /** Notes how many tokens of the last draft were accepted, and what the step took that computed them. */
  noteAccepted(accepted: number, stepMs: number): void {
    for (const [i, own] of this.#classes.slice(0, accepted + 1).entries()) {
      this.#chances[own] = averageChance(this.#chances[own]!, i < accepted);
      this.chance = averageChance(this.chance, i < accepted);
    }
    const speed = (accepted + 1) / (stepMs + this.#draftedMs);
    this.#trials++;
    this.#speed = this.#trials === 1 ? speed : this.#speed + 0.2 * (speed - this.#speed);
  }

  async dispose(): Promise<void> {
    await this.#writer?.decoder.dispose();
  }
}
