/**
 * Assistants of Gemma 4 (2026): small draft models whose layers have no keys and values, but read those of the model that
 * they draft for. Their input is the model's embedding of the last token, concatenated with the hidden state before it.
 */
import { rowBlocks } from "../ops/weight.ts";
import type { Drafter, DraftPass } from "./drafter.ts";
import type { LayerConfig } from "./layer.ts";
import { linearSlots, matrixSlot, vectorSlot, type WeightSlot } from "./weight-slot.ts";

/** Prefix of an assistant's weights, beside those of the model. */
export const ASSISTANT_PREFIX = "assistant.";

/** The field of a model's config that holds the assistant's. */
export const ASSISTANT_CONFIG = "assistant_config";

/** An assistant's head: a row for each token. */
export const ASSISTANT_HEAD = "model.embed_tokens";

/** Modules of a head in clusters, without the prefix. `head`: the head's rows in the order of the clusters. */
export const clusterModules = {
  centroids: "masked_embedding.centroids",
  ordering: "masked_embedding.token_ordering",
  head: "masked_embedding.head",
} as const;

const HEAD = `${ASSISTANT_PREFIX}${ASSISTANT_HEAD}`;
const CENTROIDS = `${ASSISTANT_PREFIX}${clusterModules.centroids}`;
const ORDERING = `${ASSISTANT_PREFIX}${clusterModules.ordering}`;
const CLUSTERS = `${ASSISTANT_PREFIX}${clusterModules.head}`;
const NORM = `${ASSISTANT_PREFIX}model.norm`;
const INTO = `${ASSISTANT_PREFIX}pre_projection`;
const OUT = `${ASSISTANT_PREFIX}post_projection`;

/** Clusters of tokens, of which a draft computes the logits of the best, by the products with their centroids. */
export interface TokenClusters {
  /** Number of clusters, which have as many tokens each. */
  readonly count: number;
  /** Number of clusters whose logits are computed. */
  readonly topK: number;
}

export interface AssistantConfig {
  /** Elements of a hidden state of the assistant; then, of the model that it drafts for. */
  readonly hidden: number;
  readonly backbone: number;
  /** Size of the vocabulary of both models. */
  readonly vocabulary: number;
  /** Layers whose mixers read the keys and values of the model's layers. */
  readonly layers: readonly LayerConfig[];
  /** Clusters of its tokens; null where all logits are computed. */
  readonly clusters: TokenClusters | null;
}

export class Assistant implements Drafter {
  readonly layers: readonly LayerConfig[];
  readonly isFixed = true;
  readonly hidden: number;
  readonly vocabularySize: number;
  readonly #config: AssistantConfig;

  constructor(config: AssistantConfig) {
    this.#config = config;
    this.hidden = config.hidden;
    this.vocabularySize = config.vocabulary;
    this.layers = config.layers.map((layer, i) => ({ ...layer, module: `${ASSISTANT_PREFIX}model.layers.${i}` }));
  }

  /** Module of the head. */
  get #head(): string {
    return this.#config.clusters ? CLUSTERS : HEAD;
  }

  slots(): WeightSlot[] {
    const { hidden, backbone, vocabulary, clusters } = this.#config;
    return [
      ...linearSlots(INTO, hidden, 2 * backbone),
      ...linearSlots(OUT, backbone, hidden),
      vectorSlot(`${NORM}.weight`, hidden),
      ...linearSlots(this.#head, vocabulary, hidden),
      // Floats, as routers are.
      ...(clusters
        ? [matrixSlot(`${CENTROIDS}.weight`, clusters.count, hidden), vectorSlot(ORDERING, vocabulary)]
        : []),
    ];
  }

  draft<T>(pass: DraftPass<T>, before: T): readonly [logits: T, hidden: T] {
    const states = this.#states(pass, before);
    const { clusters } = this.#config;
    // Before the logits, so that the calls of native kernels are one run.
    const hidden = pass.linear(states, OUT);
    return [clusters ? this.#clusterLogits(pass, states, clusters) : pass.linear(states, this.#head), hidden];
  }

  visit<T>(pass: DraftPass<T>, before: T): readonly T[] {
    const states = this.#states(pass, before);
    return [pass.linear(states, OUT), pass.linear(states, this.#head)];
  }

  #states<T>(pass: DraftPass<T>, before: T): T {
    const joined = pass.ops.call("aten::cat.out", [pass.embedded, before], -1);
    const last = this.layers.reduce((x, _, i) => pass.draftLayer(x, i), pass.linear(joined, INTO));
    return pass.norm(last, NORM);
  }

  /** Logits of the tokens of the best clusters; others have one less than the least of these. */
  #clusterLogits<T>(pass: DraftPass<T>, x: T, { count, topK }: TokenClusters): T {
    const { vocabulary } = this.#config;
    const { ops } = pass;
    const routed = ops.route(pass.linear(x, CENTROIDS), { topK });
    const head = pass.weight(`${this.#head}.weight`);
    const parts = rowBlocks(head, vocabulary / count).map((part) => ({ weights: [part], biases: null }));
    const logits = ops.expertLinear(ops.expertRows(x, routed), { name: head.name, parts, ...routed });
    return ops.scatterExperts(logits, routed, pass.weight(ORDERING), vocabulary);
  }
}
