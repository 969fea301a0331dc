/**
 * What is done to a checkpoint until it has the names and the order of rows that its network has for tensors: each wrapper
 * works on what the one before gives, and says why it stands where it does.
 */
import type { Checkpoint } from "../../formats/contract.ts";
import { withTurnedHeads } from "../../formats/head-rows.ts";
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

/** Before a network can be built, since they change the config that it is built from. */
const ofConfigs: readonly ((checkpoint: Checkpoint) => Checkpoint)[] = [
  // All others ask for the architecture, which configs of some kinds of file do not name.
  (checkpoint) => ({ ...checkpoint, config: withArchitecture(checkpoint.config) }),
  // What follows reads the config of the decoder, which a model that sees has within its own.
  withTextHalf,
  // The decoder's config may ask for layers of multi-token prediction that are not supported: no slots for these.
  withDraftHead,
];

/** Of a decoder, since they look for tensors of its slots. */
const ofDecoders: readonly ((...found: Wrapped) => Wrapped | Promise<Wrapped>)[] = [
  // Base models lack "model." in front of names, by which the next ones look.
  (checkpoint, decoder) => [withModelPrefix(checkpoint, decoder), decoder],
  // A layer of multi-token prediction may have experts, which the next would take to be lacking.
  (checkpoint, decoder) => [withExpertStacks(checkpoint, stacksOf(decoder)), decoder],
  // Gives another decoder, which has the same head and embedding.
  (checkpoint, decoder) => {
    const other = withoutLackingHead(checkpoint, decoder.slots);
    return other ? [other, buildDecoder(other.configFile, other.config)] : [checkpoint, decoder];
  },
  // Reads two matrices, so it is not done twice.
  withStoredHead,
];

/** Of all networks, since they change rows of slots. */
const ofNetworks: readonly ((checkpoint: Checkpoint, network: Network) => Checkpoint)[] = [
  // MLPs in the order of groups.
  withFoldedOrders,
  // Attention, whose rows no other moves: in the order of Hugging Face, whichever the file has.
  withHeadHalves,
];

const stacksOf = ({ transformer }: Decoder) => (transformer ? expertStacks(allLayers(transformer)) : []);

function withHeadHalves(checkpoint: Checkpoint, { slots }: Network): Checkpoint {
  const paired = new Map(slots.flatMap(({ name, pairs }) => (pairs ? [[name, pairs]] : [])));
  if (paired.size === 0) return checkpoint;
  return { ...checkpoint, tensors: withTurnedHeads(checkpoint.tensors, (name) => paired.get(name) ?? null) };
}

/** The checkpoint with the config that a network is built from. */
export function withNetworkConfig(checkpoint: Checkpoint): Checkpoint {
  return ofConfigs.reduce((wrapped, wrap) => wrap(wrapped), checkpoint);
}

/** The decoder of a checkpoint, and the checkpoint with tensors under the names of its slots. */
export async function decoderOf(checkpoint: Checkpoint): Promise<Wrapped> {
  let wrapped: Wrapped = [checkpoint, buildDecoder(checkpoint.configFile, checkpoint.config)];
  for (const wrap of ofDecoders) wrapped = await wrap(...wrapped);
  return wrapped;
}

/** The checkpoint of a network with rows in the order that the network has. */
export function withNetworkRows(checkpoint: Checkpoint, network: Network): Checkpoint {
  return ofNetworks.reduce((wrapped, wrap) => wrap(wrapped, network), checkpoint);
}
