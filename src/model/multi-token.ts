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

/** Config fields: number of such layers, and whether they have an embedding and a head of their own. */
export const MULTI_TOKEN_LAYERS = "mtp_num_hidden_layers";
const OWN_EMBEDDING = "mtp_use_dedicated_embeddings";
const OWN_HEAD = "mtp_use_dedicated_head";
const EMBEDDING = `${MODULE}.embed_tokens.weight`;
const HEAD = `${MODULE}.shared_head.head`;

/** A class whose checkpoints have the layer under other names. */
export const MIMO = "MiMoForCausalLM";

/** How they call its modules, beside those of the layer. */
const mimoModules: Readonly<Record<string, string>> = {
  input_proj: "fc",
  token_layernorm: "pre_fc_norm_embedding",
  hidden_layernorm: "pre_fc_norm_hidden",
  final_layernorm: "norm",
};

/** The name that a tensor of MiMo's has in Qwen3.5's checkpoints; other names as they are. */
export function ofMimo(name: string): string {
  const [, layer = "", module = "", rest = ""] = /^model\.mtp_layers\.(\d+)\.(\w+)\.(.+)$/.exec(name) ?? [];
  if (module === "") return name;
  const own = Object.hasOwn(mimoModules, module) && layer === "0" ? mimoModules[module] : null;
  return own ? `${MODULE}.${own}.${rest}` : `${MODULE}.layers.${layer}.${module}.${rest}`;
}

/** The layer; its keys and values are computed from each token and the hidden state before it. */
interface MultiTokenLayer extends LayerConfig {
  readonly mixer: StoringMixer;
}

/** Sizes of the decoder that it drafts for. */
interface DecoderSizes {
  readonly hidden: number;
  readonly vocabulary: number;
  /** Whether `fc` has hidden states before embeddings. */
  readonly isHiddenFirst?: boolean;
}

/** What it has of its own where others read the decoder's. */
interface OwnTables {
  readonly embedding: boolean;
  readonly head: boolean;
}

/** The drafter of a config with such a layer; undefined without. */
export function readMultiToken(
  config: ConfigReader,
  sizes: DecoderSizes,
  parts: MultiTokenLayer,
): MultiToken | undefined {
  if (config.count(MULTI_TOKEN_LAYERS, 0) === 0) return undefined;
  const own = { embedding: config.boolean(OWN_EMBEDDING, false), head: config.boolean(OWN_HEAD, false) };
  return new MultiToken(sizes, parts, own);
}

export class MultiToken implements Drafter {
  readonly layers: readonly [MultiTokenLayer];
  readonly isFixed = false;
  readonly hidden: number;
  readonly vocabularySize: number;
  readonly #own: OwnTables;
  readonly #vocabulary: number;
  readonly #isHiddenFirst: boolean;

  constructor({ hidden, vocabulary, isHiddenFirst = false }: DecoderSizes, layer: MultiTokenLayer, own: OwnTables) {
    this.#own = own;
    this.#vocabulary = vocabulary;
    this.#isHiddenFirst = isHiddenFirst;
    this.hidden = hidden;
    this.vocabularySize = draftVocabularySize(vocabulary);
    this.layers = [{ ...layer, module: `${MODULE}.layers.0` }];
  }

  slots(): WeightSlot[] {
    const norms = ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"];
    const table: WeightSlot[] = [
      { name: EMBEDDING, shape: [this.#vocabulary, this.hidden], role: "embedding", tiedTo: null },
    ];
    return [
      ...(this.#own.embedding ? table : []),
      ...(this.#own.head ? linearSlots(HEAD, this.#vocabulary, this.hidden) : []),
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
    return [pass.draftLogits(hidden, this.#own.head ? `${HEAD}.weight` : undefined), hidden];
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
    const embedded = this.#own.embedding ? pass.ops.embedding(pass.weight(EMBEDDING), pass.tokens) : pass.embedded;
    const parts = [
      pass.norm(embedded, `${MODULE}.pre_fc_norm_embedding`),
      pass.norm(before, `${MODULE}.pre_fc_norm_hidden`),
    ];
    if (this.#isHiddenFirst) parts.reverse();
    return pass.linear(pass.ops.call("aten::cat.out", parts, -1), `${MODULE}.fc`);
  }
}
