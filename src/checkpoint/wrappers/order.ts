/**
 * Wrappers of a checkpoint: steps that give its tensors the names and order of rows that its network expects. Each works on
 * the result of the one before, and says why it comes at its place.
 */
import type { Checkpoint } from "../../formats/contract.ts";
import { withPermutedHeads } from "../../formats/head-rows.ts";
import { buildDecoder } from "../../model/architectures.ts";
import type { Decoder, Network } from "../../model/decoder.ts";
import { withArchitecture } from "../../model/encoders.ts";
import { expertStacks } from "../../model/layer.ts";
import { allLayers } from "../../model/transformer-config.ts";
import { withModelPrefix } from "./base-names.ts";
import { withDraftHead, withoutLackingHead } from "./draft-head.ts";
import { withExpertStacks } from "./expert-stacks.ts";
import { withFoldedOrders } from "./folded-orders.ts";
import { withTextHalf } from "./text-half.ts";
import { withStoredHead } from "./tied-head.ts";

type Wrapped = readonly [Checkpoint, Decoder];

/** First, since they change the config that the network is built from. */
const ofConfigs: readonly ((checkpoint: Checkpoint) => Checkpoint)[] = [
  // All others need the architecture, which configs of some files do not name.
  (checkpoint) => ({ ...checkpoint, config: withArchitecture(checkpoint.config) }),
  // Later steps read the decoder's config, which a multimodal model nests in its own.
  withTextHalf,
  // The decoder's config may have unsupported layers of multi-token prediction, which get no slots.
  withDraftHead,
];

/** For decoders, since they look for tensors of the decoder's slots. */
const ofDecoders: readonly ((...found: Wrapped) => Wrapped | Promise<Wrapped>)[] = [
  // Base models lack the prefix "model.", which the next steps expect.
  (checkpoint, decoder) => [withModelPrefix(checkpoint, decoder), decoder],
  // Before the next step, which would take the experts of a multi-token prediction layer for missing tensors.
  (checkpoint, decoder) => [withExpertStacks(checkpoint, stacksOf(decoder)), decoder],
  // May replace the decoder by one with the same head and embedding.
  (checkpoint, decoder) => {
    const other = withoutLackingHead(checkpoint, decoder.slots);
    return other ? [other, buildDecoder(other.configFile, other.config)] : [checkpoint, decoder];
  },
  // Last, since it may read two whole matrices.
  withStoredHead,
];

/** For all networks, since they change rows of slots. */
const ofNetworks: readonly ((checkpoint: Checkpoint, network: Network) => Checkpoint)[] = [
  // Puts the columns of MLPs in the order of their groups.
  withFoldedOrders,
  // Puts the rows of attention in Hugging Face's order. No other step moves them.
  withHeadHalves,
];

const stacksOf = ({ transformer }: Decoder) => (transformer ? expertStacks(allLayers(transformer)) : []);

function withHeadHalves(checkpoint: Checkpoint, { slots }: Network): Checkpoint {
  const paired = new Map(slots.flatMap(({ name, pairs }) => (pairs ? [[name, pairs]] : [])));
  if (paired.size === 0) return checkpoint;
  return { ...checkpoint, tensors: withPermutedHeads(checkpoint.tensors, (name) => paired.get(name) ?? null) };
}

/** The checkpoint with the config from which its network is built. */
export function withNetworkConfig(checkpoint: Checkpoint): Checkpoint {
  return ofConfigs.reduce((wrapped, wrap) => wrap(wrapped), checkpoint);
}

/** The decoder of a checkpoint, and the checkpoint with tensors under the names of its slots. */
export async function decoderOf(checkpoint: Checkpoint): Promise<Wrapped> {
  let wrapped: Wrapped = [checkpoint, buildDecoder(checkpoint.configFile, checkpoint.config)];
  for (const wrap of ofDecoders) wrapped = await wrap(...wrapped);
  return wrapped;
}

/** The checkpoint with rows in the order that the network expects. */
export function withNetworkRows(checkpoint: Checkpoint, network: Network): Checkpoint {
  return ofNetworks.reduce((wrapped, wrap) => wrap(wrapped, network), checkpoint);
}
