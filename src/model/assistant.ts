/**
 * Assistants of Gemma 4 (2026): small draft models whose layers have no keys and values, but read those of the model that
 * they draft for. Their input is the model's embedding of the last token, concatenated with the hidden state before it.
 */
import type { Drafter, DraftPass } from "./drafter.ts";
import type { LayerConfig } from "./layer.ts";
import { linearSlots, vectorSlot, type WeightSlot } from "./weight-slot.ts";

/** Prefix of an assistant's weights, beside those of the model. */
export const ASSISTANT_PREFIX = "assistant.";

/** The field of a model's config that holds the assistant's. */
export const ASSISTANT_CONFIG = "assistant_config";

const TABLE = `${ASSISTANT_PREFIX}model.embed_tokens`;
const NORM = `${ASSISTANT_PREFIX}model.norm`;
const INTO = `${ASSISTANT_PREFIX}pre_projection`;
const OUT = `${ASSISTANT_PREFIX}post_projection`;

export interface AssistantConfig {
  /** Elements of a hidden state of the assistant; then, of the model that it drafts for. */
  readonly hidden: number;
  readonly backbone: number;
  /** Size of the vocabulary of both models. */
  readonly vocabulary: number;
  /** Layers whose mixers read the keys and values of the model's layers. */
  readonly layers: readonly LayerConfig[];
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

  slots(): WeightSlot[] {
    const { hidden, backbone, vocabulary } = this.#config;
    return [
      ...linearSlots(INTO, hidden, 2 * backbone),
      ...linearSlots(OUT, backbone, hidden),
      vectorSlot(`${NORM}.weight`, hidden),
      ...linearSlots(TABLE, vocabulary, hidden),
    ];
  }

  draft<T>(pass: DraftPass<T>, before: T): readonly [logits: T, hidden: T] {
    const joined = pass.ops.call("aten::cat.out", [pass.embedded, before], -1);
    const last = this.layers.reduce((x, _, i) => pass.draftLayer(x, i), pass.linear(joined, INTO));
    const normed = pass.norm(last, NORM);
    return [pass.linear(normed, TABLE), pass.linear(normed, OUT)];
  }

  visit<T>(pass: DraftPass<T>, before: T): readonly T[] {
    return this.draft(pass, before);
  }
}
