/**
 * Multi-token prediction (DeepSeek-V3 2024, section 2.2; `mtp` in Qwen3.5's checkpoints): one more layer, which reads the
 * hidden state of a token and the embedding of the next one, and predicts the token after that.
 */
import type { ConfigReader } from "./config-reader.ts";
import { type Drafter, type DraftPass, draftVocabularySize } from "./drafter.ts";
import type { LayerConfig, LayerPlaces, StoringMixer } from "./layer.ts";
import { linearSlots, vectorSlot, type WeightSlot } from "./weight-slot.ts";

/** Prefix of its weights in Qwen3.5's checkpoints. */
const MODULE = "mtp";
export const MULTI_TOKEN_PREFIX = `${MODULE}.`;

/** Config field with the number of such layers. */
export const MULTI_TOKEN_LAYERS = "mtp_num_hidden_layers";

/** The layer; its keys and values are computed from each token and the hidden state before it. */
interface MultiTokenLayer extends LayerConfig {
  readonly mixer: StoringMixer;
}

/** Sizes of the decoder that it drafts for. */
interface DecoderSizes {
  readonly hidden: number;
  readonly vocabulary: number;
}

/** The drafter of a config with such a layer; undefined without. */
export function readMultiToken(
  config: ConfigReader,
  sizes: DecoderSizes,
  parts: MultiTokenLayer,
): MultiToken | undefined {
  return config.count(MULTI_TOKEN_LAYERS, 0) > 0 ? new MultiToken(sizes, parts) : undefined;
}

export class MultiToken implements Drafter {
  readonly layers: readonly [MultiTokenLayer];
  readonly isFixed = false;
  readonly hidden: number;
  readonly vocabularySize: number;

  constructor({ hidden, vocabulary }: DecoderSizes, layer: MultiTokenLayer) {
    this.hidden = hidden;
    this.vocabularySize = draftVocabularySize(vocabulary);
    this.layers = [{ ...layer, module: `${MODULE}.layers.0` }];
  }

  slots(): WeightSlot[] {
    const norms = ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"];
    return [
      ...linearSlots(`${MODULE}.fc`, this.hidden, 2 * this.hidden),
      ...norms.map((name) => vectorSlot(`${MODULE}.${name}.weight`, this.hidden)),
    ];
  }

  store<T>(pass: DraftPass<T>, hidden: T, [places]: readonly LayerPlaces[]): void {
    const [{ mixer, norms }] = this.layers;
    const { module, mixer: place } = places!;
    const x = this.#input(pass, pass.ops.previousRows(hidden, { state: place.firstState }));
    const { beforeMixer } = norms;
    mixer.store(pass, beforeMixer === null ? x : pass.norm(x, `${module}.${beforeMixer}`), place);
  }

  draft<T>(pass: DraftPass<T>, before: T): readonly [logits: T, hidden: T] {
    const hidden = this.#states(pass, before);
    return [pass.draftLogits(hidden), hidden];
  }

  visit<T>(pass: DraftPass<T>, before: T): readonly T[] {
    return [this.#states(pass, before)];
  }

  /** Hidden states after the layer's last norm, which can take the place of the decoder's. */
  #states<T>(pass: DraftPass<T>, before: T): T {
    return pass.norm(pass.draftLayer(this.#input(pass, before), 0), `${MODULE}.norm`);
  }

  /**
   * The layer's input: fc of the normed embeddings of the tokens, concatenated with the normed hidden states before them.
   */
  #input<T>(pass: DraftPass<T>, before: T): T {
    const parts = [
      pass.norm(pass.embedded, `${MODULE}.pre_fc_norm_embedding`),
      pass.norm(before, `${MODULE}.pre_fc_norm_hidden`),
    ];
    return pass.linear(pass.ops.call("aten::cat.out", parts, -1), `${MODULE}.fc`);
  }
}
