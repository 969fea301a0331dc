/** Drafts of a smaller model with the same tokens: it writes on, and the larger one computes what it wrote in one step. */
import { hostCpu } from "../kernels/cpu.ts";
import type { PrefixScope } from "../prefix-scope.ts";
import type { ComputeOptions } from "./decoder.ts";
import { Rest } from "./draft-length.ts";
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

/** Drafts for one text. */
export class ModelDrafts {
  readonly #decoder: ReturnType<DraftModel["createDecoder"]>;
  /** Takes the likeliest token after all penalties, which the tokens to come are drawn with. */
  readonly #sampler: Sampler;
  readonly #vocabularySize: number;
  readonly #costs: StepCosts;
  /** Tokens that its decoder holds. */
  readonly #ids: number[] = [];
  /** By the probability that the drafting model gives a token: the chance that it comes. */
  readonly #chances = Array.from({ length: CLASSES }, (_, i) => (i + 0.5) / CLASSES);
  readonly #rest = new Rest();
  /** Classes of the tokens of the last draft, and what making it took. */
  #classes: number[] = [];
  #draftedMs = 0;
  /** Tokens a millisecond of steps with drafts. */
  #speed = 0;
  #trials = 0;
  /** How often its tokens come true. */
  chance = 0.5;

  constructor(model: DraftModel, costs: StepCosts, { prefixScope, ...options }: DraftingOptions) {
    this.#decoder = model.createDecoder(prefixScope);
    this.#vocabularySize = model.tokenizer.vocabSize;
    const size = this.#decoder.vocabularySize ?? this.#vocabularySize;
    const { logitBias = {}, suppressTokens = [] } = options;
    this.#sampler = createSampler({
      ...options,
      temperature: 0,
      logitBias: Object.fromEntries(Object.entries(logitBias).filter(([id]) => Number(id) < size)),
      suppressTokens: suppressTokens.filter((id) => id < size),
    });
    this.#costs = costs;
  }

  /** What may come behind `history`, at most `most` tokens: as many as are worth what they cost; none while they are not. */
  async next(history: readonly number[], most: number, options: ComputeOptions): Promise<readonly number[]> {
    this.#classes = [];
    const room = Math.min(most, this.#decoder.contextLength - history.length);
    // A step without drafts is what those with them are compared with.
    if (room < 1 || !this.#costs.knows(1) || this.#rest.passes()) return [];
    if (this.#trials < TRIALS) return this.#write(history, room, options);
    if (this.#speed < 1 / this.#costs.of(1)) {
      this.#rest.begin();
      this.#trials = 0;
      return [];
    }
    this.#rest.shorten();
    return this.#write(history, room, options);
  }

  async #write(history: readonly number[], most: number, options: ComputeOptions): Promise<readonly number[]> {
    const drafted: number[] = [];
    let [expected, share] = [1, 1];
    let rest = this.#follow(history);
    this.#draftedMs = 0;
    while (drafted.length < most) {
      const start = performance.now();
      const logits = await this.#decoder.prefill(rest, options);
      this.#ids.push(...rest);
      const id = this.#sampler.sample(logits, [...history, ...drafted]);
      // Logits beyond the tokens only make up a round number.
      if (id >= this.#vocabularySize) break;
      const { logprob } = logProbabilities(logits, id, 0, hostCpu());
      const own = Math.min(CLASSES - 1, Math.floor(CLASSES * Math.exp(logprob)));
      if (rest.length <= READ_MAX) this.#draftedMs += performance.now() - start;
      const chance = share * this.#chances[own]!;
      const rows = drafted.length + 1;
      const gain = (expected + chance) / (this.#costs.of(rows + 1) + this.#draftedMs);
      if (gain < expected / (this.#costs.of(rows) + this.#draftedMs)) break;
      drafted.push(id);
      this.#classes.push(own);
      [expected, share] = [expected + chance, chance];
      rest = [id];
    }
    return drafted;
  }

  /** Cuts its context back to what it has in common with a text; gives what it has to read. */
  #follow(history: readonly number[]): number[] {
    let common = 0;
    const most = Math.min(this.#ids.length, history.length - 1);
    while (common < most && this.#ids[common] === history[common]) common++;
    if (common < this.#ids.length) {
      this.#decoder.rewind!(common);
      this.#ids.length = common;
    }
    return history.slice(common);
  }

  /** Notes how many tokens of the last draft came true, and what the step took that computed them. */
  cameTrue(accepted: number, stepMs: number): void {
    for (const [i, own] of this.#classes.slice(0, accepted + 1).entries()) {
      this.#chances[own] = averageChance(this.#chances[own]!, i < accepted);
      this.chance = averageChance(this.chance, i < accepted);
    }
    const speed = (accepted + 1) / (stepMs + this.#draftedMs);
    this.#trials++;
    this.#speed = this.#trials === 1 ? speed : this.#speed + 0.2 * (speed - this.#speed);
  }

  dispose(): Promise<void> {
    return this.#decoder.dispose();
  }
}
